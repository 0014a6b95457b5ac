// SPDX-License-Identifier: Apache-2.0
// Reading and writing safetensors. The header becomes a list of entries that are known to be in bounds, disjoint and
// complete; only then is memory taken, and never more than the file has bytes.
#include "io/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>

#include "io/atomic_file.hpp"
#include "io/json.hpp"
#include "io/source.hpp"
#include "io/words.hpp"
#include "semantics/words.hpp"

namespace fresnel {
namespace {

constexpr std::uint64_t prefix_bytes = 8;
constexpr std::uint64_t most_header_bytes = 100'000'000;
constexpr std::string_view metadata_key = "__metadata__";
constexpr std::string_view known_dtypes = "F64, F32, F16, BF16, I32 or BOOL";

/// The format's name of a dtype, in the order of DType.
constexpr std::array<std::string_view, 6> dtype_names{"F64", "F32", "F16", "BF16", "I32", "BOOL"};

struct Entry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  ///< bytes from the start of the data
  std::int64_t end = 0;
};

Result<DType> dtype_of(const Json& value, const std::string& argument) {
  const auto* name = value.get_ptr<const std::string*>();
  const auto* found = name == nullptr ? dtype_names.end() : std::find(dtype_names.begin(), dtype_names.end(), *name);
  if (found == dtype_names.end()) return refuse(argument + ".dtype", describe_json(value), std::string(known_dtypes));
  return static_cast<DType>(found - dtype_names.begin());
}

Result<std::vector<std::int64_t>> counts_of(const Json& value, const std::string& argument) {
  std::vector<std::int64_t> counts;
  if (!value.is_array()) return refuse(argument, describe_json(value), "a list of counts");
  for (const Json& element : value) {
    const std::optional<std::int64_t> count = count_of(element);
    if (!count) return refuse(argument, describe_json(element), "whole numbers in [0, 2^63)");
    counts.push_back(*count);
  }
  return counts;
}

/// One tensor of the header, with a byte range that fits its shape and lies within the data.
Result<Entry> entry_of(const std::string& name, const Json& value, const std::string& argument,
                       std::uint64_t data_bytes) {
  const std::string keys = "an object with dtype, shape and data_offsets";
  if (!value.is_object()) return refuse(argument, describe_json(value), keys);
  for (const auto& item : value.items())
    if (item.key() != "dtype" && item.key() != "shape" && item.key() != "data_offsets")
      return refuse(argument, "the key " + in_quotes(item.key()), keys);
  if (value.size() != 3) return refuse(argument, fmt::format("{} keys", value.size()), keys);

  const Result<DType> dtype = dtype_of(value["dtype"], argument);
  if (!dtype) return dtype.refusal();
  Result<std::vector<std::int64_t>> shape = counts_of(value["shape"], argument + ".shape");
  if (!shape) return shape.refusal();
  const std::optional<std::int64_t> bytes = byte_size_of(*dtype, *shape);
  if (!bytes) return refuse(argument + ".shape", print_shape(*shape), "fewer than 2^63 bytes");

  const Result<std::vector<std::int64_t>> offsets = counts_of(value["data_offsets"], argument + ".data_offsets");
  if (!offsets) return offsets.refusal();
  const bool ordered = offsets->size() == 2 && (*offsets)[0] <= (*offsets)[1];
  if (!ordered || static_cast<std::uint64_t>((*offsets)[1]) > data_bytes)
    return refuse(argument + ".data_offsets", print_shape(*offsets),
                  fmt::format("[begin,end] with begin <= end <= {}, the bytes after the header", data_bytes));
  if ((*offsets)[1] - (*offsets)[0] != *bytes)
    return refuse(argument + ".data_offsets", fmt::format("{} bytes", (*offsets)[1] - (*offsets)[0]),
                  fmt::format("{} bytes, the size of {} {}", *bytes, dtype_names[static_cast<std::size_t>(*dtype)],
                              print_shape(*shape)));
  return Entry{name, *dtype, std::move(*shape), (*offsets)[0], (*offsets)[1]};
}

Result<Metadata> metadata_of(const Json& value, const std::string& argument) {
  Metadata metadata;
  if (!value.is_object()) return refuse(argument, describe_json(value), "an object of strings");
  for (const auto& item : value.items()) {
    const auto* text = item.value().get_ptr<const std::string*>();
    if (text == nullptr) return refuse(argument + '.' + readable(item.key()), describe_json(item.value()), "a string");
    metadata.emplace(item.key(), *text);
  }
  return metadata;
}

/// Sorts by position and demands that the entries follow each other without overlap, hole or rest.
Status cover(std::vector<Entry>& entries, const std::string& label, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered)
      return refuse(fmt::format("{}: {}.data_offsets", label, readable(entry.name)),
                    fmt::format("{} at byte {}", entry.begin < covered ? "an overlap" : "a hole", entry.begin),
                    fmt::format("data that begins at byte {}, where the tensor before it ends", covered));
    covered = entry.end;
  }
  if (static_cast<std::uint64_t>(covered) != data_bytes)
    return refuse(label, fmt::format("{} bytes of data", data_bytes),
                  fmt::format("{} bytes, which is what the header's tensors cover", covered));
  return Done{};
}

/// The header's text, once its length has been found plausible.
Result<std::string> header_of(const Source& source) {
  if (source.size() < prefix_bytes)
    return refuse(source.label(), fmt::format("{} bytes", source.size()), "a safetensors file of at least 8 bytes");
  std::array<std::byte, prefix_bytes> prefix{};
  if (const Status status = source.read(0, prefix); !status) return status.refusal();
  std::uint64_t length = 0;
  for (std::size_t byte = prefix.size(); byte-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(prefix[byte]);
  const std::uint64_t most = std::min(most_header_bytes, source.size() - prefix_bytes);
  if (length > most)
    return refuse(source.label() + ": header length", fmt::format("{}", length),
                  fmt::format("a safetensors file; here at most {} bytes of header", most));
  std::string header(length, '\0');
  if (const Status status = source.read(prefix_bytes, std::as_writable_bytes(std::span(header))); !status)
    return status.refusal();
  if (!header.starts_with('{')) return refuse(source.label() + ": header", "no object", "a JSON object");
  return header;
}

SafetensorsFile outline_of(const SafetensorsFile& file) {
  SafetensorsFile outline;
  outline.metadata = file.metadata;
  for (const NamedTensor& named : file.tensors)
    outline.tensors.push_back({named.name, {named.tensor.dtype, named.tensor.shape, {}}});
  return outline;
}

/// Reads the bytes of one tensor; a boolean is one byte, 0 or 1.
Status load(OwnedTensor& tensor, const Source& source, std::uint64_t offset, const std::string& argument) {
  const std::optional<std::int64_t> size = byte_size_of(tensor.dtype, tensor.shape);
  Result<AlignedBuffer> bytes = AlignedBuffer::allocate(static_cast<std::size_t>(size.value_or(0)), argument);
  if (!bytes) return bytes.refusal();
  tensor.bytes = std::move(*bytes);
  if (const Status status = source.read(offset, tensor.bytes.span()); !status) return status;
  return tensor.dtype == DType::boolean ? check_booleans(tensor.bytes.span(), argument) : Done{};
}

Result<SafetensorsFile> read_all(const Source& source, const Inspect& inspect) {
  const Result<std::string> header = header_of(source);
  if (!header) return header.refusal();
  const std::uint64_t data_start = prefix_bytes + header->size();
  const std::uint64_t data_bytes = source.size() - data_start;
  const Result<Json> document = parse_json(*header, source.label() + ": header");
  if (!document) return document.refusal();

  SafetensorsFile file;
  std::vector<Entry> entries;
  for (const auto& item : document->items()) {
    const std::string argument = source.label() + ": " + readable(item.key());
    if (item.key() == metadata_key) {
      Result<Metadata> metadata = metadata_of(item.value(), argument);
      if (!metadata) return metadata.refusal();
      file.metadata = std::move(*metadata);
      continue;
    }
    Result<Entry> entry = entry_of(item.key(), item.value(), argument, data_bytes);
    if (!entry) return entry.refusal();
    entries.push_back(std::move(*entry));
  }
  if (const Status status = cover(entries, source.label(), data_bytes); !status) return status.refusal();

  for (const Entry& entry : entries) file.tensors.push_back({entry.name, {entry.dtype, entry.shape, {}}});
  if (inspect)
    if (const Status status = inspect(outline_of(file)); !status) return status.refusal();
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const std::uint64_t offset = data_start + static_cast<std::uint64_t>(entries[index].begin);
    const std::string argument = source.label() + ": " + readable(entries[index].name);
    if (const Status status = load(file.tensors[index].tensor, source, offset, argument); !status)
      return status.refusal();
  }
  return file;
}

Status check_names(std::span<const NamedView> tensors) {
  std::set<std::string_view> names;
  for (const NamedView& tensor : tensors) {
    if (tensor.name == metadata_key)
      return refuse("name", in_quotes(tensor.name), "a name that the format leaves free");
    if (!names.insert(tensor.name).second) return refuse("name", in_quotes(tensor.name) + " twice", "every name once");
    if (const Status status = is_writable(tensor.view, tensor.name); !status) return status;
  }
  return Done{};
}

/// Keys in sorted order (metadata) and in file order (tensors); throws Json::exception for text that is not UTF-8.
std::string header_text(const Metadata& metadata, std::span<const NamedView* const> tensors) {
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{}", metadata_key, Json(metadata).dump());
  std::int64_t begin = 0;
  for (const NamedView* tensor : tensors) {
    const View& view = tensor->view;
    const std::int64_t end = begin + view.elements() * size_of(view.dtype);
    const std::span shape(view.sizes.data(), static_cast<std::size_t>(view.rank));
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", text.size() > 1 ? "," : "",
                        Json(tensor->name).dump(), dtype_names[static_cast<std::size_t>(view.dtype)],
                        print_shape(shape), begin, end);
    begin = end;
  }
  text += '}';
  text.append((prefix_bytes - text.size() % prefix_bytes) % prefix_bytes, ' ');  // data on an 8-byte boundary
  return text;
}

}  // namespace

Result<SafetensorsFile> read_safetensors(const std::filesystem::path& path, const Inspect& inspect) {
  try {
    const Result<std::unique_ptr<Source>> source = open_source(path);
    return source ? read_all(**source, inspect) : source.refusal();
  } catch (const std::bad_alloc&) {
    return out_of_memory(path.string());
  }
}

Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> bytes, std::string_view label,
                                          const Inspect& inspect) {
  try {
    return read_all(*memory_source(bytes, label), inspect);
  } catch (const std::bad_alloc&) {
    return out_of_memory(label);
  }
}

Status write_safetensors(const std::filesystem::path& path, const Metadata& metadata,
                         std::span<const NamedView> tensors) {
  if (const Status status = check_names(tensors); !status) return status;
  std::vector<const NamedView*> order;
  for (const NamedView& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedView* a, const NamedView* b) {
    return size_of(a->view.dtype) > size_of(b->view.dtype);
  });
  std::string header;
  try {
    header = header_text(metadata, order);
  } catch (const Json::exception&) {
    return refuse("metadata", "text that is not UTF-8", "names and metadata in UTF-8");
  }

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.refusal();
  std::array<std::byte, prefix_bytes> prefix{};
  for (std::size_t byte = 0; byte < prefix.size(); ++byte)
    prefix[byte] = static_cast<std::byte>(header.size() >> (8 * byte) & 0xff);
  if (const Status status = file->write(prefix); !status) return status;
  if (const Status status = file->write(header); !status) return status;
  for (const NamedView* tensor : order)
    if (const Status status = file->write_elements(tensor->view); !status) return status;
  return file->commit();
}

}  // namespace fresnel
