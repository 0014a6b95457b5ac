# SPDX-License-Identifier: Apache-2.0
# Installs a finished build, moves the installed tree away, and builds and runs the consumer against it: once with
# find_package(fresnel), once with the flags that pkg-config prints, and from C. The installed command line must start,
# too. Any step that fails fails the test.
cmake_minimum_required(VERSION 3.25)

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${line}\nfailed (${code}):\n${output}")
  endif()
endfunction()

set(project_dir ${CMAKE_CURRENT_LIST_DIR}/project)
set(prefix ${WORK_DIR}/moved)
file(REMOVE_RECURSE ${WORK_DIR})
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${WORK_DIR}/installed)
file(RENAME ${WORK_DIR}/installed ${prefix})

file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*)
list(FILTER headers EXCLUDE REGEX "^fresnel/[a-z_]+\\.(hpp|h)$")
if(headers)
  message(FATAL_ERROR "installed, but not public headers: ${headers}")
endif()

# Kernels that are wrong on purpose stay behind; the second search shows that the first can find something.
file(GLOB libraries ${prefix}/${LIBDIR}/libfresnel*)
foreach(library IN LISTS libraries)
  file(STRINGS ${library} controls REGEX "control\\.[a-z]+_|control\\.none")
  file(STRINGS ${library} kernels REGEX "cpu\\.flash")
  if(library MATCHES "controls[^/]*$" OR controls OR NOT kernels)
    message(FATAL_ERROR "installed with controls, or without kernels: ${library} ${controls}")
  endif()
endforeach()

step(${prefix}/bin/fresnel kernels)

# The consumer is told nothing but the prefix.
step(${CMAKE_COMMAND} -S ${project_dir} -B ${WORK_DIR}/found -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
     -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_PREFIX_PATH=${prefix})
step(${CMAKE_COMMAND} --build ${WORK_DIR}/found --config ${CONFIG})
step(${WORK_DIR}/found/consumer)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig:$ENV{PKG_CONFIG_PATH})
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs fresnel OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY
                OUTPUT_STRIP_TRAILING_WHITESPACE)
separate_arguments(flags UNIX_COMMAND "${flags}")
step(${COMPILER} -std=c++20 ${project_dir}/main.cpp -o ${WORK_DIR}/by_pkg_config ${flags}
     -Wl,-rpath,${prefix}/${LIBDIR})
step(${WORK_DIR}/by_pkg_config)

# The same from C: the program of docs/c_api.md, linked by C's compiler.
step(${C_COMPILER} -std=c99 ${C_PROGRAM} -o ${WORK_DIR}/c_by_pkg_config ${flags} -Wl,-rpath,${prefix}/${LIBDIR})
step(${WORK_DIR}/c_by_pkg_config)
