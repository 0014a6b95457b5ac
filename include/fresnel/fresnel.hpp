// SPDX-License-Identifier: Apache-2.0
//
//     std::vector<float> q(2 * 8 * 128 * 64), k(2 * 2 * 1024 * 64), v(2 * 2 * 1024 * 64), o(q.size());
//     ... fill q, k, v ...
//     fresnel::Options options;
//     options.causal = true;
//     auto report = fresnel::attend(options,
//                                   {.q = {q.data(), fresnel::DType::f32, {2, 8, 128, 64}},     // [B, Hq, Sq, D]
//                                    .k = {k.data(), fresnel::DType::f32, {2, 2, 1024, 64}},    // [B, Hkv, Sk, D]
//                                    .v = {v.data(), fresnel::DType::f32, {2, 2, 1024, 64}}},   // [B, Hkv, Sk, Dv]
//                                   {.o = {o.data(), fresnel::DType::f32, {2, 8, 128, 64}}});   // [B, Hq, Sq, Dv]
//     if (!report) std::cerr << report.refusal().message() << '\n';
//     else std::cout << report->kernel << '\n';                                                 // cpu.flash
//
// The door of fresnel: exact attention, o_i = sum_j softmax_j(score_ij) v_j, computed in tiles without ever holding the
// score matrix. docs/semantics.md says what the options mean, docs/numerics.md how right the result is.
#pragma once

#include "fresnel/check.hpp"     // the judge: error budgets for anybody's result
#include "fresnel/contract.hpp"  // what each kernel promises
#include "fresnel/executor.hpp"  // threads, yours or ours
#include "fresnel/machine.hpp"   // what a plan is made for
#include "fresnel/merge.hpp"     // partial results of disjoint keys
#include "fresnel/plan.hpp"      // describe, validate, plan, run, attend
#include "fresnel/problem.hpp"   // what is computed
#include "fresnel/result.hpp"    // values or reasons
#include "fresnel/view.hpp"      // where the data lies
