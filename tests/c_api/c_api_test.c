/* SPDX-License-Identifier: Apache-2.0
   Calls every function of the C interface from C99. Answers are computed by hand, errors are compared by status and by
   text. Prints what fails and exits with the number of failures; knows nothing but the public header. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fresnel/fresnel.h"

static int failures = 0;

static void expect_at(int line, int holds, const char* what) {
  if (holds) return;
  ++failures;
  printf("line %d: %s; last error: %s\n", line, what, fresnel_last_error());
}
#define EXPECT(condition) expect_at(__LINE__, (condition) ? 1 : 0, #condition)

/* A failure with its status, the argument it names, and a part of its sentence. */
static void expect_failure_at(int line, fresnel_status got, fresnel_status status, const char* argument,
                              const char* part) {
  if (got == status && strcmp(fresnel_error_argument(), argument) == 0 && strstr(fresnel_last_error(), part)) return;
  ++failures;
  printf("line %d: status %s, argument '%s', message '%s'\n", line, fresnel_status_name(got), fresnel_error_argument(),
         fresnel_last_error());
}
#define EXPECT_FAILURE(call, status, argument, part) expect_failure_at(__LINE__, (call), (status), (argument), (part))

/* One query of score 0 and ln 3 against two keys: weights 1/4 and 3/4, o = (1 + 3 * 5) / 4 = 4, lse = ln 4. A second
   head with equal scores: o = 3, lse = ln 2. */
typedef struct {
  double q[2], k[4], v[4], o[2], lse[2];
  fresnel_view q_view, k_view, v_view;
  fresnel_mutable_view o_view, lse_view;
  fresnel_options options;
  fresnel_inputs inputs;
  fresnel_outputs outputs;
} sample;

static void make_sample(sample* s) {
  static const double q[2] = {1, 0}, v[4] = {1, 5, 1, 5};
  const int64_t q_sizes[4] = {1, 2, 1, 1}, k_sizes[4] = {1, 2, 2, 1}, lse_sizes[3] = {1, 2, 1};
  memset(s, 0, sizeof *s);
  memcpy(s->q, q, sizeof q);
  memcpy(s->v, v, sizeof v);
  s->k[1] = log(3.0);
  s->k[2] = 7;
  s->o[0] = s->o[1] = s->lse[0] = s->lse[1] = NAN;
  s->q_view = fresnel_view_of(s->q, FRESNEL_F64, 4, q_sizes);
  s->k_view = fresnel_view_of(s->k, FRESNEL_F64, 4, k_sizes);
  s->v_view = fresnel_view_of(s->v, FRESNEL_F64, 4, k_sizes);
  s->o_view = fresnel_mutable_view_of(s->o, FRESNEL_F64, 4, q_sizes);
  s->lse_view = fresnel_mutable_view_of(s->lse, FRESNEL_F64, 3, lse_sizes);
  s->options.size = sizeof s->options;
  s->inputs.size = sizeof s->inputs;
  s->inputs.q = &s->q_view;
  s->inputs.k = &s->k_view;
  s->inputs.v = &s->v_view;
  s->outputs.size = sizeof s->outputs;
  s->outputs.o = &s->o_view;
  s->outputs.lse = &s->lse_view;
}

static int is_right(const sample* s) {
  return fabs(s->o[0] - 4) < 1e-14 && fabs(s->o[1] - 3) < 1e-14 && fabs(s->lse[0] - log(4.0)) < 1e-14 &&
         fabs(s->lse[1] - log(2.0)) < 1e-14;
}

static void test_views(void) {
  const int64_t sizes[5] = {2, 3, 4, 5, 6};
  const fresnel_view view = fresnel_view_of(sizes, FRESNEL_F16, 4, sizes);
  EXPECT(view.size == sizeof(fresnel_view) && view.rank == 4 && view.dtype == FRESNEL_F16);
  EXPECT(view.strides[0] == 60 && view.strides[1] == 20 && view.strides[2] == 5 && view.strides[3] == 1);
  EXPECT(fresnel_view_of(sizes, FRESNEL_F16, 5, sizes).rank == 5);
}

static void test_attend(void) {
  sample s;
  fresnel_report report = {.size = sizeof report};
  make_sample(&s);
  EXPECT(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
  EXPECT(is_right(&s));
  make_sample(&s);
  EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, &report) == FRESNEL_OK);
  EXPECT(is_right(&s));
  EXPECT(strcmp(report.kernel, "cpu.flash") == 0 && report.backward_kernel[0] == 0 && report.lanes >= 1);
  EXPECT(report.operations > 0 && report.bytes > 0 && report.bytes_unfused > report.bytes);
}

/* Each option has to act: a field that is read from the wrong place would not. */
static void test_options(void) {
  sample s;
  make_sample(&s);
  s.options.has_softmax_scale = 1; /* scale 0: equal weights */
  EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
  EXPECT(fabs(s.o[0] - 3) < 1e-14);
  make_sample(&s);
  s.options.causal = 1; /* the one query stands at the last key and sees both ... */
  EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
  EXPECT(is_right(&s));
  s.options.alignment = FRESNEL_TOP_LEFT; /* ... or at the first and sees one */
  EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
  EXPECT(s.o[0] == 1 && s.o[1] == 1);
  make_sample(&s);
  s.options.has_window_size_left = 1; /* 0 keys before the last */
  EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
  EXPECT(s.o[0] == 5 && s.o[1] == 5);
  make_sample(&s);
  s.options.alignment = FRESNEL_TOP_LEFT;
  s.options.has_window_size_right = 1; /* 0 keys after the first */
  EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
  EXPECT(s.o[0] == 1 && s.o[1] == 1);
  make_sample(&s);
  s.options.has_softcap = 1;
  s.options.softcap = 0.5; /* 0.5 tanh(2 ln 3) = 0.5 * (81 - 1) / (81 + 1) */
  EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
  EXPECT(fabs(s.lse[0] - log(1 + exp(0.5 * 80 / 82))) < 1e-14);
  {
    const float slopes[2] = {1, 2};
    const int64_t slopes_sizes[1] = {2};
    const fresnel_view slopes_view = fresnel_view_of(slopes, FRESNEL_F32, 1, slopes_sizes);
    make_sample(&s);
    s.options.alignment = FRESNEL_TOP_LEFT; /* key 1 stands one after the query: +2 or -2 on head 1 */
    s.inputs.alibi_slopes = &slopes_view;
    EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
    EXPECT(fabs(s.lse[1] - log(1 + exp(2.0))) < 1e-14);
    s.options.alibi = FRESNEL_DISTANCE;
    EXPECT(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
    EXPECT(fabs(s.lse[1] - log(1 + exp(-2.0))) < 1e-14);
  }
}

/* ... and none may be read from another's place. */
static void test_options_as_text(void) {
  sample s;
  char text[128] = "";
  fresnel_problem* problem = NULL;
  make_sample(&s);
  s.options.causal = 1;
  s.options.alignment = FRESNEL_TOP_LEFT;
  s.options.has_window_size_left = s.options.has_window_size_right = 1;
  s.options.window_size_left = 3;
  s.options.window_size_right = 5;
  s.options.has_softcap = s.options.has_softmax_scale = 1;
  s.options.softcap = 0.5;
  s.options.softmax_scale = 0.25;
  EXPECT(fresnel_problem_describe(&s.options, &s.inputs, &s.outputs, &problem) == FRESNEL_OK);
  EXPECT(fresnel_problem_print(problem, text, sizeof text, NULL) == FRESNEL_OK);
  EXPECT(strstr(text, "b1 h2 q1 k2 d1 f64 causal topleft w3,5 cap0.5 scale0.25") == text); /* alignment may follow */
  fresnel_problem_destroy(problem);
}

/* Two keys of equal score: p = 1/2 each, dv = p dout, dq = sum p (dp - D) k. */
static void test_gradients(void) {
  sample s;
  double dout[2] = {1, 1}, dq[2], dv[4];
  fresnel_view dout_view;
  fresnel_mutable_view dq_view, dv_view;
  fresnel_report report = {.size = sizeof report};
  make_sample(&s);
  dout_view = fresnel_view_of(dout, FRESNEL_F64, 4, s.q_view.sizes);
  dq_view = fresnel_mutable_view_of(dq, FRESNEL_F64, 4, s.q_view.sizes);
  dv_view = fresnel_mutable_view_of(dv, FRESNEL_F64, 4, s.v_view.sizes);
  s.inputs.dout = &dout_view;
  s.outputs.dq = &dq_view;
  s.outputs.dv = &dv_view;
  EXPECT(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, &report) == FRESNEL_OK);
  EXPECT(is_right(&s) && report.backward_kernel[0] != 0);
  EXPECT(fabs(dv[0] - 0.25) < 1e-14 && fabs(dv[1] - 0.75) < 1e-14 && fabs(dv[2] - 0.5) < 1e-14);
  EXPECT(fabs(dq[1] - 0.5 * (1 - 3) * 7) < 1e-13); /* head 1: D = 3, keys 7 and 0 */
}

typedef struct {
  int calls, tasks, leave_out;
} counts;

static void one_after_another(void* user, int tasks, fresnel_task task, void* context) {
  counts* seen = user;
  int i;
  seen->calls += 1;
  seen->tasks += tasks;
  for (i = tasks - 1; i >= seen->leave_out; --i) task(context, i);
}

static void stray(void* user, int tasks, fresnel_task task, void* context) {
  (void)user;
  task(context, tasks);
}

static void test_plan_and_run(void) {
  sample s;
  char text[256] = "", small[4] = "abc", lines[2000];
  size_t needed = 0;
  fresnel_problem *problem = NULL, *described = NULL;
  fresnel_plan* plan = NULL;
  fresnel_plan_options options = {.size = sizeof options};
  counts seen = {0, 0, 0};
  fresnel_executor executor = {sizeof executor, 3, one_after_another, &seen};
  unsigned char* memory;
  void* workspace;

  make_sample(&s);
  EXPECT(fresnel_problem_parse("b1 h2 q1 k2 d1 f64", &problem) == FRESNEL_OK);
  EXPECT(fresnel_problem_describe(&s.options, &s.inputs, &s.outputs, &described) == FRESNEL_OK);
  EXPECT(fresnel_problem_print(problem, NULL, 0, &needed) == FRESNEL_OK && needed == sizeof "b1 h2 q1 k2 d1 f64");
  EXPECT(fresnel_problem_print(problem, text, needed, NULL) == FRESNEL_OK && !strcmp(text, "b1 h2 q1 k2 d1 f64"));
  EXPECT_FAILURE(fresnel_problem_print(problem, small, sizeof small, NULL), FRESNEL_BAD_INPUT, "capacity", "19 bytes");
  EXPECT(strcmp(small, "abc") == 0);
  EXPECT(fresnel_check_indices(problem, &s.inputs) == FRESNEL_OK);

  EXPECT(fresnel_plan_create(problem, NULL, &plan) == FRESNEL_OK);
  EXPECT(strcmp(fresnel_plan_kernel(plan), "cpu.flash") == 0);
  EXPECT(fresnel_explain(problem, NULL, NULL, 0, &needed) == FRESNEL_OK && needed > 1 && needed < sizeof lines);
  EXPECT(fresnel_explain(problem, NULL, lines, needed, NULL) == FRESNEL_OK && strlen(lines) + 1 == needed);
  EXPECT(strstr(lines, "cpu.flash: chosen\n") && strstr(lines, "cpu.naive: preference: given"));
  fresnel_plan_destroy(plan);
  options.kernel = "cpu.naive";
  options.lanes = 2;
  EXPECT(fresnel_plan_create(described, &options, &plan) == FRESNEL_OK);
  fresnel_problem_destroy(problem);
  fresnel_problem_destroy(described);
  EXPECT(strcmp(fresnel_plan_kernel(plan), "cpu.naive") == 0 && fresnel_plan_lanes(plan) == 2);
  EXPECT(fresnel_plan_print(plan, text, sizeof text, NULL) == FRESNEL_OK && strstr(text, "cpu.naive"));

  needed = fresnel_plan_workspace_bytes(plan);
  EXPECT(needed > 0 && needed % 64 == 0);
  memory = malloc(needed + 128);
  if (memory == NULL) exit(99);
  workspace = memory + (64 - (uintptr_t)memory % 64);
  EXPECT(fresnel_run(plan, &s.inputs, &s.outputs, workspace, needed, NULL) == FRESNEL_OK && is_right(&s));
  make_sample(&s);
  EXPECT(fresnel_run(plan, &s.inputs, &s.outputs, workspace, needed, &executor) == FRESNEL_OK && is_right(&s));
  EXPECT(seen.calls == 1 && seen.tasks == 2);

  EXPECT_FAILURE(fresnel_run(plan, &s.inputs, &s.outputs, workspace, needed - 1, NULL), FRESNEL_BAD_INPUT, "workspace",
                 "at least");
  EXPECT_FAILURE(fresnel_run(plan, &s.inputs, &s.outputs, (char*)workspace + 8, needed, NULL), FRESNEL_BAD_INPUT,
                 "workspace", "64-byte");
  EXPECT_FAILURE(fresnel_run(plan, &s.inputs, &s.outputs, NULL, needed, NULL), FRESNEL_BAD_INPUT, "workspace", "null");
  EXPECT_FAILURE(fresnel_run(NULL, &s.inputs, &s.outputs, workspace, needed, NULL), FRESNEL_BAD_INPUT, "plan", "null");
  seen.leave_out = 1;
  EXPECT_FAILURE(fresnel_run(plan, &s.inputs, &s.outputs, workspace, needed, &executor), FRESNEL_BAD_INPUT,
                 "executor.run", "1 calls for 2 tasks");
  executor.run = stray;
  EXPECT_FAILURE(fresnel_run(plan, &s.inputs, &s.outputs, workspace, needed, &executor), FRESNEL_BAD_INPUT,
                 "executor.run", "0 calls and others for 2 tasks");
  executor.run = NULL;
  EXPECT_FAILURE(fresnel_run(plan, &s.inputs, &s.outputs, workspace, needed, &executor), FRESNEL_BAD_INPUT,
                 "executor.run", "null");
  executor.run = one_after_another;
  executor.width = 0;
  EXPECT_FAILURE(fresnel_run(plan, &s.inputs, &s.outputs, workspace, needed, &executor), FRESNEL_BAD_INPUT,
                 "executor.width", "at least 1");
  free(memory);
  fresnel_plan_destroy(plan);
}

static void test_context(void) {
  sample s;
  counts seen = {0, 0, 0};
  fresnel_executor executor = {sizeof executor, 2, one_after_another, &seen};
  fresnel_context context = {.size = sizeof context};
  fresnel_report report = {.size = sizeof report};
  make_sample(&s);
  context.executor = &executor;
  context.kernel = "cpu.naive";
  context.lanes = 1;
  EXPECT(fresnel_attend(NULL, &s.inputs, &s.outputs, &context, &report) == FRESNEL_OK && is_right(&s));
  EXPECT(seen.calls == 1 && seen.tasks == 1 && !strcmp(report.kernel, "cpu.naive") && report.lanes == 1);
  context.workspace = &s;
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, &s.outputs, &context, NULL), FRESNEL_BAD_INPUT, "workspace_bytes",
                 "given 0");
  context.workspace = NULL;
  context.kernel = "cpu.nothing";
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, &s.outputs, &context, NULL), FRESNEL_BAD_INPUT, "kernel",
                 "'cpu.nothing'");
}

static void test_merge(void) {
  /* Keys of lse ln 1 and ln 3 with o 1 and 5: o = 4, lse = ln 4, as above. The identity around them changes no bit. */
  const double one[1] = {1}, five[1] = {5}, zero[1] = {0}, lse_one[1] = {0};
  const double lse_three[1] = {1.0986122886681098}, nothing[1] = {-INFINITY};
  const int64_t o_sizes[4] = {1, 1, 1, 1};
  double merged[1] = {NAN}, merged_lse[1] = {NAN}, again[1], again_lse[1];
  fresnel_view o[4], lse[4];
  const fresnel_view *o_list[4], *lse_list[4];
  const fresnel_mutable_view to = fresnel_mutable_view_of(merged, FRESNEL_F64, 4, o_sizes);
  const fresnel_mutable_view to_lse = fresnel_mutable_view_of(merged_lse, FRESNEL_F64, 3, o_sizes);
  const fresnel_mutable_view to_again = fresnel_mutable_view_of(again, FRESNEL_F64, 4, o_sizes);
  const fresnel_mutable_view to_again_lse = fresnel_mutable_view_of(again_lse, FRESNEL_F64, 3, o_sizes);
  counts seen = {0, 0, 0};
  const fresnel_executor executor = {sizeof executor, 2, one_after_another, &seen};
  int i;
  o[0] = fresnel_view_of(zero, FRESNEL_F64, 4, o_sizes);
  o[1] = fresnel_view_of(one, FRESNEL_F64, 4, o_sizes);
  o[2] = fresnel_view_of(five, FRESNEL_F64, 4, o_sizes);
  o[3] = o[0];
  lse[0] = fresnel_view_of(nothing, FRESNEL_F64, 3, o_sizes);
  lse[1] = fresnel_view_of(lse_one, FRESNEL_F64, 3, o_sizes);
  lse[2] = fresnel_view_of(lse_three, FRESNEL_F64, 3, o_sizes);
  lse[3] = lse[0];
  for (i = 0; i < 4; ++i) {
    o_list[i] = &o[i];
    lse_list[i] = &lse[i];
  }
  EXPECT(fresnel_merge(2, o_list + 1, lse_list + 1, &to, &to_lse, NULL) == FRESNEL_OK);
  EXPECT(fabs(merged[0] - 4) < 1e-14 && fabs(merged_lse[0] - log(4.0)) < 1e-14);
  EXPECT(fresnel_merge(4, o_list, lse_list, &to_again, &to_again_lse, &executor) == FRESNEL_OK && seen.calls == 1);
  EXPECT(again[0] == merged[0] && again_lse[0] == merged_lse[0]); /* neither 0 nor NaN: equal is same bits */
  EXPECT(fresnel_merge(0, NULL, NULL, &to, &to_lse, NULL) == FRESNEL_OK);
  EXPECT(merged[0] == 0 && merged_lse[0] == -INFINITY);
  EXPECT_FAILURE(fresnel_merge(1, NULL, lse_list, &to, &to_lse, NULL), FRESNEL_BAD_INPUT, "o", "null");
  EXPECT_FAILURE(fresnel_merge(1, o_list, NULL, &to, &to_lse, NULL), FRESNEL_BAD_INPUT, "lse", "null");
  EXPECT_FAILURE(fresnel_merge(1, o_list, lse_list, NULL, &to_lse, NULL), FRESNEL_BAD_INPUT, "merged_o", "null");
  o_list[1] = NULL;
  EXPECT_FAILURE(fresnel_merge(2, o_list, lse_list, &to, &to_lse, NULL), FRESNEL_BAD_INPUT, "o[1]", "null");
}

static void test_check(void) {
  sample s;
  fresnel_judgement o = {.size = sizeof o}, lse = {.size = sizeof lse}, dq = {.size = sizeof dq};
  fresnel_verdict verdict = {.size = sizeof verdict};
  fresnel_problem* problem = NULL;
  fresnel_plan* plan = NULL;
  make_sample(&s);
  verdict.o = &o;
  verdict.lse = &lse;
  verdict.dq = &dq;
  dq.judged = 9;
  EXPECT(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, NULL) == FRESNEL_OK);
  EXPECT(fresnel_check(NULL, &s.inputs, &s.outputs, NULL, NULL, &verdict) == FRESNEL_OK && verdict.ok == 1);
  EXPECT(o.judged == 1 && o.count == 2 && o.mismatches == 0 && lse.judged == 1 && lse.count == 2 && dq.judged == 0);
  EXPECT(fresnel_problem_describe(NULL, &s.inputs, &s.outputs, &problem) == FRESNEL_OK);
  EXPECT(fresnel_plan_create(problem, NULL, &plan) == FRESNEL_OK);
  s.o[1] += 1e-6;
  EXPECT(fresnel_check(NULL, &s.inputs, &s.outputs, plan, NULL, &verdict) == FRESNEL_OK && verdict.ok == 0);
  EXPECT(o.mismatches == 1 && lse.mismatches == 0 && o.max_share > 1 && fabs(o.max_error - 1e-6) < 1e-10);
  EXPECT(o.at[0] == 0 && o.at[1] == 1 && o.at[2] == 0 && o.at[3] == 0);
  verdict.o = NULL; /* not wanted, but judged */
  EXPECT(fresnel_check(NULL, &s.inputs, &s.outputs, NULL, NULL, &verdict) == FRESNEL_OK && verdict.ok == 0);
  EXPECT_FAILURE(fresnel_check(NULL, &s.inputs, &s.outputs, NULL, NULL, NULL), FRESNEL_BAD_INPUT, "verdict", "null");
  lse.size = 1;
  EXPECT_FAILURE(fresnel_check(NULL, &s.inputs, &s.outputs, NULL, NULL, &verdict), FRESNEL_BAD_INPUT,
                 "verdict.lse.size", "given 1");
  fresnel_plan_destroy(plan);
  fresnel_problem_destroy(problem);
}

static void test_kernels_and_machine(void) {
  fresnel_kernel_info kernel = {.size = sizeof kernel};
  fresnel_machine machine = {.size = sizeof machine};
  fresnel_plan_options options = {.size = sizeof options};
  fresnel_problem* problem = NULL;
  fresnel_plan* plan = NULL;
  size_t i, backward = 0, flash = 0, needed = 0;
  static char text[1 << 16];
  EXPECT(fresnel_kernel_count() >= 3);
  for (i = 0; i < fresnel_kernel_count(); ++i) {
    EXPECT(fresnel_kernel_describe(i, &kernel) == FRESNEL_OK);
    EXPECT(strchr(kernel.name, '.') != NULL && kernel.blurb[0] != 0);
    EXPECT(kernel.dtypes != 0 && kernel.head_dim[0] == 1 && kernel.head_dim[1] >= 64);
    backward += (size_t)kernel.backward;
    if (strcmp(kernel.name, "cpu.flash") == 0) flash = i;
  }
  EXPECT(backward > 0 && backward < i);
  EXPECT(fresnel_kernel_describe(flash, &kernel) == FRESNEL_OK && kernel.device == FRESNEL_CPU && kernel.built == 1);
  EXPECT(kernel.dtypes == (1u << FRESNEL_F64 | 1u << FRESNEL_F32 | 1u << FRESNEL_F16 | 1u << FRESNEL_BF16));
  EXPECT_FAILURE(fresnel_kernel_describe(i, &kernel), FRESNEL_BAD_INPUT, "index", "below");
  EXPECT_FAILURE(fresnel_kernel_describe(0, NULL), FRESNEL_BAD_INPUT, "kernel", "null");

  EXPECT(fresnel_kernel_contract("cpu.flash", NULL, 0, &needed) == FRESNEL_OK && needed > 1000 && needed < sizeof text);
  EXPECT(fresnel_kernel_contract("cpu.flash", text, sizeof text, NULL) == FRESNEL_OK && strlen(text) + 1 == needed);
  EXPECT(text[0] == '{' && strstr(text, "\"name\": \"cpu.flash\"") != NULL && strstr(text, "visible_pairs") != NULL);
  EXPECT_FAILURE(fresnel_kernel_contract("cpu.flash", text, 10, NULL), FRESNEL_BAD_INPUT, "capacity", "10");
  EXPECT_FAILURE(fresnel_kernel_contract("cpu.flush", text, sizeof text, NULL), FRESNEL_BAD_INPUT, "kernel",
                 "cpu.flush");
  EXPECT_FAILURE(fresnel_kernel_contract(NULL, text, sizeof text, NULL), FRESNEL_BAD_INPUT, "name", "null");

  EXPECT(fresnel_machine_detect(&machine) == FRESNEL_OK);
  EXPECT(machine.device == FRESNEL_CPU && machine.cores >= 1 && machine.threads >= 1 && machine.name[0] != 0);
  EXPECT(fresnel_problem_parse("b4 h8 q512 k512 d64 f32", &problem) == FRESNEL_OK);
  machine.threads = 5;
  machine.isa = FRESNEL_ISA_AVX3;
  machine.tile_unit = FRESNEL_TILE_UNIT_AMX_BF16; /* typed in, and no matter to float32 */
  options.machine = &machine;
  EXPECT(fresnel_plan_create(problem, &options, &plan) == FRESNEL_OK && fresnel_plan_lanes(plan) == 5);
  fresnel_plan_destroy(plan);
  machine.tile_unit = 3;
  EXPECT_FAILURE(fresnel_plan_create(problem, &options, &plan), FRESNEL_BAD_INPUT, "machine.tile_unit", "3");
  machine.isa = 77;
  EXPECT_FAILURE(fresnel_plan_create(problem, &options, &plan), FRESNEL_BAD_INPUT, "machine.isa", "77");
  EXPECT(plan == NULL);
  machine.size = 8;
  EXPECT_FAILURE(fresnel_machine_detect(&machine), FRESNEL_BAD_INPUT, "machine.size", "given 8");
  fresnel_problem_destroy(problem);
}

static void test_refusals(void) {
  sample s;
  fresnel_problem* problem = (fresnel_problem*)&s;
  fresnel_report report = {.size = sizeof report - 1};
  make_sample(&s);
  EXPECT_FAILURE(fresnel_problem_parse("b1 h8/3 q1 k1 d1 f32", &problem), FRESNEL_BAD_INPUT, "heads_kv", "divisor");
  EXPECT(problem == NULL && strcmp(fresnel_error_nearest(), "2") == 0);
  EXPECT(strstr(fresnel_error_given(), "3 for 8") && strstr(fresnel_error_accepted(), "divisor of heads_q"));
  EXPECT_FAILURE(fresnel_problem_parse(NULL, &problem), FRESNEL_BAD_INPUT, "line", "null");
  EXPECT_FAILURE(fresnel_problem_parse("b1", NULL), FRESNEL_BAD_INPUT, "problem", "null");
  EXPECT_FAILURE(fresnel_problem_print(NULL, NULL, 0, NULL), FRESNEL_BAD_INPUT, "problem", "null");
  EXPECT_FAILURE(fresnel_plan_print(NULL, NULL, 0, NULL), FRESNEL_BAD_INPUT, "plan", "null");
  EXPECT_FAILURE(fresnel_explain(NULL, NULL, NULL, 0, NULL), FRESNEL_BAD_INPUT, "problem", "null");
  EXPECT_FAILURE(fresnel_attend(NULL, NULL, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "inputs", "null");
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, NULL, NULL, NULL), FRESNEL_BAD_INPUT, "outputs", "null");
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, &report), FRESNEL_BAD_INPUT, "report.size",
                 "the size of the struct");
  s.inputs.k = NULL;
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "k", "null");
  make_sample(&s);
  s.k_view.size += 8;
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "k.size", "accepted: 96");
  make_sample(&s);
  s.options.size = 0;
  EXPECT_FAILURE(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "options.size",
                 "given 0");
  make_sample(&s);
  s.options.softcap = 30;
  EXPECT_FAILURE(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "softcap",
                 "has_softcap = 1");
  make_sample(&s);
  s.options.alignment = 256; /* 0 if it were cut to a byte */
  EXPECT_FAILURE(fresnel_attend(&s.options, &s.inputs, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "alignment", "256");
  make_sample(&s);
  s.q_view.dtype = -1;
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "q.dtype", "-1");
  make_sample(&s);
  s.q_view.rank = 5;
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "q", "rank 5");
  make_sample(&s);
  s.q_view.data = NULL;
  EXPECT_FAILURE(fresnel_attend(NULL, &s.inputs, &s.outputs, NULL, NULL), FRESNEL_BAD_INPUT, "q", "null pointer");
  EXPECT(fresnel_problem_parse("b1 h1 q1 k1 d10000 f32", &problem) == FRESNEL_OK);
  {
    fresnel_plan* plan = NULL;
    fresnel_plan_options forced = {.size = sizeof forced, .kernel = "cpu.flash"};
    EXPECT_FAILURE(fresnel_plan_create(problem, &forced, &plan), FRESNEL_UNSUPPORTED, "head_dim", "10000");
    EXPECT(strcmp(fresnel_error_kernel(), "cpu.flash") == 0);
    EXPECT_FAILURE(fresnel_plan_create(NULL, NULL, &plan), FRESNEL_BAD_INPUT, "problem", "null");
    EXPECT_FAILURE(fresnel_plan_create(problem, NULL, NULL), FRESNEL_BAD_INPUT, "plan", "null");
  }
  fresnel_problem_destroy(problem);
  fresnel_problem_destroy(NULL);
  fresnel_plan_destroy(NULL);
  EXPECT(fresnel_plan_kernel(NULL)[0] == 0 && fresnel_plan_workspace_bytes(NULL) == 0 && fresnel_plan_lanes(NULL) == 0);
  EXPECT_FAILURE(fresnel_check_indices(NULL, &s.inputs), FRESNEL_BAD_INPUT, "problem", "null");
}

int main(void) {
  EXPECT(fresnel_last_error()[0] == 0 && fresnel_error_argument()[0] == 0);
  EXPECT(strcmp(fresnel_version(), FRESNEL_EXPECTED_VERSION) == 0);
  EXPECT(strcmp(fresnel_status_name(FRESNEL_OUT_OF_MEMORY), "out of memory") == 0);
  EXPECT(strcmp(fresnel_status_name(17), "unknown status") == 0);
  test_views();
  test_attend();
  test_options();
  test_options_as_text();
  test_gradients();
  test_plan_and_run();
  test_context();
  test_merge();
  test_check();
  test_kernels_and_machine();
  test_refusals();
  printf("c_api: %d failures\n", failures);
  return failures;
}
