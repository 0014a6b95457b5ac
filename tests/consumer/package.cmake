# SPDX-License-Identifier: Apache-2.0
# Makes the Debian package, unpacks it and starts what is in it. Installing it for real would change the machine that
# the tests run on, and is left to apt.
cmake_minimum_required(VERSION 3.25)

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${line}\nfailed (${code}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
step(${CPACK} -G DEB -C ${CONFIG} --config ${BUILD_DIR}/CPackConfig.cmake -B ${WORK_DIR})
file(GLOB packages ${WORK_DIR}/*.deb)
list(LENGTH packages count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "one package expected: ${packages}")
endif()

step(${DPKG_DEB} --field ${packages} Depends)
foreach(needed IN ITEMS libc6 libstdc++6 libhwy)
  string(FIND "${output}" ${needed} place)
  if(place EQUAL -1)
    message(FATAL_ERROR "the package does not depend on ${needed}: ${output}")
  endif()
endforeach()

step(${DPKG_DEB} --extract ${packages} ${WORK_DIR}/unpacked)
step(${WORK_DIR}/unpacked/usr/bin/fresnel check --problem "b1 h2 q9 k9 d8 f32 causal" --seed 1)
foreach(file IN ITEMS include/fresnel/fresnel.hpp include/fresnel/fresnel.h share/doc/fresnel/copyright)
  if(NOT EXISTS ${WORK_DIR}/unpacked/usr/${file})
    message(FATAL_ERROR "not in the package: ${file}")
  endif()
endforeach()
