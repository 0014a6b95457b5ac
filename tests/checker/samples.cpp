// SPDX-License-Identifier: Apache-2.0
// The numbers themselves: see samples.hpp.
#include "checker/samples.hpp"

#include <fmt/format.h>

#include <cmath>

namespace fresnel::test {
namespace {

/// Magnitudes that sit in the same place of every dtype's range.
struct Extremes {
  double huge_factor;       ///< q and k whose product makes scores as large as is promised to work, up to 1e17
  double eighth_of_range;   ///< v of which 8 still add up within the accumulator's promise
  double largest;           ///< the largest finite number
  double tiny;              ///< a value among the subnormals
  double underflow_scale;   ///< a scale that makes products of size `underflow_product` matter
  double underflow_factor;  ///< its square is about half the accumulator's least subnormal
};

Extremes extremes_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return {5e8, 1e307, 1.797e308, 1e-310, 0x1.8p1022, 0x1.2p-538};
    case DType::f16: return {6e4, 60000, 65504, 3e-7, 0, 0};
    case DType::bf16: return {5e8, 2e37, 3.389e38, 1e-39, 0x1.8p126, 0x1.2p-75};
    default: return {5e8, 2e37, 3.4028e38, 1e-40, 0x1.8p126, 0x1.2p-75};
  }
}

class Collection {
 public:
  explicit Collection(DType dtype) : dtype_(dtype) {}

  /// Adds a sample of standard normals; `change` makes it special.
  template <class Change>
  void add(const std::string& name, const std::string& shape, const std::string& options, Change&& change) {
    Sample sample = normal_sample(fmt::format("{} {} {}", shape, fresnel::name(dtype_), options), all_.size() + 1);
    change(sample);
    all_.push_back({fmt::format("{} ({})", name, fresnel::name(dtype_)), std::move(sample)});
  }
  void add(const std::string& name, const std::string& shape, const std::string& options) {
    add(name, shape, options, [](Sample&) {});
  }
  [[nodiscard]] std::vector<NamedSample> take() { return std::move(all_); }

 private:
  DType dtype_;
  std::vector<NamedSample> all_;
};

void multiply(HostTensor& tensor, double factor) {
  tensor.fill([&](const Index& at) { return factor * tensor.get(at); });
}

void fill(HostTensor& tensor, double value) {
  tensor.fill([&](const Index&) { return value; });
}

void add_scores(Collection& all, DType dtype, const Extremes& extremes) {
  const auto huge = [&](Sample& sample) {
    multiply(sample.q, extremes.huge_factor / 4);
    multiply(sample.k, extremes.huge_factor / 4);
  };
  all.add("scores of 1e17", "b1 h1 q6 k70 d64/16", "", huge);
  all.add("scores of 1e17, tight cap", "b1 h1 q6 k70 d64/16", "cap0.5", huge);
  all.add("scores of 1e17 that nearly cancel", "b1 h1 q6 k70 d64/16", "", [&](Sample& sample) {
    sample.q.fill([&](const Index& at) { return (at[3] % 2 ? -1 : 1) * extremes.huge_factor / 4; });
    sample.k.fill([&](const Index& at) { return extremes.huge_factor / 4 + (at[3] == at[2] % 64 ? 1 : 0); });
  });
  all.add("one key of huge and cancelling products", "b1 h1 q6 k70 d64/16", "", [&](Sample& sample) {
    for (std::int64_t d = 0; d < 64; ++d) {
      for (std::int64_t i = 0; i < 6; ++i) sample.q.set({0, 0, i, d}, 1 + (i == d % 6 ? 0.5 : 0));
      sample.k.set({0, 0, 33, d}, (d % 2 ? -1 : 1) * 3e4);
    }
  });
  if (dtype != DType::f16) {
    all.add("products of half a least subnormal under a huge scale", "b1 h1 q6 k70 d64/16",
            fmt::format("scale{}", extremes.underflow_scale), [&](Sample& sample) {
              multiply(sample.q, extremes.underflow_factor);
              multiply(sample.k, extremes.underflow_factor);
            });
    all.add("subnormal queries under large keys", "b1 h1 q6 k70 d64/16", "scale1000000000", [&](Sample& sample) {
      multiply(sample.q, 3 * extremes.tiny);
      multiply(sample.k, 1e-10 / extremes.tiny);
    });
    all.add("such products, all of one sign", "b1 h1 q6 k70 d64/16", fmt::format("scale{}", extremes.underflow_scale),
            [&](Sample& sample) {
              sample.q.fill(
                  [&](const Index& at) { return (1 + 0.01 * static_cast<double>(at[2])) * extremes.underflow_factor; });
              sample.k.fill([&](const Index& at) {
                return (0.5 + 0.01 * static_cast<double>(at[2])) * extremes.underflow_factor;
              });
            });
  }
  all.add("scores of 1000 from one product", "b1 h1 q300 k1 d1", "scale0.3", [](Sample& sample) {
    multiply(sample.q, 60);
    multiply(sample.k, 60);
  });
  all.add("all scores near -1e5", "b1 h1 q6 k70 d64/16", "", [&](Sample& sample) {
    for (std::int64_t i = 0; i < 6; ++i) sample.q.set({0, 0, i, 0}, -1000);
    for (std::int64_t j = 0; j < 70; ++j) sample.k.set({0, 0, j, 0}, 800);
  });
  all.add("rising scores: every tile raises the maximum", "b1 h1 q3 k200 d4", "", [](Sample& sample) {
    fill(sample.q, 1);
    sample.k.fill([](const Index& at) { return 0.05 * static_cast<double>(at[2]); });
  });
}

void add_options(Collection& all) {
  for (const char* cap : {"cap1000", "cap1000000", "cap1"})
    all.add(fmt::format("softcap {}", cap), "b1 h1 q6 k70 d64/16", cap, [](Sample& sample) {
      multiply(sample.q, 200);
      multiply(sample.k, 200);
    });
  all.add("tight cap, scores of 1e4", "b1 h1 q6 k70 d64/16", "cap0.01", [](Sample& sample) {
    multiply(sample.q, 30);
    multiply(sample.k, 30);
  });
  all.add("softcap of 2^100", "b1 h1 q6 k70 d64/16", fmt::format("cap{}", 0x1p100));
  for (const double slope : {500.0, -500.0}) {
    const auto steep = [&](Sample& sample) { fill(*sample.slopes, slope); };
    all.add("biases of 1e5, relative", "b1 h1 q6 k200 d16", "alibi", steep);
    all.add("biases of 1e5, distance", "b1 h1 q6 k200 d16", "alibi:distance", steep);
    all.add("biases of 1e5, capped", "b1 h1 q6 k200 d16", "cap5 alibi:batch", steep);
  }
  all.add("zero scale", "b1 h1 q4 k70 d16", "scale0");
  all.add("negative scale", "b1 h1 q4 k70 d16", "scale-3");
}

void make_equal(Sample& sample, double value) {
  fill(sample.q, 1);
  fill(sample.k, 1);
  sample.v.fill([&](const Index& at) { return at[3] % 2 ? value : -value; });
}

void add_values(Collection& all, DType dtype, const Extremes& extremes) {
  all.add("8 equal scores, v near the overflow of a sum", "b1 h1 q2 k8 d8", "",
          [&](Sample& sample) { make_equal(sample, extremes.eighth_of_range); });
  all.add("values near the subnormals", "b1 h1 q4 k70 d16", "",
          [&](Sample& sample) { multiply(sample.v, extremes.tiny); });
  all.add("everything near the subnormals", "b1 h1 q4 k70 d16", "", [&](Sample& sample) {
    for (HostTensor* tensor : {&sample.q, &sample.k, &sample.v}) multiply(*tensor, extremes.tiny);
  });
  all.add("one-hot rows beside huge values", "b1 h1 q4 k70 d16", "", [&](Sample& sample) {
    for (std::int64_t j = 0; j < 70; ++j)
      for (std::int64_t d = 0; d < 16; ++d) {
        sample.k.set({0, 0, j, d}, j == 5 ? 40 : 0);
        if (j != 5) sample.v.set({0, 0, j, d}, dtype == DType::f16 ? 6e4 : 1e6);
      }
    fill(sample.q, 1);
  });
  all.add("constant values", "b1 h1 q4 k70 d16", "", [](Sample& sample) { fill(sample.v, 1.7); });
  all.add("weights that underflow beside large values", "b1 h1 q4 k70 d16", "scale1", [&](Sample& sample) {
    fill(sample.q, 1);
    sample.k.fill([](const Index& at) { return at[3] == 0 ? -static_cast<double>(at[2]) * 2.5 : 0; });
    sample.v.fill([&](const Index& at) { return at[2] == 0 ? 0.0 : 3e4; });
  });
  all.add("weights among float16's subnormals", "b1 h1 q2 k70 d4", "scale1", [](Sample& sample) {
    fill(sample.q, 1);
    sample.k.fill([](const Index& at) { return at[3] == 0 && at[2] > 0 ? -14 : 0; });
    sample.v.fill([](const Index& at) { return at[2] == 0 ? 0 : 1; });
  });
  if (dtype != DType::f16)
    all.add("weights below the normal range beside huge values", "b1 h1 q2 k70 d4", "scale1", [&](Sample& sample) {
      const bool wide = dtype == DType::f64;
      fill(sample.q, 1);
      sample.k.fill([&](const Index& at) { return at[3] == 0 && at[2] > 0 ? (wide ? -715 : -90) : 0; });
      sample.v.fill([&](const Index& at) { return at[2] == 0 ? 0 : (wide ? 1e305 : 1e36); });
    });
  all.add("one key", "b1 h1 q4 k1 d16", "");
  all.add("one dimension", "b1 h1 q4 k70 d1", "");
}

}  // namespace

std::vector<NamedSample> random_samples(DType dtype) {
  Collection all(dtype);
  all.add("plain", "b2 h2 q17 k130 d64", "");
  all.add("causal", "b1 h4/2 q70 k70 d64/32", "causal");
  all.add("more queries than keys", "b1 h1 q20 k7 d40/3", "causal");
  all.add("top left", "b1 h2 q9 k100 d80", "causal topleft");
  all.add("windows", "b1 h2 q40 k90 d16", "w16,4");
  all.add("a window that leaves rows empty", "b1 h1 q30 k8 d16", "topleft w2,2");
  all.add("softcap", "b1 h2 q9 k100 d64", "cap5");
  all.add("alibi", "b2 h3 q9 k100 d32", "causal alibi");
  all.add("alibi per batch, distance", "b2 h3 q9 k100 d32", "alibi:distance:batch");
  all.add("everything", "b3 h6/3 q33 k130 d48/24", "causal w50,- cap8 scale0.3 alibi lens");
  all.add("wide", "b1 h1 q3 k65 d576/512", "");
  return all.take();
}

std::vector<NamedSample> adversarial_samples(DType dtype) {
  Collection all(dtype);
  const Extremes extremes = extremes_of(dtype);
  add_scores(all, dtype, extremes);
  add_options(all);
  add_values(all, dtype, extremes);
  return all.take();
}

std::vector<NamedSample> overflowing_samples(DType dtype) {
  Collection all(dtype);
  const Extremes extremes = extremes_of(dtype);
  all.add("8 equal scores, the largest finite v", "b1 h1 q2 k8 d8", "",
          [&](Sample& sample) { make_equal(sample, extremes.largest); });
  if (dtype != DType::f16)
    all.add("scores beyond the range", "b1 h1 q4 k70 d16", "scale1", [&](Sample& sample) {
      multiply(sample.q, std::sqrt(extremes.largest));
      multiply(sample.k, std::sqrt(extremes.largest));
    });
  return all.take();
}

std::vector<NamedSample> long_samples(DType dtype) {
  Collection all(dtype);
  all.add("131,072 keys", "b1 h1 q1 k131072 d4", "");
  all.add("131,072 equal scores and values", "b1 h1 q1 k131072 d1", "", [](Sample& sample) {
    fill(sample.k, 0);
    fill(sample.v, 1.1);
  });
  all.add("131,072 keys with rising scores", "b1 h1 q1 k131072 d1", "", [](Sample& sample) {
    fill(sample.q, 1);
    sample.k.fill([](const Index& at) { return static_cast<double>(at[2]) * 1e-4; });
  });
  return all.take();
}

}  // namespace fresnel::test
