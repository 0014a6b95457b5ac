# SPDX-License-Identifier: Apache-2.0
# A Debian package of what install.cmake installs: `cpack -G DEB` in a finished build. What the library and the command
# line need at run time is read off the binaries; what a program needs that is compiled against a static library is
# suggested, and what `fresnel report` draws with recommended. No generator but Debian's has been tried.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fresnel)
set(CPACK_PACKAGE_VENDOR fresnel)
set(CPACK_PACKAGE_CONTACT "fresnel contributors <fresnel@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libjs-chart.js)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, cmake, pkg-config, libhwy-dev, libfmt-dev")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/fresnel RENAME copyright)
include(CPack)
