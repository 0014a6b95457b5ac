// SPDX-License-Identifier: Apache-2.0
// A tile of keys out of a paged cache, for every workgroup machine. The threads first read the entries of the block
// table for the pages that the tile touches into workgroup memory; after a barrier each of them takes a page's block
// into a register and the rows are read page by page. Source: Kwon et al., "Efficient Memory Management for Large
// Language Model Serving with PagedAttention", 2023, section 4.1.
#pragma once

#include "traffic/shape.hpp"

namespace fresnel::traffic {

/// Workgroup memory for the entries of a tile; none where K and V lie in one piece.
template <class Group>
[[nodiscard]] auto entries_memory(Group& group, const Shape& shape) {
  return group.memory(shape.paged() ? most_pages(shape.tile, shape.page_size) : 0, 1);
}

/// K and V of `keys` for the head of `rows` into workgroup memory. The barrier within also stands between what was done
/// with the tile before and this one's words; the caller's own follows.
template <class Group, class Tensors, class Memory, class Scalars>
void load_pages(Group& group, const Shape& shape, const Tensors& t, const QueryTile& rows, const Span& keys,
                const Memory& entries, const Scalars& block, const Memory& k, const Memory& v) {
  const std::int64_t first_page = keys.first / shape.page_size, last = keys.first + keys.count;
  const std::int64_t pages = tiles_of(last, shape.page_size) - first_page;
  group.elements(pages, [&](auto& thread, std::int64_t at) {
    thread.put(entries, at, thread.read(t.block_table, rows.batch, first_page + at));
  });
  group.barrier();
  for (std::int64_t at = 0; at < pages; ++at) {
    const std::int64_t page = first_page + at, begin = page * shape.page_size;
    const std::int64_t first = std::max(begin, keys.first), count = std::min(begin + shape.page_size, last) - first;
    group.threads(shape.threads, [&](auto& thread) { block[thread.id] = thread.get(entries, at); });
    const auto row_of = [&](std::int64_t found, std::int64_t row) {
      return shape.pool_row(found, first - begin + row, rows.head);
    };
    const std::int64_t in_order = rows.batch * shape.pages() + page;
    group.gather(t.k, block, in_order, row_of, count, k, first - keys.first);
    group.gather(t.v, block, in_order, row_of, count, v, first - keys.first);
  }
}

}  // namespace fresnel::traffic
