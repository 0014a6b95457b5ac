// SPDX-License-Identifier: Apache-2.0
// The lesson's kernels for CUDA: see lesson.hpp. Every request of theirs for global memory and every barrier is one
// that src/traffic/forward_kernels.hpp counts; only exponentials differ: a tile's scores do not fit registers, so
// `fused` raises its maximum every 16 keys. Sources: Dao et al., "FlashAttention", 2022, algorithm 0; Dao,
// "FlashAttention-2", 2023, section 3.1.
#include <cstdint>

#include "kernels/cuda/lesson.hpp"
#include "runtime/cuda/device.hpp"

namespace fresnel::cuda {
namespace {

constexpr int softmax_threads = 256;
constexpr int most_kept = 64;  ///< scores a thread of the softmax keeps: rows of up to 16,384 keys

/// A tile of K or V into workgroup memory: word after word, each by one thread.
template <int width>
__device__ void load_tile(const float* from, std::int64_t first, int rows, float (*to)[width]) {
  for (int word = threadIdx.x; word < rows * width; word += blockDim.x)
    to[word / width][word % width] = from[first * width + word];
}

template <int width>
__device__ float dot(const float (&q)[width], const float* k) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < width; ++c) sum = fmaf(q[c], k[c], sum);
  return sum;
}

template <int width, int tile>
__global__ void scores_kernel(const float* q, const float* k, float* scores, std::int64_t n, float scale) {
  __shared__ float keys[tile][width];
  const std::int64_t query = static_cast<std::int64_t>(blockIdx.x) * tile + threadIdx.x;
  float mine[width];
  if (query < n)
#pragma unroll
    for (int c = 0; c < width; ++c) mine[c] = q[query * width + c];
  for (std::int64_t first = 0; first < n; first += tile) {
    const int rows = static_cast<int>(min(static_cast<std::int64_t>(tile), n - first));
    load_tile<width>(k, first, rows, keys);
    __syncthreads();  // the tile is whole
    if (query < n)
      for (int j = 0; j < rows; ++j) scores[query * n + first + j] = scale * dot(mine, keys[j]);
    __syncthreads();  // and read by everybody
  }
}

/// Every thread's value combined, for all of them: a tree in workgroup memory.
template <class Combine>
__device__ float reduce(float* tree, float value, Combine combine) {
  tree[threadIdx.x] = value;
  __syncthreads();
  for (int half = softmax_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) tree[threadIdx.x] = combine(tree[threadIdx.x], tree[threadIdx.x + half]);
    __syncthreads();
  }
  return tree[0];
}

/// One workgroup a row; a thread keeps every 256th score between the passes.
__global__ void softmax_kernel(float* scores, std::int64_t n) {
  __shared__ float tree[softmax_threads];
  float* const row = scores + static_cast<std::int64_t>(blockIdx.x) * n;
  float kept[most_kept];
  float m = -INFINITY, l = 0;
#pragma unroll
  for (int i = 0; i < most_kept; ++i) {
    const std::int64_t j = threadIdx.x + static_cast<std::int64_t>(i) * softmax_threads;
    if (j >= n) break;
    kept[i] = row[j];
    m = fmaxf(m, kept[i]);
  }
  m = reduce(tree, m, [](float a, float b) { return fmaxf(a, b); });
  __syncthreads();  // tree[0] is read before the next tree begins
#pragma unroll
  for (int i = 0; i < most_kept; ++i) {
    if (threadIdx.x + static_cast<std::int64_t>(i) * softmax_threads >= n) break;
    kept[i] = expf(kept[i] - m);
    l += kept[i];
  }
  l = reduce(tree, l, [](float a, float b) { return a + b; });
#pragma unroll
  for (int i = 0; i < most_kept; ++i) {
    const std::int64_t j = threadIdx.x + static_cast<std::int64_t>(i) * softmax_threads;
    if (j >= n) break;
    row[j] = kept[i] / l;
  }
}

template <int width, int tile>
__global__ void values_kernel(const float* weights, const float* v, float* o, std::int64_t n) {
  __shared__ float values[tile][width];
  const std::int64_t query = static_cast<std::int64_t>(blockIdx.x) * tile + threadIdx.x;
  float mine[width] = {};
  for (std::int64_t first = 0; first < n; first += tile) {
    const int rows = static_cast<int>(min(static_cast<std::int64_t>(tile), n - first));
    load_tile<width>(v, first, rows, values);
    __syncthreads();
    if (query < n)
      for (int j = 0; j < rows; ++j) {
        const float p = weights[query * n + first + j];
#pragma unroll
        for (int c = 0; c < width; ++c) mine[c] = fmaf(p, values[j][c], mine[c]);
      }
    __syncthreads();
  }
  if (query < n)
#pragma unroll
    for (int c = 0; c < width; ++c) o[query * width + c] = mine[c];
}

/// `rescales_l` is what the control forgets.
template <int width, int tile, bool rescales_l>
__global__ void fused_kernel(const float* q, const float* k, const float* v, float* o, std::int64_t n, float scale) {
  constexpr int chunk = 16;  // scores in registers at a time, beside q and o: 2 width + 16 floats
  __shared__ float keys[tile][width], values[tile][width];
  const std::int64_t query = static_cast<std::int64_t>(blockIdx.x) * tile + threadIdx.x;
  float mine[width], sums[width] = {};
  float m = -INFINITY, l = 0;
  if (query < n)
#pragma unroll
    for (int c = 0; c < width; ++c) mine[c] = q[query * width + c];
  for (std::int64_t first = 0; first < n; first += tile) {
    const int rows = static_cast<int>(min(static_cast<std::int64_t>(tile), n - first));
    load_tile<width>(k, first, rows, keys);
    load_tile<width>(v, first, rows, values);
    __syncthreads();
    for (int from = 0; from < rows && query < n; from += chunk) {
      float s[chunk], raised = m;
#pragma unroll
      for (int j = 0; j < chunk; ++j) {
        s[j] = from + j < rows ? scale * dot(mine, keys[from + j]) : -INFINITY;
        raised = fmaxf(raised, s[j]);
      }
      const float rescale = expf(m - raised);
      if (rescales_l) l *= rescale;
#pragma unroll
      for (int c = 0; c < width; ++c) sums[c] *= rescale;
#pragma unroll
      for (int j = 0; j < chunk; ++j) {
        if (from + j >= rows) break;
        const float p = expf(s[j] - raised);
        l += p;
#pragma unroll
        for (int c = 0; c < width; ++c) sums[c] = fmaf(p, values[from + j][c], sums[c]);
      }
      m = raised;
    }
    __syncthreads();
  }
  if (query < n)
#pragma unroll
    for (int c = 0; c < width; ++c) o[query * width + c] = sums[c] / l;
}

template <int width>
void launch(Lesson kind, const LessonCall& call) {
  constexpr int tile = static_cast<int>(lesson_tile(width));
  const auto groups = static_cast<unsigned>((call.n + tile - 1) / tile);
  if (kind == Lesson::unfused) {
    scores_kernel<width, tile><<<groups, tile>>>(call.q, call.k, call.scores, call.n, call.scale);
    softmax_kernel<<<static_cast<unsigned>(call.n), softmax_threads>>>(call.scores, call.n);
    values_kernel<width, tile><<<groups, tile>>>(call.scores, call.v, call.o, call.n);
  } else if (kind == Lesson::fused) {
    fused_kernel<width, tile, true><<<groups, tile>>>(call.q, call.k, call.v, call.o, call.n, call.scale);
  } else {
    fused_kernel<width, tile, false><<<groups, tile>>>(call.q, call.k, call.v, call.o, call.n, call.scale);
  }
}

}  // namespace

Status launch_lesson(Lesson kind, const LessonCall& call) {
  const auto refuse = [](const char* argument, std::int64_t given, const char* accepted) {
    return Refusal{Fault::unsupported, "lesson", argument, std::to_string(given), accepted, {}};
  };
  constexpr std::int64_t most = std::int64_t{most_kept} * softmax_threads;
  if (call.n < 1 || call.n > most) return refuse("n", call.n, "1 to 16384");
  if (call.width != 16 && call.width != 64) return refuse("width", call.width, "16 or 64");
  if (kind == Lesson::unfused && call.scores == nullptr) return refuse("scores", 0, "n x n floats for unfused");
  call.width == 16 ? launch<16>(kind, call) : launch<64>(kind, call);
  return launched("lesson");
}

}  // namespace fresnel::cuda
