// SPDX-License-Identifier: Apache-2.0
// Reading and writing .npy. The header's dictionary is read by a parser for exactly the literals that NumPy writes:
// strings, True, False and tuples of whole numbers.
#include "io/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include "io/atomic_file.hpp"
#include "io/safetensors.hpp"
#include "io/source.hpp"
#include "io/words.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t most_header_bytes = 65'536;  // a shape needs far less
constexpr std::size_t header_alignment = 64;         // NumPy's own, of the first element

struct Descriptor {
  DType dtype;
  std::string_view text;
};
constexpr std::array<Descriptor, 5> descriptors{
    {{DType::f64, "<f8"}, {DType::f32, "<f4"}, {DType::f16, "<f2"}, {DType::i32, "<i4"}, {DType::boolean, "|b1"}}};
constexpr std::string_view known_descriptors = "'<f8', '<f4', '<f2', '<i4' or '|b1'";

struct Header {
  std::optional<DType> dtype;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

using Literal = std::variant<std::string, bool, std::vector<std::int64_t>>;

/// Reads Python literals off a text; every reader returns nothing when the text is something else.
class Literals {
 public:
  explicit Literals(std::string_view text) : text_(text) {}

  /// Skips blanks, then takes `token` if it comes next.
  bool take(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  [[nodiscard]] bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }

  [[nodiscard]] std::size_t position() const { return at_; }

  std::optional<std::string> string() {
    for (const char quote : {'\'', '"'}) {
      if (!take({&quote, 1})) continue;
      const std::size_t end = text_.find(quote, at_);
      if (end == std::string_view::npos) return std::nullopt;
      const std::string_view content = text_.substr(at_, end - at_);
      at_ = end + 1;
      return std::string(content);
    }
    return std::nullopt;
  }

  std::optional<Literal> literal() {
    if (auto text = string()) return Literal(std::move(*text));
    if (take("True")) return Literal(true);
    if (take("False")) return Literal(false);
    if (auto counts = tuple()) return Literal(std::move(*counts));
    return std::nullopt;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::optional<std::int64_t> count() {
    skip_blanks();
    const std::size_t start = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const std::int64_t digit = text_[at_] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10) return std::nullopt;
      value = value * 10 + digit;
    }
    if (at_ == start) return std::nullopt;
    return value;
  }

  std::optional<std::vector<std::int64_t>> tuple() {
    std::vector<std::int64_t> counts;
    if (!take("(")) return std::nullopt;
    while (!take(")")) {
      const std::optional<std::int64_t> value = count();
      if (!value) return std::nullopt;
      counts.push_back(*value);
      if (take(",")) continue;
      // Python reads "(3)" as a number: one element needs its comma.
      return counts.size() > 1 && take(")") ? std::optional(counts) : std::nullopt;
    }
    return counts;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Stores one item of the dictionary where it belongs.
Status accept(Header& header, const std::string& key, const Literal& value, const std::string& label) {
  const std::string argument = label + ": " + readable(key);
  if (key == "descr" && !header.dtype) {
    const auto* text = std::get_if<std::string>(&value);
    for (const Descriptor& known : descriptors)
      if (text != nullptr && *text == known.text) header.dtype = known.dtype;
    if (header.dtype) return Done{};
    return refuse(argument, text == nullptr ? "no string" : '\'' + readable(*text) + '\'',
                  std::string(known_descriptors) + " (little endian)");
  }
  if (key == "fortran_order" && !header.fortran_order) {
    const auto* order = std::get_if<bool>(&value);
    if (order == nullptr || *order)
      return refuse(argument, order == nullptr ? "no boolean" : "True", "False (C order)");
    header.fortran_order = *order;
    return Done{};
  }
  if (key == "shape" && !header.shape) {
    const auto* shape = std::get_if<std::vector<std::int64_t>>(&value);
    if (shape == nullptr) return refuse(argument, "no tuple", "a tuple of whole numbers");
    header.shape = *shape;
    return Done{};
  }
  const bool known = key == "descr" || key == "fortran_order" || key == "shape";
  return refuse(argument, known ? "the key twice" : "an unknown key", "descr, fortran_order and shape, each once");
}

Result<Header> parse_header(std::string_view text, const std::string& label) {
  Header header;
  Literals literals(text);
  const auto malformed = [&] {
    return refuse(label + ": header", fmt::format("no Python dictionary at byte {}", literals.position()),
                  "{'descr': ..., 'fortran_order': False, 'shape': (...), }");
  };
  if (!literals.take("{")) return malformed();
  while (!literals.take("}")) {
    const std::optional<std::string> key = literals.string();
    if (!key || !literals.take(":")) return malformed();
    const std::optional<Literal> value = literals.literal();
    // A structured dtype is a list: well formed, but not ours.
    if (!value && *key == "descr" && literals.take("["))
      return refuse(label + ": descr", "a structured dtype", std::string(known_descriptors));
    if (!value) return malformed();
    if (const Status status = accept(header, *key, *value, label); !status) return status.refusal();
    if (literals.take(",")) continue;
    if (!literals.take("}")) return malformed();
    break;
  }
  if (!literals.at_end()) return malformed();
  if (!header.dtype || !header.fortran_order || !header.shape)
    return refuse(label + ": header", "a missing key", "descr, fortran_order and shape, each once");
  return header;
}

struct Preamble {
  std::string header;
  std::uint64_t data_start = 0;
};

/// Magic, version and header text.
Result<Preamble> preamble_of(const Source& source) {
  std::array<std::byte, 12> start{};  // magic, two bytes of version, at most four of length
  const std::size_t available = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), start.size()));
  if (const Status status = source.read(0, std::span(start).first(available)); !status) return status.refusal();
  if (available < 10 || std::string_view(reinterpret_cast<const char*>(start.data()), magic.size()) != magic)
    return refuse(source.label(), "no .npy file", "a file that begins with \\x93NUMPY");
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint64_t>(start[at]); };
  const std::uint64_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0)
    return refuse(source.label() + ": version", fmt::format("{}.{}", version, byte(7)), "1.0, 2.0 or 3.0");
  const std::uint64_t length_end = version == 1 ? 10 : 12;
  std::uint64_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  const std::uint64_t most = std::min(most_header_bytes, source.size() - std::min(source.size(), length_end));
  if (length > most)
    return refuse(source.label() + ": header length", fmt::format("{}", length), fmt::format("at most {} here", most));
  Preamble preamble{std::string(length, '\0'), length_end + length};
  if (const Status status = source.read(length_end, std::as_writable_bytes(std::span(preamble.header))); !status)
    return status.refusal();
  return preamble;
}

Result<OwnedTensor> read_all(const Source& source) {
  const Result<Preamble> preamble = preamble_of(source);
  if (!preamble) return preamble.refusal();
  const Result<Header> header = parse_header(preamble->header, source.label());
  if (!header) return header.refusal();
  const std::uint64_t data_bytes = source.size() - preamble->data_start;
  const std::optional<std::int64_t> size = byte_size_of(*header->dtype, *header->shape);
  if (!size || static_cast<std::uint64_t>(*size) != data_bytes)
    return refuse(source.label() + ": shape", print_shape(*header->shape),
                  fmt::format("a shape of {} elements, which is what {} bytes hold",
                              data_bytes / static_cast<std::uint64_t>(size_of(*header->dtype)), data_bytes));
  Result<AlignedBuffer> bytes = AlignedBuffer::allocate(data_bytes, source.label());
  if (!bytes) return bytes.refusal();
  if (const Status status = source.read(preamble->data_start, bytes->span()); !status) return status.refusal();
  if (*header->dtype == DType::boolean)
    if (const Status status = check_booleans(bytes->span(), source.label()); !status) return status.refusal();
  return OwnedTensor{*header->dtype, *header->shape, std::move(*bytes)};
}

}  // namespace

Result<OwnedTensor> read_npy(const std::filesystem::path& path) {
  try {
    const Result<std::unique_ptr<Source>> source = open_source(path);
    return source ? read_all(**source) : source.refusal();
  } catch (const std::bad_alloc&) {
    return out_of_memory(path.string());
  }
}

Result<OwnedTensor> parse_npy(std::span<const std::byte> bytes, std::string_view label) {
  try {
    return read_all(*memory_source(bytes, label));
  } catch (const std::bad_alloc&) {
    return out_of_memory(label);
  }
}

Status write_npy(const std::filesystem::path& path, const View& view) {
  if (const Status status = is_writable(view, "tensor"); !status) return status;
  const auto* known = std::find_if(descriptors.begin(), descriptors.end(),
                                   [&](const Descriptor& descriptor) { return descriptor.dtype == view.dtype; });
  if (known == descriptors.end()) return refuse("dtype", spell(view.dtype), "f64, f32, f16, i32 or bool");
  std::string shape;
  for (int axis = 0; axis < view.rank; ++axis)
    shape += fmt::format("{}{}", axis > 0 ? ", " : "", view.sizes[static_cast<std::size_t>(axis)]);
  if (view.rank == 1) shape += ',';
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", known->text, shape);
  const std::size_t before = magic.size() + 4;
  header.append(header_alignment - 1 - (before + header.size()) % header_alignment, ' ');
  header += '\n';

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.refusal();
  std::string start(magic);
  for (const std::size_t byte : {std::size_t{1}, std::size_t{0}, header.size() & 0xff, header.size() >> 8})
    start += static_cast<char>(byte);
  if (const Status status = file->write(start + header); !status) return status;
  if (const Status status = file->write_elements(view); !status) return status;
  return file->commit();
}

Result<OwnedTensor> read_tensor(const std::filesystem::path& path) {
  const Result<std::unique_ptr<Source>> source = open_source(path);
  if (!source) return source.refusal();
  std::array<char, magic.size()> start{};
  const auto bytes = std::as_writable_bytes(std::span(start));
  if ((*source)->size() >= bytes.size())
    if (const Status status = (*source)->read(0, bytes); !status) return status.refusal();
  if (std::string_view(start.data(), start.size()) == magic) return read_npy(path);
  Result<SafetensorsFile> file = read_safetensors(path);
  if (!file) return file.refusal();
  if (file->tensors.size() != 1)
    return refuse(path.string(), fmt::format("{} tensors", file->tensors.size()), "a file with one tensor");
  return std::move(file->tensors.front().tensor);
}

}  // namespace fresnel
