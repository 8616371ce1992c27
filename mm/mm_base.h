/* SPDX-License-Identifier: MIT */
/* What all public headers of mm share: status and errors, where messages go, types of elements, and the handles.
 * Include mm/mm.h, which includes it. */
#ifndef MM_MM_BASE_H
#define MM_MM_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MM_API             __attribute__((visibility("default")))
#define MM_PRINTF(f, a)    __attribute__((format(printf, f, a)))
#define MM_CHECKED         __attribute__((warn_unused_result))
#define MM_DEPRECATED(use) __attribute__((deprecated(use)))
#else
#define MM_API
#define MM_PRINTF(f, a)
#define MM_CHECKED
#define MM_DEPRECATED(use)
#endif

/* ---------------------------------------------------------------- status */

typedef enum mm_status {
    MM_OK = 0,
    MM_ERR_INVALID = 1,      /* an invalid argument or declaration */
    MM_ERR_ORDER = 2,        /* a call out of order */
    MM_ERR_NOMEM = 3,        /* memory ran out: see "When memory is short" in mm.h */
    MM_ERR_INFEASIBLE = 4,   /* the budget is below the plan's minimum */
    MM_ERR_PLAN = 5,         /* the check refused a plan: a bug in a policy */
    MM_ERR_DEVICE = 6,       /* a device call or an asynchronous job failed */
    MM_ERR_IO = 7,           /* a file cannot be read or written */
    MM_ERR_FORMAT = 8,       /* a file is corrupt or of another kind */
    MM_ERR_NOT_FOUND = 9,    /* an unknown name */
    MM_ERR_UNSUPPORTED = 10, /* this build or device cannot do it */
} mm_status;

/* The status's name, such as "MM_OK". Static. */
MM_API const char *mm_status_name(mm_status status);

/* The message of this thread's last failure; "" if there was none. Valid until this thread's next failure. */
MM_API const char *mm_last_error(void);

typedef enum mm_log_level { MM_LOG_ERROR = 0, MM_LOG_WARNING = 1, MM_LOG_INFO = 2, MM_LOG_DEBUG = 3 } mm_log_level;

/* Where a manager's messages go. Any of the manager's threads may call `fn`, but only one at a time, and with no lock
 * of the manager held. With all members zero, nothing is logged. */
typedef struct mm_log {
    void (*fn)(void *ctx, mm_log_level level, const char *message);
    void *ctx;
    mm_log_level level; /* messages above it are dropped */
} mm_log;

/* ---------------------------------------------------------------- types and handles */

typedef int32_t mm_tensor; /* a tensor's index in its graph, from 0 */
typedef int32_t mm_layer;  /* a layer's index in its graph, from 0 */

/* Types of elements. Graphs, plans, copies and lossless codecs take all of them. */
typedef enum mm_dtype {
    MM_F32 = 0,
    MM_I32 = 1,
    MM_U8 = 2,
    MM_F16 = 3,  /* IEEE binary16 */
    MM_BF16 = 4, /* the upper half of a binary32 */
    MM_DTYPES
} mm_dtype;

/* Bytes of one element; 0 for a number that is no type. */
MM_API size_t mm_dtype_bytes(mm_dtype dtype);

/* The type's name, such as "f32"; "unknown" for a number that is no type. Static. */
MM_API const char *mm_dtype_name(mm_dtype dtype);

typedef enum mm_tensor_kind {
    MM_INPUT = 0,           /* a batch's images or labels */
    MM_FEATURE_MAP = 1,     /* a layer's output */
    MM_GRADIENT_MAP = 2,    /* the gradient of the loss with respect to a feature map */
    MM_SAVED = 3,           /* saved for the backward step, never compressed lossily: a batch norm's means and inverse
                           deviations, a pool's index map */
    MM_WEIGHT = 4,          /* learned parameters */
    MM_WEIGHT_GRADIENT = 5, /* the gradient of the loss with respect to a weight */
    MM_OPTIMIZER = 6,       /* optimizer state, such as momentum */
    MM_STATE = 7,           /* other tensors that outlive an iteration: running statistics, the loss */
    MM_TENSOR_KINDS
} mm_tensor_kind;

/* The kind's name, such as "weight gradient"; "unknown" for a number that is no kind. Static. */
MM_API const char *mm_tensor_kind_name(mm_tensor_kind kind);

enum { MM_RANK_MAX = 8 };

typedef enum mm_phase { MM_FORWARD = 0, MM_BACKWARD = 1, MM_UPDATE = 2 } mm_phase;

MM_API const char *mm_phase_name(mm_phase phase);

typedef struct mm_graph mm_graph;     /* mm.h: the steps of an iteration and their tensors */
typedef struct mm_manager mm_manager; /* mm.h: an arena, a policy, and the threads that move tensors */
typedef struct mm_stream mm_stream;   /* a device's queue of tasks; NULL: the caller computes on its own thread */

/* Measured times of a graph's steps, codecs and copies, by the names of layers and tensors (mm_facts_load). */
typedef struct mm_facts mm_facts;

#ifdef __cplusplus
}
#endif
#endif
