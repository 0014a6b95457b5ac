# SPDX-License-Identifier: Apache-2.0
# Writes OUT, an array of every source below ROOT that a result depends on with its SHA-256, and the commit. Run at every
# build; OUT is touched only when something changed.
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE paths RELATIVE ${ROOT} ${ROOT}/include/*.h ${ROOT}/include/*.hpp ${ROOT}/src/*.h ${ROOT}/src/*.hpp
     ${ROOT}/src/*.cpp ${ROOT}/controls/*.hpp ${ROOT}/controls/*.cpp ${ROOT}/cmake/*.cmake)
list(APPEND paths CMakeLists.txt)
list(SORT paths)
set(text "// Written by cmake/sources.cmake.\nconstexpr const char* own_source_hashes[][2] = {\n")
foreach(path IN LISTS paths)
  file(SHA256 ${ROOT}/${path} hash)
  string(APPEND text "    {\"${path}\", \"${hash}\"},\n")
endforeach()
execute_process(COMMAND git -C ${ROOT} rev-parse HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
string(APPEND text "};\nconstexpr const char* own_commit_text = \"${commit}\";\n")
file(CONFIGURE OUTPUT ${OUT} CONTENT "${text}" @ONLY)
