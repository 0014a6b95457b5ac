// SPDX-License-Identifier: Apache-2.0
// cuda_lesson N WIDTH unfused|fused|broken [REPEATS]: runs a kernel of the lesson on random data, judges nothing,
// prints the median of its times in microseconds. With REPEATS 0 one launch without a warm-up, for a profiler to look
// at.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cuda/lesson.hpp"
#include "runtime/cuda/device.hpp"

namespace fresnel::cuda {
namespace {

std::int64_t number(std::string_view argument, std::string_view text) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0)
    throw Error({Fault::bad_input, {}, std::string(argument), std::string(text), "a whole number", {}});
  return value;
}

Lesson kind_of(std::string_view text) {
  if (text == "unfused") return Lesson::unfused;
  if (text == "fused") return Lesson::fused;
  if (text == "broken") return Lesson::broken;
  throw Error({Fault::bad_input, {}, "KIND", std::string(text), "unfused, fused or broken", {}});
}

void must(const Status& status) {
  if (!status) throw Error(status.refusal());
}

DeviceBuffer random_floats(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  DeviceBuffer buffer = DeviceBuffer::allocate(values.size() * sizeof(float)).value();
  must(buffer.upload(std::as_bytes(std::span(values))));
  return buffer;
}

void run(std::span<char*> words) {
  if (words.size() < 3) throw Error({Fault::bad_input, {}, "arguments", "too few", "N WIDTH KIND [REPEATS]", {}});
  const std::int64_t n = number("N", words[0]), width = number("WIDTH", words[1]);
  const Lesson kind = kind_of(words[2]);
  const std::int64_t repeats = words.size() > 3 ? number("REPEATS", words[3]) : 31;
  const DeviceFacts device = use_device().value();
  const DeviceBuffer q = random_floats(n * width, 1), k = random_floats(n * width, 2), v = random_floats(n * width, 3);
  const DeviceBuffer o = DeviceBuffer::allocate(q.size()).value();
  const DeviceBuffer scores =
      DeviceBuffer::allocate(kind == Lesson::unfused ? static_cast<std::size_t>(n * n) * sizeof(float) : 4).value();
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
  const LessonCall call{q.floats(), k.floats(), v.floats(), o.floats(), scores.floats(), n, width, scale};
  Stopwatch stopwatch = Stopwatch::create().value();
  std::vector<double> times;
  for (std::int64_t turn = repeats == 0 ? 0 : -2; turn < std::max<std::int64_t>(repeats, 1); ++turn) {
    must(stopwatch.start());
    must(launch_lesson(kind, call));
    const double seconds = stopwatch.seconds().value();
    if (turn >= 0) times.push_back(seconds);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  std::printf("%s n %lld width %lld %s: %.1f us\n", device.name.c_str(), static_cast<long long>(n),
              static_cast<long long>(width), words[2], times[times.size() / 2] * 1e6);
}

}  // namespace
}  // namespace fresnel::cuda

int main(int count, char** words) {
  try {
    fresnel::cuda::run(std::span(words + 1, words + count));
  } catch (const fresnel::Error& error) {
    std::fprintf(stderr, "cuda_lesson: %s\n", error.what());
    return error.refusal().fault == fresnel::Fault::bad_input ? 2 : 3;
  }
}
