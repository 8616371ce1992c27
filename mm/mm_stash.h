/* SPDX-License-Identifier: MIT */
/* For a framework whose graph nobody can declare beforehand, such as PyTorch (tools/python): the stash. Include
 * mm/mm.h, which includes it. Experimental: it may change with any minor version.
 *
 * A stash holds, inside a budget, the tensors that a framework saves in forward passes for backward passes. A tensor is
 * put, got any number of times, and dropped. An iteration begins with a put while there is no entry, and ends when the
 * last entry is dropped.
 *
 *   mm_stash_put(s, &tensor, stream, &entry, &answer)     in the forward pass, for each tensor that is saved
 *       MM_STASH_TAKEN: the caller may release its tensor; MM_STASH_KEPT: it keeps it until it drops the entry
 *   mm_stash_get(s, entry, stream, &data)                 in the backward pass, in any order, any number of times
 *       ... enqueue on `stream` what reads data ...
 *   mm_stash_release(s, entry, stream)                  once for each get
 *   mm_stash_drop(s, entry)                               once for each entry
 *
 * An iteration's order is its sequence of puts, gets, releases and drops. The first iteration with an order runs
 * unplanned, yet inside the budget: copies to host memory make room, and all bytes stay exact. The order becomes a
 * graph, in which a put is a step that writes, and the others are steps that read. A thread of the stash plans it under
 * the policy, and proves the plan like any other. Later iterations that follow this order run as planned; callers keep
 * the tensors that the plan never moves. If puts and gets alternate (a double backward), policies can move fewer
 * tensors; if such an order does not fit the budget, its iterations go on unplanned. If an iteration departs from the
 * order of its plan, nothing is lost: it goes on unplanned, is counted and logged (off_plan), and its order is learned.
 * A stash remembers 16 orders. After 8 new orders in a row it says once that they never come again; from then on an
 * order is planned only when it comes a second time, until orders do come again.
 *
 * Budget. The bytes in the arena and those that callers keep are together at most device_bytes at any time. Unplanned
 * iterations use pinned memory as far as there is, then ordinary host memory (mm_stash_stats.host_bytes). On the host
 * device, pages of the arena that unplanned iterations touched and a plan does not use are given back to the system
 * when the first iteration follows the plan: where a budget has room for everything, callers keep their tensors, and
 * the arena takes no memory.
 *
 * Streams. `stream` is the caller's current stream. On cuda it is a cudaStream_t (NULL: the legacy default stream),
 * which mm need not have created. One that is being captured into a CUDA graph is refused with MM_ERR_ORDER; if
 * mm_stash_release meets one, the next call returns that. A taken tensor is copied in the order of the stream that was
 * passed to put, so work that the caller enqueues there afterwards may overwrite it. On the host `stream` is NULL,
 * callers compute on their own threads, and bytes are there when a call returns.
 *
 * Threads. All functions may be called from any thread, and wait for one another. mm_stash_drop and mm_stash_release
 * wait for no other call, and may be called from mm_log.fn, which runs with no lock held. */
#ifndef MM_MM_STASH_H
#define MM_MM_STASH_H

#include "mm/mm_base.h"
#include "mm/mm_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mm_stash mm_stash;
typedef uint64_t mm_stash_entry; /* never 0; the number of a dropped entry is not used again */

typedef enum mm_stash_answer {
    MM_STASH_KEPT = 0,  /* the caller keeps its tensor, unchanged, until it drops the entry */
    MM_STASH_TAKEN = 1, /* the caller may release its tensor, or change it */
} mm_stash_answer;

typedef enum mm_stash_flag {
    MM_STASH_SIGNS = 1, /* readers need exact signs (> 0, or not), even if the values come from a lossy code: a ReLU's
                           output */
    MM_STASH_EXACT = 2, /* never in a lossy code: indices, masks, statistics */
} mm_stash_flag;

typedef enum mm_stash_mode {
    /* Every tensor that is put is taken (MM_STASH_TAKEN), so that a loop with one set of buffers for all its layers may
     * use them again. Tensors that a plan never moves are copied to the arena then, instead of kept by the caller. */
    MM_STASH_TAKE_ALWAYS = 1,
    /* Callers keep every tensor. The stash copies, plans and moves nothing: it counts, refuses (MM_ERR_INFEASIBLE) what
     * would exceed the budget, and reports. For a loop that makes room otherwise, by recomputing. */
    MM_STASH_KEEP_ALWAYS = 2,
    /* No put or get fails for lack of room, as long as the device has memory. What finds no room lies outside the
     * budget (put in host memory; got in device memory of its own, until it is released), and the iteration is refused
     * when it has ended: once, by mm_stash_wait_planned, or by the put that begins the next iteration. The least budget
     * that is named then is enough for the whole order, planned and unplanned. */
    MM_STASH_REFUSE_LATER = 4,
} mm_stash_mode;

/* Options of a stash. Later versions add members at the end, as with mm_options. */
typedef struct mm_stash_options {
    const char *device; /* as mm_options.device */
    int64_t
        device_bytes; /* the budget of the arena, which is reserved at creation, and of what callers keep. Required */
    int64_t
        pinned_bytes;   /* pinned host memory for what leaves the arena; reserved at creation, and kept until the end */
    const char *policy; /* "swap-async" (default). Policies that recompute are refused */
    mm_log log;
    const mm_facts *facts; /* this and the two below: as in mm_options */
    int codec_threads;
    bool measure_touched;
    bool unplanned; /* plan nothing: all iterations run unplanned */
    uint64_t delay_seed;
    int64_t delay_max_ns;
    int64_t link_bytes_per_s;
    /* A put calls it, on its thread, if the device lacks memory for the arena to grow. It should free what the program
     * caches on the device; then the stash tries once more. It must call no function of the stash but mm_stash_drop and
     * mm_stash_release. NULL: there is none */
    void (*reclaim)(void *ctx);
    void *reclaim_ctx;
    uint64_t modes; /* of mm_stash_mode */
    /* The largest budget that mm_stash_budget_set may set; addresses are reserved for it, memory is not. 0:
     * device_bytes */
    int64_t device_most_bytes;
    /* A disk as a third place, as in mm_options: a directory, its limit, and its rate to plan by. What does not fit the
     * pinned memory goes on to the disk, planned or unplanned; only what fits neither lies in ordinary host memory. A
     * disk that is full, or fails, fails the put or the get that meets it (MM_ERR_IO); the message names the directory.
     * NULL: none */
    const char *disk;
    int64_t disk_bytes;
    int64_t disk_bytes_per_s;
} mm_stash_options;

/* mm_stash_create for options of `options_bytes` bytes; see mm_manager_create_sized. */
MM_API MM_CHECKED mm_status mm_stash_create_sized(const mm_stash_options *options, size_t options_bytes,
                                                  mm_stash **stash_out);

/* Creates a stash, with its arena and its threads. The options' strings are copied. MM_ERR_INVALID (a value out of
 * range, a disk in whose directory no file can be made), MM_ERR_NOT_FOUND (policy, device, codec), MM_ERR_UNSUPPORTED
 * (a policy that recomputes: frameworks have checkpointing of their own), MM_ERR_NOMEM (the budget is above what the
 * device has free; both numbers), MM_ERR_DEVICE. */
MM_CHECKED static inline mm_status mm_stash_create(const mm_stash_options *options, mm_stash **stash_out) {
    return mm_stash_create_sized(options, sizeof *options, stash_out);
}

/* Waits for the device, and frees. Entries that are left are lost, pointers to them become invalid, and their number is
 * logged as a warning. No other call may be under way. NULL is legal. */
MM_API void mm_stash_destroy(mm_stash *stash);

/* Changes the budget, while there is no entry: from 1 to device_most_bytes. Pinned memory, statistics and learned
 * orders stay; the orders are planned again. A smaller arena takes effect at once; a larger one when an iteration
 * begins, as far as the device has memory then. On failure nothing has changed. MM_ERR_INVALID: the budget is out of
 * range. MM_ERR_ORDER: there are entries. MM_ERR_DEVICE. */
MM_API MM_CHECKED mm_status mm_stash_budget_set(mm_stash *stash, int64_t device_bytes);

/* A tensor that is put. */
typedef struct mm_stash_tensor {
    const void *data;             /* device memory on cuda, memory of the process on the host */
    mm_dtype dtype;               /* MM_U8 for a type that mm does not have, with the last dimension in bytes */
    int rank;                     /* 0 to MM_RANK_MAX */
    int64_t dims[MM_RANK_MAX];    /* outermost first, each at least 1 */
    int64_t strides[MM_RANK_MAX]; /* in elements; dimensions may lie in any order, but without gaps. All 0: in the order
                                     of dims */
    const char *producer;         /* what made it, for messages and rules; copied, up to 159 bytes. NULL: "". Either an
                                     operation, "ReluBackward0"; or the path of the module that saves it, a blank, and
                                     the operation: rules match that path and those of the modules around it */
    uint32_t flags;               /* of mm_stash_flag */
} mm_stash_tensor;

/* Puts a tensor. On failure there is no new entry, the caller keeps its tensor, and the entries before stay as they
 * were. MM_ERR_INVALID: dimensions, strides or flags. MM_ERR_INFEASIBLE (mm_stash_refusal_get says more): the tensor is
 * larger than the budget; the held and kept entries leave no room for it; or it would begin an iteration, and the last
 * one was refused later, or had an order that does not fit under the policy. This third one is returned once: if the
 * caller puts again, the iteration begins, and runs unplanned. MM_ERR_NOMEM: there is no host memory. MM_ERR_DEVICE: a
 * copy failed. MM_ERR_IO: the disk is full, or failed. */
MM_API MM_CHECKED mm_status mm_stash_put(mm_stash *stash, const mm_stash_tensor *tensor, void *stream,
                                         mm_stash_entry *entry_out, mm_stash_answer *answer_out);

/* Gets an entry's bytes, laid out as they were put, for tasks that are enqueued on `stream` from now on. *data_out is
 * read-only device memory, valid until mm_stash_release; until then the entry is held. Further gets of a held entry
 * give the same pointer. For an entry that the caller kept, the pointer is the caller's own: nothing is held, and a
 * release is ignored. On failure the entry stays, and can be got again. MM_ERR_NOT_FOUND: there is no such entry.
 * MM_ERR_INFEASIBLE (mm_stash_refusal_get says more): the held and kept entries leave no room. MM_ERR_NOMEM: there is
 * no host memory. MM_ERR_DEVICE: a copy failed. MM_ERR_IO: the disk failed. */
MM_API MM_CHECKED mm_status mm_stash_get(mm_stash *stash, mm_stash_entry entry, void *stream, void **data_out);

/* Ends the hold of one get; it takes effect once the tasks that are enqueued on `stream` so far have run. Unknown
 * entries are ignored. */
MM_API void mm_stash_release(mm_stash *stash, mm_stash_entry entry, void *stream);

/* Drops an entry. If it is held, its bytes stay until its last release. Unknown entries are ignored. */
MM_API void mm_stash_drop(mm_stash *stash, mm_stash_entry entry);

/* For mm_torch alone (tools/python): types of Python whose methods are autograd's hooks, written in C because Python
 * itself takes several times as long. given: a dict of what they need of torch. Returns a tuple, a new reference; NULL:
 * a Python exception is pending. Call it in a process that runs Python, with Python's lock held. */
MM_API void *mm_stash_python(void *given);

/* Says that the iteration's last backward pass has ended. It is needed only if entries are left (of an autograd graph
 * that is retained, or was never used). They stay, are served unplanned, and belong to no further iteration; the next
 * put begins a new one. The order of an iteration that leaves entries is not learned. */
MM_API void mm_stash_iteration_end(mm_stash *stash);

/* Waits until all learned orders are planned. If the newest does not fit, returns its failure, as the next put would.
 * An order that has no plan for another reason (the check refuses the plan, a fault of a policy; or puts and gets
 * alternate, and no plan fits) is logged once as a warning, and goes on unplanned. */
MM_API MM_CHECKED mm_status mm_stash_wait_planned(mm_stash *stash);

/* The latest MM_ERR_INFEASIBLE, as data. */
typedef struct mm_stash_refusal {
    int64_t needed_bytes; /* the least budget that would be enough: for the order, planned and unplanned; or, if a
                             tensor was refused, for it and the held and kept entries: a lower bound for the order */
    int64_t device_bytes; /* the budget */
    int64_t tensor_bytes; /* size of the tensor for which there was no room; if an order was refused, of the tensor at
                             the event that needs most bytes */
    int tensor;           /* number of that tensor among the puts of the order, from 0; -1: not known */
    const char *producer; /* what made the tensor. Strings are valid until the next refusal */
    const char *policy;   /* a policy that would fit; "": none is known */
} mm_stash_refusal;

/* False: there was none. */
MM_API bool mm_stash_refusal_get(mm_stash *stash, mm_stash_refusal *refusal_out);

/* What the stash did with an entry. */
typedef enum mm_stash_fate {
    MM_STASH_FATE_UNPLANNED = 0, /* its iteration ran unplanned, or departed from its plan */
    MM_STASH_FATE_KEPT = 1,      /* the caller kept it */
    MM_STASH_FATE_STAYED = 2,    /* it stayed in the arena */
    MM_STASH_FATE_ENCODED = 3,   /* it was encoded; the code stayed in the arena */
    MM_STASH_FATE_OFFLOADED = 4, /* it was copied to pinned memory */
    MM_STASH_FATE_BOTH = 5,      /* it was encoded, and the code copied to pinned memory */
    MM_STASH_FATE_STORED = 6,    /* it was copied to pinned memory, and on to the disk; its code, if it has a codec */
} mm_stash_fate;

typedef struct mm_stash_line {
    const char *producer; /* strings are valid until the next put */
    mm_dtype dtype;
    uint32_t flags; /* of mm_stash_flag */
    int64_t bytes;
    mm_stash_fate fate;
    const char *codec;  /* "": it was not encoded */
    int64_t code_bytes; /* size of its code */
    bool lossy;         /* the code is lossy */
    int gets;           /* number of gets of the entry; gets while it was held already are not counted */
} mm_stash_line;

/* Reports about the i-th entry, in the order of puts, of the iteration that ended last. False: there are no more, or
 * that iteration's order is not known (none has ended, it was too long, or entries of it are left). */
MM_API bool mm_stash_report(mm_stash *stash, int i, mm_stash_line *line_out);

/* A segment of the plan of the iteration that ended last: which bytes of memory it takes, and when. What it has on the
 * disk meanwhile is not listed; mm_stash_line says of which entries. */
typedef struct mm_stash_segment {
    int entry;             /* its number in the report; -1: a codec's scratch, or a pool of codes */
    bool pinned, code;     /* pinned: in pinned memory, else in the arena; code: a code, or a pool of codes */
    int64_t offset, bytes; /* from the beginning of that memory */
    int first, last;       /* numbers of the first and the last event of the order that need it, from 0 */
} mm_stash_segment;

/* The i-th segment. False: there are no more, or the iteration had no plan. */
MM_API bool mm_stash_plan_segment(mm_stash *stash, int i, mm_stash_segment *segment_out);

typedef struct mm_stash_stats {
    int64_t entries;                    /* number of entries now */
    int64_t kept_bytes;                 /* kept by callers now */
    int64_t puts, gets;                 /* number since creation; so are all counts below */
    int64_t iterations;                 /* iterations that have ended */
    int64_t planned;                    /* iterations that followed a plan to their end */
    int64_t off_plan;                   /* iterations that left their plan */
    int64_t plans, planning_ns;         /* number of plans made, and the CPU time of planning */
    int64_t peak_bytes;                 /* most bytes at a time: the arena's extent, and what callers keep */
    int64_t predicted_bytes;            /* peak_bytes as predicted by the plan that ran last; 0: none has run */
    int64_t needed_bytes;               /* the least budget for the order that was planned last; 0: not known */
    int64_t moved_bytes;                /* bytes of tensors that were taken */
    int64_t out_bytes, in_bytes;        /* copied to host memory, and back */
    int64_t encoded_bytes, coded_bytes; /* bytes of tensors that were encoded, and bytes of their codes */
    int64_t host_bytes;                 /* most bytes of ordinary host memory at a time */
    int64_t lossy_gets;                 /* gets whose bytes were decoded from a lossy code */
    int64_t predicted_kept_bytes;       /* the part of predicted_bytes that callers keep; the rest is the arena's
                                           extent */
    int64_t arena_bytes;                /* the arena's limit now; the rest of the budget is for callers */
    int64_t beyond_bytes;               /* most bytes for which there was no room, in an iteration that is to be
                                           refused, but was not yet (MM_STASH_REFUSE_LATER); 0: in none */
    int64_t store_bytes, load_bytes;    /* stored on the disk (mm_stash_options.disk), and loaded from it */
} mm_stash_stats;

/* mm_stash_stats_get for statistics of `stats_bytes` bytes; members beyond this library's are set to zero. */
MM_API void mm_stash_stats_get_sized(mm_stash *stash, mm_stash_stats *stats_out, size_t stats_bytes);

/* Counts the bytes of the arena that planned iterations have touched: the most at any time (measure_touched). Call it
 * while there is no entry. MM_ERR_ORDER: the stash was created without measure_touched. */
MM_API MM_CHECKED mm_status mm_stash_touched_get(mm_stash *stash, mm_touched *touched_out);

/* The stash's statistics. Does nothing if an argument is NULL. */
static inline void mm_stash_stats_get(mm_stash *stash, mm_stash_stats *stats_out) {
    mm_stash_stats_get_sized(stash, stats_out, sizeof *stats_out);
}

#ifdef __cplusplus
}
#endif
#endif
