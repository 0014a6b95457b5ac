/* SPDX-License-Identifier: Apache-2.0
   The structs of the C interface (fresnel.h). Each starts with `size`, which the caller sets to sizeof its type, so
   that a later version can add fields and still know what an older program means; a size that this version does not
   know is refused. All other fields may be 0: 0 is every default. Pointers are borrowed for the call. */
#ifndef FRESNEL_C_TYPES_H
#define FRESNEL_C_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* NOLINTBEGIN(modernize-*,readability-identifier-naming): this is C, whose names have no namespace */
#ifdef __cplusplus
extern "C" {
#endif

/** What every function that can fail returns. */
typedef int fresnel_status;
enum {
  FRESNEL_OK = 0,
  FRESNEL_BAD_INPUT = 1,     /**< an argument is outside what attention means */
  FRESNEL_UNSUPPORTED = 2,   /**< meaningful, but no kernel here does it */
  FRESNEL_DEVICE = 3,        /**< a device or the system failed */
  FRESNEL_OUT_OF_MEMORY = 4, /**< an allocation failed */
  FRESNEL_IO = 5             /**< a file could not be written */
};

/** Element types. */
enum { FRESNEL_F64 = 0, FRESNEL_F32 = 1, FRESNEL_F16 = 2, FRESNEL_BF16 = 3, FRESNEL_I32 = 4, FRESNEL_BOOL = 5 };
/** Where memory lies. */
enum { FRESNEL_CPU = 0, FRESNEL_CUDA = 1, FRESNEL_WEBGPU = 2 };
/** Where queries stand among the keys. */
enum { FRESNEL_BOTTOM_RIGHT = 0, FRESNEL_TOP_LEFT = 1 };
/** Forms of ALiBi's term. */
enum { FRESNEL_RELATIVE = 0, FRESNEL_DISTANCE = 1 };
/** Vector instruction sets. */
enum { FRESNEL_ISA_BASELINE = 0, FRESNEL_ISA_AVX2 = 1, FRESNEL_ISA_AVX3 = 2, FRESNEL_ISA_NEON = 3 };
/** Matrix units: none, one that the system does not grant, Intel AMX for bf16. */
enum { FRESNEL_TILE_UNIT_ABSENT = 0, FRESNEL_TILE_UNIT_DENIED = 1, FRESNEL_TILE_UNIT_AMX_BF16 = 2 };

/** An input tensor of up to four axes, outermost first. Sizes and strides count elements. */
typedef struct fresnel_view {
  size_t size;        /**< sizeof(fresnel_view) */
  const void* data;   /**< any element-aligned address */
  int dtype;          /**< FRESNEL_F64 ... */
  int rank;           /**< axes in use */
  int device;         /**< FRESNEL_CPU */
  int64_t sizes[4];   /**< extents */
  int64_t strides[4]; /**< 0 and negative too, but 1 on the last axis */
} fresnel_view;

/** An output tensor. */
typedef struct fresnel_mutable_view {
  size_t size;        /**< sizeof(fresnel_mutable_view) */
  void* data;         /**< any element-aligned address */
  int dtype;          /**< FRESNEL_F64 ... */
  int rank;           /**< axes in use */
  int device;         /**< FRESNEL_CPU */
  int64_t sizes[4];   /**< extents */
  int64_t strides[4]; /**< sorted, each at least the extent below it */
} fresnel_mutable_view;

/** What attention means (docs/semantics.md). A value whose `has_` is 0 has to be 0. */
typedef struct fresnel_options {
  size_t size;               /**< sizeof(fresnel_options) */
  int causal;                /**< not 0: key j is visible to the query at p if j <= p */
  int alignment;             /**< FRESNEL_BOTTOM_RIGHT or FRESNEL_TOP_LEFT */
  int alibi;                 /**< FRESNEL_RELATIVE or FRESNEL_DISTANCE */
  int has_softmax_scale;     /**< 0: 1 / sqrt(head_dim) */
  int has_softcap;           /**< 0: none */
  int has_window_size_left;  /**< 0: unbounded */
  int has_window_size_right; /**< 0: unbounded */
  double softmax_scale;      /**< 0 and negative are legal */
  double softcap;            /**< c: scores become c tanh(s / c) */
  int64_t window_size_left;  /**< keys before p that stay visible */
  int64_t window_size_right; /**< keys after p that stay visible */
} fresnel_options;

/** Inputs; null where absent. q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv]. */
typedef struct fresnel_inputs {
  size_t size;                      /**< sizeof(fresnel_inputs) */
  const fresnel_view* q;            /**< required */
  const fresnel_view* k;            /**< required */
  const fresnel_view* v;            /**< required */
  const fresnel_view* alibi_slopes; /**< f32 [Hq] or [B, Hq] */
  const fresnel_view* seqlens_k;    /**< i32 [B] */
  const fresnel_view* dout;         /**< gradient of o; asks for the backward */
} fresnel_inputs;

/** Outputs, or a result to be judged; null where not wanted. */
typedef struct fresnel_outputs {
  size_t size;                               /**< sizeof(fresnel_outputs) */
  const fresnel_mutable_view* o;             /**< required; [B, Hq, Sq, Dv] in q's dtype */
  const fresnel_mutable_view* lse;           /**< [B, Hq, Sq] float32 (float64 for float64) */
  const fresnel_mutable_view* dq;            /**< shape of q */
  const fresnel_mutable_view* dk;            /**< shape of k */
  const fresnel_mutable_view* dv;            /**< shape of v */
  const fresnel_mutable_view* dalibi_slopes; /**< shape of alibi_slopes */
} fresnel_outputs;

/** One of the tasks that an executor is handed: call it with the task's `context` and an index. */
typedef void (*fresnel_task)(void* context, int index);

/** Who runs the work. */
typedef struct fresnel_executor {
  size_t size; /**< sizeof(fresnel_executor) */
  int width;   /**< how many tasks may run at the same time, at least 1 */
  /** Calls task(context, i) once for each i in [0, tasks), on any threads, and returns when all are done. */
  void (*run)(void* user, int tasks, fresnel_task task, void* context);
  void* user; /**< handed to `run` */
} fresnel_executor;

/** A machine to plan for. */
typedef struct fresnel_machine {
  size_t size;      /**< sizeof(fresnel_machine) */
  int device;       /**< FRESNEL_CPU */
  int isa;          /**< FRESNEL_ISA_BASELINE ... */
  int tile_unit;    /**< FRESNEL_TILE_UNIT_ABSENT ... */
  int cores;        /**< CPU cores */
  int threads;      /**< hardware threads that the process may use */
  int64_t l1_bytes; /**< data cache per core */
  int64_t l2_bytes; /**< per core */
  int64_t l3_bytes; /**< shared */
  char name[128];   /**< for people; cut off where it is longer */
} fresnel_machine;

/** How to plan. */
typedef struct fresnel_plan_options {
  size_t size;                    /**< sizeof(fresnel_plan_options) */
  const char* kernel;             /**< force a row by name; null: the first that serves */
  const fresnel_machine* machine; /**< null: this host */
  int lanes;                      /**< tasks at most; 0: the machine's threads */
} fresnel_plan_options;

/** Where and how fresnel_attend runs. */
typedef struct fresnel_context {
  size_t size;                      /**< sizeof(fresnel_context) */
  const fresnel_executor* executor; /**< null: the pool */
  void* workspace;                  /**< null: allocated for the call */
  size_t workspace_bytes;           /**< 0 where `workspace` is null */
  const char* kernel;               /**< force a row by name */
  int lanes;                        /**< tasks at most; 0: as wide as the executor */
} fresnel_context;

/** Which kernels ran; written by fresnel_attend. */
typedef struct fresnel_report {
  size_t size;              /**< sizeof(fresnel_report) */
  int lanes;                /**< tasks of the forward */
  double operations;        /**< of the forward, by its formulas */
  double bytes;             /**< moved by the forward at least */
  double bytes_unfused;     /**< the same with scores written and read back */
  char kernel[64];          /**< of the forward */
  char backward_kernel[64]; /**< empty without gradients */
} fresnel_report;

/** How one output fared; written by fresnel_check. */
typedef struct fresnel_judgement {
  size_t size;        /**< sizeof(fresnel_judgement) */
  int judged;         /**< 0: the result does not hold this output */
  int64_t count;      /**< elements */
  int64_t mismatches; /**< beyond the proven budget */
  double max_error;   /**< largest error */
  double max_share;   /**< largest error / budget */
  int64_t at[4];      /**< [b, h, i, d] of max_share; -1 where there is no such index */
} fresnel_judgement;

/** Where judgements go; null where not wanted. `ok` speaks for all of them, wanted or not. */
typedef struct fresnel_verdict {
  size_t size;                      /**< sizeof(fresnel_verdict) */
  int ok;                           /**< written: 1 when nothing mismatches */
  fresnel_judgement* o;             /**< of o */
  fresnel_judgement* lse;           /**< of lse */
  fresnel_judgement* dq;            /**< of dq */
  fresnel_judgement* dk;            /**< of dk */
  fresnel_judgement* dv;            /**< of dv */
  fresnel_judgement* dalibi_slopes; /**< of dalibi_slopes */
} fresnel_verdict;

/** A row of the table of kernels. */
typedef struct fresnel_kernel_info {
  size_t size;          /**< sizeof(fresnel_kernel_info) */
  const char* name;     /**< written: e.g. "cpu.flash"; lives as long as the library */
  const char* blurb;    /**< one line for people; likewise */
  int device;           /**< FRESNEL_CPU ... */
  int built;            /**< 0: described, but not part of this build */
  int backward;         /**< 1: computes gradients */
  unsigned dtypes;      /**< bit 1 << FRESNEL_F32 and so on */
  int64_t head_dim[2];  /**< least and most D */
  int64_t value_dim[2]; /**< least and most Dv */
} fresnel_kernel_info;

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-*,readability-identifier-naming) */

#endif
