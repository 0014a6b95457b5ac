// SPDX-License-Identifier: Apache-2.0
// Text that came from somewhere else, made fit for a terminal: nothing taken from a file or an argument reaches a
// screen without passing through `printable`, so that no case file can move the cursor or rewrite what was printed.
#pragma once

#include <string>
#include <string_view>

namespace fresnel::cli {

/// The text with everything a terminal would act upon (control characters, direction marks, invalid UTF-8) escaped.
[[nodiscard]] std::string printable(std::string_view text);
/// `printable` in double quotes, cut to `width` columns with an ellipsis.
[[nodiscard]] std::string quoted(std::string_view text, int width = 60);
/// Columns a printable text takes: wide characters take two, combining marks and our own colours none.
[[nodiscard]] int columns(std::string_view text);
/// Cut to `width` columns with an ellipsis.
[[nodiscard]] std::string fitted(std::string_view text, int width);
/// `text` as one argument for a POSIX shell.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace fresnel::cli
