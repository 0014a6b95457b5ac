// SPDX-License-Identifier: Apache-2.0
// Up to `most_together` query rows against one block of keys, lanes along the head dimension: every vector of K and V
// is loaded, and widened from half, once for all of them. How many rows share a load, and how many keys or columns a
// step takes, follows from the registers and changes no bit:
//
//     score    the lanes of one product sum are added in the order of sums_of_four, whichever of its four it is
//     output   a block's keys are summed from zero in ascending order, then the block is added to o
//
// so a row computes the same alone as in company. Rows that see different keys of a block go alone.

#if defined(FRESNEL_KERNELS_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRESNEL_KERNELS_CPU_DECODE_INL_H_
#undef FRESNEL_KERNELS_CPU_DECODE_INL_H_
#else
#define FRESNEL_KERNELS_CPU_DECODE_INL_H_
#endif

#include "kernels/cpu/read_ahead-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fresnel::cpu {
namespace HWY_NAMESPACE {

/// Sums kept in registers at a time: half of the 32 that AVX-512 and NEON have, half of 16 elsewhere.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int sums_at_once = 16;
#else
inline constexpr int sums_at_once = 8;
#endif

/// Keys of a score step and vectors of columns of an output step.
template <int rows>
inline constexpr int step_of = rows > 2 ? sums_at_once / 4 : 4;

/// bf16 is widened two vectors at a time, the even elements and the odd ones, by a shift and a mask and no shuffle. So
/// `q` and `o` of a row hold each whole pair of vectors in that order.
template <class In>
inline constexpr bool by_parity = std::is_same_v<In, BFloat16>&& HWY_TARGET != HWY_SCALAR;

template <class In>
inline constexpr std::int64_t pair_of = 2 * lanes_of<Real<In>>;

/// Where element `at` of a row of `width` stands in q and o.
template <class In>
[[nodiscard]] HWY_INLINE std::int64_t place_in_row(std::int64_t at, std::int64_t width) {
  constexpr std::int64_t pair = pair_of<In>;
  if (!by_parity<In> || at >= width / pair * pair) return at;
  return at / pair * pair + at % 2 * (pair / 2) + at % pair / 2;
}

/// Two vectors from one place, in the order of q and o.
template <class In>
HWY_INLINE void load_pair(const In* from, Vector<Real<In>>& first, Vector<Real<In>>& second) {
  first = load(from);
  second = load(from + lanes_of<Real<In>>);
}

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE void load_pair(const BFloat16* from, Vector<float>& even, Vector<float>& odd) {
  const Full<float> d;
  const hn::RebindToUnsigned<Full<float>> du;
  const hn::Repartition<std::uint16_t, Full<float>> dh;
  const auto both = hn::BitCast(du, hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(from)));
  even = hn::BitCast(d, hn::ShiftLeft<16>(both));
  odd = hn::BitCast(d, hn::And(both, hn::Set(du, 0xffff0000u)));
}
#endif

/// A vector that is used more than once: g++ would load it anew for every use, where loads are what is short.
template <class T>
HWY_INLINE Vector<T> kept(Vector<T> v) {
#if HWY_TARGET == HWY_AVX2
  asm("" : "+x"(v.raw));
#endif
  return v;
}

/// Lines of memory that `vectors` vectors of `In`, widened, come from; 1 at least.
template <class In, int vectors>
inline constexpr int lines_of = std::max<int>(vectors* static_cast<int>(lanes_of<Real<In>> * sizeof(In)) / 64, 1);

/// Scores of `rows` queries against `keys` keys from `first`; asks for as many of those ahead.
template <class In, int rows, int keys>
HWY_INLINE void score_step(const DecodeRow<Real<In>>* row, Rows<const In> k, std::int64_t first, std::int64_t width,
                           LinesAhead asked) {
  using T = Real<In>;
  constexpr std::int64_t lanes = lanes_of<T>;
  Vector<T> sums[rows * keys];
  for (int sum = 0; sum < rows * keys; ++sum) sums[sum] = hn::Zero(Full<T>());
  const In* const from = k.row(first);
  const auto add = [&](std::int64_t at, const Vector<T>(&values)[keys]) HWY_ATTR {
    for (int query = 0; query < rows; ++query) {
      const auto q = kept<T>(load(row[query].q + at));
      for (int key = 0; key < keys; ++key)
        sums[query * keys + key] = hn::MulAdd(q, values[key], sums[query * keys + key]);
    }
  };
  std::int64_t at = 0;
  for (; at + 2 * lanes <= width; at += 2 * lanes) {
    asked.template some<lines_of<In, 2 * keys>>();
    Vector<T> even[keys], odd[keys];
    for (int key = 0; key < keys; ++key) load_pair(from + key * k.stride + at, even[key], odd[key]);
    add(at, even);
    add(at + lanes, odd);
  }
  asked.all();
  for (; at < width; at += lanes) {
    Vector<T> values[keys];
    for (int key = 0; key < keys; ++key) {
      const In* const element = from + key * k.stride + at;
      values[key] = at + lanes <= width ? load(element) : load_first(element, width - at);
    }
    add(at, values);
  }

  T totals[(rows * keys + 3) / 4 * 4];
  for (int sum = 0; sum < rows * keys; sum += 4) {
    Vector<T> four[4];
    for (int one = 0; one < 4; ++one) four[one] = sums[std::min(sum + one, rows * keys - 1)];
    sums_of_four(four, totals + sum);
  }
  for (int query = 0; query < rows; ++query)
    std::copy_n(totals + query * keys, keys, row[query].scores + (first - row[query].seen.first));
}

template <class In, int rows>
void score_block(const DecodeRow<Real<In>>* row, Rows<const In> k, KeyRange range, std::int64_t width,
                 const Ahead<In>& ahead) {
  constexpr int step = step_of<rows>;
  std::int64_t key = range.first;
  for (; key + step <= range.last; key += step) {
    for (int one = 0; one < step; ++one) ahead.ask_page(key + one);
    score_step<In, rows, step>(row, k, key, width, ahead.from(key, step));
  }
  for (; key < range.last; ++key) score_step<In, rows, 1>(row, k, key, width, ahead.from(key, 1));
}

/// Some keys of V: `count` rows from `from` on, and the weights of each query.
template <class In, int rows>
struct ValuePiece {
  const In* from;
  std::ptrdiff_t stride;
  std::int64_t count;
  const Real<In>* weights[rows];
};

/// Adds the values of a piece to a block's sums, rows of `pitch`, for `columns` vectors of columns from `at`, of which
/// a single one holds only `rest` numbers where that is not 0. Asks for as many lines as it reads.
template <class In, int rows, int columns>
HWY_INLINE void value_step(const ValuePiece<In, rows>& piece, std::int64_t at, std::int64_t rest, Real<In>* block_sums,
                           std::int64_t pitch, LinesAhead& asked) {
  using T = Real<In>;
  constexpr std::int64_t lanes = lanes_of<T>;
  constexpr int together = std::max<int>(64 / (columns * static_cast<int>(lanes * sizeof(In))), 1);  // keys of a line
  const Full<T> d;
  Vector<T> sums[rows][columns];
  for (int query = 0; query < rows; ++query)
    for (int column = 0; column < columns; ++column)
      sums[query][column] = load(block_sums + query * pitch + at + column * lanes);
  const In* from = piece.from + at;
  const auto add = [&](std::int64_t key) HWY_ATTR {
    Vector<T> values[columns];
    if constexpr (columns == 1) {
      values[0] = rest > 0 ? load_first(from, rest) : load(from);
    } else {
      for (int column = 0; column < columns; column += 2)
        load_pair(from + column * lanes, values[column], values[column + 1]);
    }
    for (int query = 0; query < rows; ++query) {
      const auto weight = hn::Set(d, piece.weights[query][key]);
      for (int column = 0; column < columns; ++column)
        sums[query][column] = hn::MulAdd(weight, values[column], sums[query][column]);
    }
    from += piece.stride;
  };
  LinesAhead lines = asked;  // a copy, which can live in registers
  std::int64_t key = 0;
  for (; key + together <= piece.count; key += together) {
    lines.template some<lines_of<In, columns>>();
    for (int one = 0; one < together; ++one) add(key + one);
  }
  for (; key < piece.count; ++key) add(key);
  asked = lines;
  for (int query = 0; query < rows; ++query)
    for (int column = 0; column < columns; ++column)
      hn::StoreU(sums[query][column], d, block_sums + query * pitch + at + column * lanes);
}

/// Rows are read in pieces no longer than what is asked for ahead, and not some columns of all of them first.
template <class In, int rows>
void value_block(const DecodeRow<Real<In>>* row, Rows<const In> v, const KeyRange& block, std::int64_t width,
                 const Ahead<In>& ahead, Real<In>* sums) {
  using T = Real<In>;
  constexpr std::int64_t lanes = lanes_of<T>;
  constexpr int step = step_of<rows>;
  const std::int64_t pitch = padded_width(width), longest = width <= step * lanes ? block.size() : ahead.near;
  std::fill_n(sums, rows * pitch, T(0));
  ValuePiece<In, rows> piece{nullptr, v.stride, 0, {}};
  for (std::int64_t first = block.first; first < block.last; first += longest) {
    piece.from = v.row(first);
    piece.count = std::min(longest, block.last - first);
    for (int query = 0; query < rows; ++query)
      piece.weights[query] = row[query].scores + (first - row[query].seen.first);
    for (std::int64_t key = first; key < first + piece.count; ++key) ahead.ask_page(key);
    LinesAhead asked = ahead.from(first, piece.count);
    std::int64_t at = 0;
    for (; at + step * lanes <= width; at += step * lanes) value_step<In, rows, step>(piece, at, 0, sums, pitch, asked);
    for (; at + 2 * lanes <= width; at += 2 * lanes) value_step<In, rows, 2>(piece, at, 0, sums, pitch, asked);
    for (; at < width; at += lanes)
      value_step<In, rows, 1>(piece, at, at + lanes <= width ? 0 : width - at, sums, pitch, asked);
    asked.all();
  }
  for (int query = 0; query < rows; ++query) {
    const bool fresh = block.first == row[query].seen.first;
    for (std::int64_t at = 0; at < width; at += lanes) {
      const auto sum = load(sums + query * pitch + at);
      hn::StoreU(fresh ? sum : hn::Add(load(row[query].state.o + at), sum), Full<T>(), row[query].state.o + at);
    }
  }
}

template <class In>
void score_rows(const DecodeRow<Real<In>>* row, std::int64_t count, Rows<const In> k, const KeyRange& block,
                std::int64_t width, Ahead<In> ahead) {
  for_rows_together<most_together>(row, count, block,
                                   [&](std::int64_t rows, const DecodeRow<Real<In>>* from, const KeyRange& keys) {
                                     switch (rows) {
                                       case 1: score_block<In, 1>(from, k, keys, width, ahead); break;
                                       case 2: score_block<In, 2>(from, k, keys, width, ahead); break;
                                       case 3: score_block<In, 3>(from, k, keys, width, ahead); break;
                                       default: score_block<In, 4>(from, k, keys, width, ahead);
                                     }
                                     ahead.asks = 0;
                                   });
}

template <class In>
void value_rows(const DecodeRow<Real<In>>* row, std::int64_t count, Rows<const In> v, const KeyRange& block,
                std::int64_t width, Ahead<In> ahead, Real<In>* sums) {
  for_rows_together<most_together>(row, count, block,
                                   [&](std::int64_t rows, const DecodeRow<Real<In>>* from, const KeyRange& keys) {
                                     switch (rows) {
                                       case 1: value_block<In, 1>(from, v, keys, width, ahead, sums); break;
                                       case 2: value_block<In, 2>(from, v, keys, width, ahead, sums); break;
                                       case 3: value_block<In, 3>(from, v, keys, width, ahead, sums); break;
                                       default: value_block<In, 4>(from, v, keys, width, ahead, sums);
                                     }
                                     ahead.asks = 0;
                                   });
}

/// Copies a query into zero-padded scratch, in the order in which keys are loaded.
template <class In>
void place_query(const In* from, std::int64_t width, std::int64_t padded, Real<In>* q) {
  for (std::int64_t at = 0; at < width; ++at) q[place_in_row<In>(at, width)] = to_real(from[at]);
  for (std::int64_t at = width; at < padded; ++at) q[at] = 0;
}

/// Scores to weights for one row of a chunk; the sum in blocks, like that of the values.
template <class T>
void weigh_chunk(const DecodeRow<T>& row) {
  const Partial<T>& state = row.state;
  *state.m = finish_scores(row.rule, row.seen.first - row.position, row.seen.size(), row.scores);
  *state.l = 0;
  for (std::int64_t at = 0; at < row.seen.size(); at += decode_block)
    *state.l += weigh(*state.m, std::min(decode_block, row.seen.size() - at), row.scores + at);
}

/// The products of an item (decode_chunk-inl.h) on vectors. Below some megabytes K and V may lie in caches, where
/// asking for them costs one or two rows, which do little else, more than it gains.
template <class In>
class VectorProducts {
 public:
  using Element = In;
  using T = Real<In>;

  VectorProducts(Carver& carver, const Launch& launch, std::int64_t rows)
      : problem_(launch.plan.problem),
        tile_keys_(launch.plan.tile.keys),
        scratch_(carver, problem_, launch.plan.tile),
        far_away_(rows > 2 || bytes_of_keys(problem_) >= 16e6) {}

  void place(std::int64_t row, const In* q) {
    const std::int64_t padded = padded_width(problem_.head_dim);
    place_query(q, problem_.head_dim, padded, scratch_.q + row * padded);
  }
  /// Where a column stands in o, and how many numbers of it are written.
  [[nodiscard]] static std::int64_t place_in_o(std::int64_t at, std::int64_t width) {
    return place_in_row<In>(at, width);
  }
  [[nodiscard]] static std::int64_t o_width(std::int64_t width) { return padded_width(width); }

  /// The state of every row over its keys of `keys`: all scores, then all weights, then all values, each pass asking
  /// memory for what the next one reads; after the last comes `upcoming`.
  void attend(DecodeRow<T>* rows, std::int64_t count, Rows<const In> k, Rows<const In> v, const KeyRange& keys,
              const Upcoming<In>& upcoming) {
    for (std::int64_t row = 0; row < count; ++row) {
      rows[row].q = scratch_.q + row * padded_width(problem_.head_dim);
      rows[row].scores = scratch_.scores + row * padded_width(tile_keys_);
    }
    const Ahead<In> to_v = ahead(k, problem_.head_dim, keys.last, v, keys);
    for (std::int64_t key = keys.first; key < keys.last; key += decode_block)
      score_rows<In>(rows, count, k, {key, key + decode_block}, problem_.head_dim, to_v);
    for (std::int64_t row = 0; row < count; ++row) {
      to_v.ask_share(keys.last, row, count);
      if (!rows[row].seen.empty()) weigh_chunk(rows[row]);
    }
    const Ahead<In> to_k = ahead(v, problem_.value_dim, keys.last, upcoming.k, upcoming.keys);
    for (std::int64_t key = keys.first; key < keys.last; key += decode_block)
      value_rows<In>(rows, count, v, {key, key + decode_block}, problem_.value_dim, to_k, scratch_.sums);
  }

 private:
  [[nodiscard]] Ahead<In> ahead(Rows<const In> own, std::int64_t width, std::int64_t last, Rows<const In> then,
                                KeyRange then_range) const {
    constexpr std::int64_t size = sizeof(In);
    const std::int64_t near = std::clamp<std::int64_t>(8192 / (width * size), 4, 64) / 4 * 4;
    return {own, width, last, then, then_range, near, far_away_};
  }
  const Problem& problem_;
  std::int64_t tile_keys_;
  VectorDecodeScratch<T> scratch_;
  bool far_away_;
};

}  // namespace HWY_NAMESPACE
}  // namespace fresnel::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard toggled per target
