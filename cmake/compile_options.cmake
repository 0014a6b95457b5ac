# SPDX-License-Identifier: Apache-2.0
# How every translation unit of this project is compiled: library, command line and tests alike. Set for the directory
# and below, so that nothing here reaches a project that adds fresnel with add_subdirectory or finds it installed.

# Fused multiply-adds are written where they are wanted (Highway's MulAdd). Elsewhere the compilers differ in which
# products they fuse, and the same source would give different bits.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off;-Wall;-Wextra>"
                    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall>")
if(FRESNEL_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-Werror> "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--Werror all-warnings>")
endif()

# g++ 12 sees overlapping copies in `"text" + std::string` where there are none (GCC bug 105651, mended in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# fresnel_uses_avx512_intrinsics(target file...): g++ before 13 finds its own AVX-512 intrinsics uninitialised (GCC bug
# 105593).
function(fresnel_uses_avx512_intrinsics target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    set_property(SOURCE ${ARGN} TARGET_DIRECTORY ${target} APPEND
                 PROPERTY COMPILE_OPTIONS -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
endfunction()

# Vector sets compiled on x86: the baseline, AVX2 and AVX3. The value is the sum of the bits of AVX3_DL (7), SSE4 (11)
# and SSSE3 (12) in hwy/detect_targets.h, as a number because the names may not be known yet where it is read.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  add_compile_definitions(HWY_DISABLED_TARGETS=0x1880)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  # On Arm NEON alone: the kernels keep arrays of vectors, which scalable vectors (SVE, bits 24 to 27) do not allow.
  add_compile_definitions(HWY_DISABLED_TARGETS=0x0F000000)
endif()

# The baseline is one lane of plain C++ under every compiler: Highway's emulated vectors are off under GCC before 12.3,
# and the bits of a result should not depend on which of the two a compiler gets.
add_compile_definitions(HWY_BROKEN_EMU128=1)

# fresnel_compile_quickly(): for directories whose code talks and asks rather than computes. Full optimisation doubles the
# time to compile their templates and nobody waits for the result.
macro(fresnel_compile_quickly)
  if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    add_compile_options($<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:C,CXX>>:-O1>)
  endif()
endmacro()

if(FRESNEL_SANITIZE)
  string(REPLACE ";" "," sanitizers "${FRESNEL_SANITIZE}")
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${sanitizers};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)  # guessed from code that the sanitizers put there
  endif()
  add_link_options(-fsanitize=${sanitizers})
endif()

# libFuzzer is led by the branches that an input reaches, so the library is compiled to tell them.
if(FRESNEL_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "FRESNEL_FUZZ is ${FRESNEL_FUZZ} with ${CMAKE_CXX_COMPILER_ID}; libFuzzer comes with clang alone")
  endif()
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
