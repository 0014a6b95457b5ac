# SPDX-License-Identifier: Apache-2.0
# How fresnel is linked as a shared library. The compiler hides everything that the public headers do not declare
# (src is compiled with hidden visibility, the headers raise it); the script below also keeps in what the compiler emits
# for templates of other libraries.

# fresnel_link_shared(<target>): exports the C interface and the public C++ interface and nothing else. The default
# pool's threads outlive every call and are never joined, so their code must never be unmapped: nodelete.
function(fresnel_link_shared target)
  set(script ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${script} LINKER:-z,nodelete LINKER:--no-undefined)
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${script})
endfunction()
