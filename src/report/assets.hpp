// SPDX-License-Identifier: Apache-2.0
// The files that the page consists of, as constants that the build makes of them; each is named as its file.
#pragma once

#include <string_view>

namespace fresnel::report::assets {

extern const std::string_view style_css;
extern const std::string_view charts_js;
extern const std::string_view walk_js;
extern const std::string_view attention_js;
extern const std::string_view page_js;
extern const std::string_view page_html;

}  // namespace fresnel::report::assets
