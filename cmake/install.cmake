# SPDX-License-Identifier: Apache-2.0
# Installing fresnel: library, public headers, the command line, and what find_package and pkg-config need.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

get_target_property(library_type fresnel TYPE)
set(FRESNEL_STATIC OFF)
if(library_type STREQUAL STATIC_LIBRARY)
  set(FRESNEL_STATIC ON)
endif()

install(TARGETS fresnel EXPORT fresnel-targets FILE_SET HEADERS)
if(TARGET fresnel_cli)
  set_target_properties(fresnel_cli PROPERTIES INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
  install(TARGETS fresnel_cli)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fresnel)
install(EXPORT fresnel-targets NAMESPACE fresnel:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/fresnel-config.cmake.in
                              ${PROJECT_BINARY_DIR}/fresnel-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fresnel-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fresnel-config.cmake ${PROJECT_BINARY_DIR}/fresnel-config-version.cmake
        DESTINATION ${package_dir})

# The prefix is found from where the .pc file lies, so the installed tree may be moved.
file(RELATIVE_PATH FRESNEL_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" FRESNEL_PC_PREFIX ${FRESNEL_PC_PREFIX})
if(FRESNEL_STATIC)
  set(FRESNEL_PC_REQUIRES "libhwy, fmt")
  # A program in C is linked by C's compiler, which does not know what C++ needs.
  set(cxx_libraries ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
  list(FILTER cxx_libraries INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|m)$")
  list(REMOVE_DUPLICATES cxx_libraries)
  list(TRANSFORM cxx_libraries PREPEND -l)
  list(JOIN cxx_libraries " " cxx_libraries)
  set(FRESNEL_PC_LIBS "${CMAKE_THREAD_LIBS_INIT} ${cxx_libraries}")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/fresnel.pc.in ${PROJECT_BINARY_DIR}/fresnel.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fresnel.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
