/* SPDX-License-Identifier: Apache-2.0
   fresnel for C99 and whatever speaks it: exact attention in tiles. docs/c_api.md has a complete program. Functions
   that can fail return a fresnel_status; fresnel_last_error() then says what was wrong. No exception leaves them, and
   every null pointer that is not said to be allowed is refused. Structs start with their size (c_types.h). */
#ifndef FRESNEL_FRESNEL_H
#define FRESNEL_FRESNEL_H

#include "fresnel/c_types.h"

/* NOLINTBEGIN(modernize-*,readability-identifier-naming): this is C, whose names have no namespace */
#ifdef __cplusplus
#define FRESNEL_NOEXCEPT noexcept
extern "C" {
#else
#define FRESNEL_NOEXCEPT
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/** "0.1.0": of the library that is running. */
const char* fresnel_version(void) FRESNEL_NOEXCEPT;

/** A status as a word, e.g. "bad input". */
const char* fresnel_status_name(fresnel_status status) FRESNEL_NOEXCEPT;

/** Why the last call of this thread that failed did: one sentence. Empty before any did; stands until the next. */
const char* fresnel_last_error(void) FRESNEL_NOEXCEPT;
/** Its parts: the argument that is wrong, ... */
const char* fresnel_error_argument(void) FRESNEL_NOEXCEPT;
/** ... what was given, ... */
const char* fresnel_error_given(void) FRESNEL_NOEXCEPT;
/** ... what is accepted, ... */
const char* fresnel_error_accepted(void) FRESNEL_NOEXCEPT;
/** ... the nearest accepted value, empty where there is none, ... */
const char* fresnel_error_nearest(void) FRESNEL_NOEXCEPT;
/** ... and the kernel that refuses, empty where the argument is wrong for all. */
const char* fresnel_error_kernel(void) FRESNEL_NOEXCEPT;

/** What is to be computed, without pointers. Immutable; may be shared between threads. */
typedef struct fresnel_problem fresnel_problem;

/** Reads a line such as "b2 h8/2 q128 k1024 d64 bf16 causal". Destroy what it makes. */
fresnel_status fresnel_problem_parse(const char* line, fresnel_problem** problem) FRESNEL_NOEXCEPT;
/** Reads shapes, strides and addresses of the views, never data. `options` may be null. Destroy what it makes. */
fresnel_status fresnel_problem_describe(const fresnel_options* options, const fresnel_inputs* inputs,
                                        const fresnel_outputs* outputs, fresnel_problem** problem) FRESNEL_NOEXCEPT;
/** Writes the problem as its line. `needed`, which may be null, becomes the bytes of text and its 0; a `text` of fewer
    is refused and stays as it was, but null with `capacity` 0 only asks. */
fresnel_status fresnel_problem_print(const fresnel_problem* problem, char* text, size_t capacity,
                                     size_t* needed) FRESNEL_NOEXCEPT;
/** Null is allowed. */
void fresnel_problem_destroy(fresnel_problem* problem) FRESNEL_NOEXCEPT;

/** This host; its `size` has to be set. */
fresnel_status fresnel_machine_detect(fresnel_machine* machine) FRESNEL_NOEXCEPT;

/** A kernel that fits a problem on a machine. Immutable; may be shared between threads. */
typedef struct fresnel_plan fresnel_plan;

/** Plans. A problem with `grad` is served by a backward kernel, the same without it by a forward one. `options` may be
    null. Destroy what it makes; the problem may go first. */
fresnel_status fresnel_plan_create(const fresnel_problem* problem, const fresnel_plan_options* options,
                                   fresnel_plan** plan) FRESNEL_NOEXCEPT;
/** Says of each kernel that it is chosen or why not, one line each; text as in fresnel_problem_print. */
fresnel_status fresnel_explain(const fresnel_problem* problem, const fresnel_plan_options* options, char* text,
                               size_t capacity, size_t* needed) FRESNEL_NOEXCEPT;
/** Name of the kernel, as long as the plan lives; empty for null. */
const char* fresnel_plan_kernel(const fresnel_plan* plan) FRESNEL_NOEXCEPT;
/** Bytes that fresnel_run wants, at a multiple of 64; 0 for null. */
size_t fresnel_plan_workspace_bytes(const fresnel_plan* plan) FRESNEL_NOEXCEPT;
/** Tasks that fresnel_run starts at most; 0 for null. */
int fresnel_plan_lanes(const fresnel_plan* plan) FRESNEL_NOEXCEPT;
/** The plan as one line for people; text as in fresnel_problem_print. */
fresnel_status fresnel_plan_print(const fresnel_plan* plan, char* text, size_t capacity,
                                  size_t* needed) FRESNEL_NOEXCEPT;
/** Null is allowed. */
void fresnel_plan_destroy(fresnel_plan* plan) FRESNEL_NOEXCEPT;

/** Refuses lengths and slopes out of range: fresnel_run does not look at them, fresnel_attend does. */
fresnel_status fresnel_check_indices(const fresnel_problem* problem, const fresnel_inputs* inputs) FRESNEL_NOEXCEPT;

/** Computes as planned. Nothing is allocated on the way; same bits for any executor (null: the pool). A backward plan
    reads the o and lse that a forward plan wrote. */
fresnel_status fresnel_run(const fresnel_plan* plan, const fresnel_inputs* inputs, const fresnel_outputs* outputs,
                           void* workspace, size_t workspace_bytes, const fresnel_executor* executor) FRESNEL_NOEXCEPT;

/** All steps at once on this host, the backward with them where `dout` is given. `options`, `context` and `report` may
    be null. */
fresnel_status fresnel_attend(const fresnel_options* options, const fresnel_inputs* inputs,
                              const fresnel_outputs* outputs, const fresnel_context* context,
                              fresnel_report* report) FRESNEL_NOEXCEPT;

/** Merges `count` partial results of disjoint keys, o[i] [B, Hq, Sq, Dv] and lse[i] [B, Hq, Sq], all f32 or all f64, in
    ascending order of their keys. Merging the identity (0, -inf) changes no bit. `executor` may be null. */
fresnel_status fresnel_merge(size_t count, const fresnel_view* const* o, const fresnel_view* const* lse,
                             const fresnel_mutable_view* merged_o, const fresnel_mutable_view* merged_lse,
                             const fresnel_executor* executor) FRESNEL_NOEXCEPT;

/** Judges anybody's result by a wider truth and a proven budget. `made_by`, the plan that made it, says what was
    rounded; null: as common libraries round. A result that is wrong is no error: see `verdict->ok`. `options` and
    `executor` may be null. */
fresnel_status fresnel_check(const fresnel_options* options, const fresnel_inputs* inputs,
                             const fresnel_outputs* result, const fresnel_plan* made_by,
                             const fresnel_executor* executor, fresnel_verdict* verdict) FRESNEL_NOEXCEPT;

/** Rows in the table of kernels. */
size_t fresnel_kernel_count(void) FRESNEL_NOEXCEPT;
/** Row `index`, in order of preference; `size` has to be set. */
fresnel_status fresnel_kernel_describe(size_t index, fresnel_kernel_info* kernel) FRESNEL_NOEXCEPT;
/** Writes the contract of the kernel of that name as one JSON object (docs/kernels.md is the same for people); text as
    in fresnel_problem_print. */
fresnel_status fresnel_kernel_contract(const char* name, char* text, size_t capacity, size_t* needed) FRESNEL_NOEXCEPT;

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

/** A contiguous input of `rank` axes; more than four show in `rank` and are refused. */
static inline fresnel_view fresnel_view_of(const void* data, int dtype, int rank, const int64_t* sizes) {
  fresnel_view view = {sizeof(fresnel_view), data, dtype, rank, FRESNEL_CPU, {0, 0, 0, 0}, {0, 0, 0, 0}};
  uint64_t stride = 1; /* wraps where the sizes are refused anyway */
  int axis;
  for (axis = rank <= 4 ? rank - 1 : -1; axis >= 0; --axis) {
    view.sizes[axis] = sizes[axis];
    view.strides[axis] = (int64_t)stride;
    stride *= sizes[axis] > 0 ? (uint64_t)sizes[axis] : 1;
  }
  return view;
}

/** A contiguous output. */
static inline fresnel_mutable_view fresnel_mutable_view_of(void* data, int dtype, int rank, const int64_t* sizes) {
  const fresnel_view shape = fresnel_view_of(NULL, dtype, rank, sizes);
  fresnel_mutable_view view = {
      sizeof(fresnel_mutable_view), data, dtype, rank, FRESNEL_CPU, {0, 0, 0, 0}, {0, 0, 0, 0}};
  int axis;
  for (axis = 0; axis < 4; ++axis) {
    view.sizes[axis] = shape.sizes[axis];
    view.strides[axis] = shape.strides[axis];
  }
  return view;
}

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-*,readability-identifier-naming) */

#endif
