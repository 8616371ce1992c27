/* SPDX-License-Identifier: MIT */
/* A graph that is learned from a training loop's own calls: nothing is declared beside them. It includes mm.h.
 * Experimental: it may change with any minor version.
 *
 * The loop says, where it computes, which tensors a step uses and which of its pointers mm is to fill:
 *
 *   bool again;
 *   do {
 *       check(mm_loop_begin(loop, TRAINING));
 *       ...
 *       mm_loop_step step = {.name = "ln1", .row = l, .phase = MM_FORWARD, .kind = MM_LAYER_LAYER_NORM};
 *       mm_slot slots[] = {mm_slot_read("residual", l, &x), mm_slot_write("ln1", l, &y, bytes)};
 *       if (mm_loop_enter(loop, &step, slots, 2)) {
 *           layernorm(y, x);        both pointers lead into mm's memory; after mm_loop_leave they are NULL
 *           mm_loop_leave(loop);
 *       }
 *       ...
 *       check(mm_loop_end(loop, &again));
 *   } while (again);
 *
 * A key names an order of steps, and the sizes of their tensors: 0 for training, 1 for evaluation, another for another
 * batch size. An iteration with a new key is recorded: mm_loop_enter notes the step and returns false, so that nothing
 * is computed and no tensor takes memory. mm_loop_end then makes a graph (mm_graph) of the recording, freezes it, has
 * the manager plan it under its policy and budget, and says `again`: the loop runs the iteration once more, and now the
 * steps compute. So what stands between steps runs twice in the first iteration of a key; a loop where that does harm
 * uses MM_LOOP_RECORD_RUN. From then on, mm_loop_enter compares each step with the recorded one. Whatever a manager can
 * do (policies and budgets that change, statistics, traces) it does for these graphs, too.
 *
 * Tensors that the program keeps in memory of its own (weights, their gradients, batches) are not mentioned. They are
 * not in the budget.
 *
 * Failures are kept: after the first one in an iteration, mm_loop_enter returns false and mm_loop_leave does nothing,
 * until mm_loop_end returns the failure. It has aborted the iteration then, and the loop can go on with another one.
 *
 * Threads: a loop is driven by one thread at a time, the one that drives its manager. Several loops may share a
 * manager; their iterations do not overlap. */
#ifndef MM_MM_LOOP_H
#define MM_MM_LOOP_H

#include "mm/mm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mm_loop mm_loop;

/* How a step uses a tensor. */
typedef enum mm_loop_touch {
    MM_TOUCH_READ = 0,
    MM_TOUCH_WRITE = 1,   /* writes every byte; earlier contents are lost */
    MM_TOUCH_MODIFY = 2,  /* reads, then writes in place */
    MM_TOUCH_ADD = 3,     /* adds to it (+=). The first step of an iteration that adds to a tensor, which nothing wrote
                             before, finds zeros; see also mm_slot.over */
    MM_TOUCH_SCRATCH = 4, /* memory of this step alone, with any contents; the name only appears in messages */
    MM_TOUCH_RESULT = 5,  /* writes every byte, and the program reads it after the step: pointers to it stay until the
                             next mm_loop_begin. The tensor takes its bytes for the whole iteration, for each of its
                             sizes, and until the manager is destroyed */
} mm_loop_touch;

/* A tensor that a step uses, and the pointer of the program's that leads to it. Members that are zero may be left
 * out. */
typedef struct mm_slot {
    const char *name; /* with `row` the tensor's name (ln1.3); compared as text; borrowed for the call */
    int32_t row;
    mm_loop_touch touch;
    void *where;   /* address of a pointer of the program's (T **). mm_loop_enter sets it, mm_loop_leave sets it to NULL
                      (see MM_TOUCH_RESULT). Borrowed until then; if the step has a function, until mm_loop_end; for
                      a result, until the next mm_loop_begin */
    int64_t bytes; /* the tensor's size, a multiple of its type's. Required where the iteration names it first, and of
                      scratch; elsewhere 0, or the same */
    int64_t row_offset;  /* bytes to subtract from the pointer, since the program adds them itself (mm_table) */
    mm_dtype dtype;      /* where it is named first */
    mm_tensor_kind kind; /* where it is named first. MM_SAVED: never compressed lossily. MM_INPUT (0): a feature map in
                            a forward step, a gradient map in others */
    mm_form form;        /* MM_FORM_SIGN, for a read: only whether elements are > 0 matters; see mm_loop_form */
    const void *over; /* `where` of another slot of the step, which it reads, and which has as many bytes. A write: may
                         lie over that slot, element by element (mm_graph_allow_inplace). An ADD: if it is the tensor's
                         first, the sum equals that slot, and mm provides it: by one storage for both, or by a copy.
                         The step then must not add: mm_loop_given. NULL: none */
} mm_slot;

/* Slots, by touch. Other members are zero, for the caller to set. */
static inline mm_slot mm_slot_read(const char *name, int32_t row, void *where) {
    const mm_slot slot = {name, row, MM_TOUCH_READ, where, 0, 0, MM_F32, MM_INPUT, MM_FORM_VALUE, NULL};
    return slot;
}
static inline mm_slot mm_slot_write(const char *name, int32_t row, void *where, int64_t bytes) {
    const mm_slot slot = {name, row, MM_TOUCH_WRITE, where, bytes, 0, MM_F32, MM_INPUT, MM_FORM_VALUE, NULL};
    return slot;
}
static inline mm_slot mm_slot_modify(const char *name, int32_t row, void *where) {
    const mm_slot slot = {name, row, MM_TOUCH_MODIFY, where, 0, 0, MM_F32, MM_INPUT, MM_FORM_VALUE, NULL};
    return slot;
}
static inline mm_slot mm_slot_add(const char *name, int32_t row, void *where, int64_t bytes) {
    const mm_slot slot = {name, row, MM_TOUCH_ADD, where, bytes, 0, MM_F32, MM_INPUT, MM_FORM_VALUE, NULL};
    return slot;
}
static inline mm_slot mm_slot_scratch(void *where, int64_t bytes) {
    const mm_slot slot = {"scratch", 0, MM_TOUCH_SCRATCH, where, bytes, 0, MM_F32, MM_INPUT, MM_FORM_VALUE, NULL};
    return slot;
}
static inline mm_slot mm_slot_result(const char *name, int32_t row, void *where, int64_t bytes) {
    const mm_slot slot = {name, row, MM_TOUCH_RESULT, where, bytes, 0, MM_F32, MM_INPUT, MM_FORM_VALUE, NULL};
    return slot;
}

/* A step: the phase of a layer. Each occurs once in an iteration. */
typedef struct mm_loop_step {
    const char *name; /* with `row`, the layer's name, by which policies' rules find it; borrowed for the call */
    int32_t row;
    mm_phase phase;
    mm_layer_kind kind; /* where the layer is named first: rules, and whether it is expensive, go by it */
    /* Computes the step, with the pointers that its slots filled; a step that has it can be computed again
     * (recomputation), if it is a forward step. It must give the same bits each time, and change nothing of the
     * program's (running statistics, random states). It is called from mm_loop_enter of a later step, on that thread;
     * on cuda it enqueues on the loop's stream. `run` and `ctx` stay valid until mm_loop_end. NULL: only the caller
     * computes the step, once an iteration. */
    mm_status (*run)(void *ctx, int32_t row);
    void *ctx;
} mm_loop_step;

typedef enum mm_loop_record {
    MM_LOOP_RECORD_ONLY = 0, /* a new key's first iteration computes nothing, and is run again */
    MM_LOOP_RECORD_RUN = 1,  /* it computes, on plain memory outside the budget: each tensor has its own until the next
                                mm_loop_begin, so the network must fit. It is not run again */
} mm_loop_record;

/* Options of a loop. Later versions add members at the end, as with mm_options. */
typedef struct mm_loop_options {
    void *stream;          /* the stream on which steps compute, as for mm_layer_begin_on: on cuda a cudaStream_t (NULL:
                              the legacy default stream), on the host NULL: the calling thread. mm's own stream,
                              mm_stream_handle(mm_compute_stream(m)), costs least */
    mm_loop_record record; /* what the first iteration with a key does */
    bool ahead;            /* mm_loop_end does not wait for the device (mm_iteration_end_async) */
} mm_loop_options;

/* mm_loop_create for options of `options_bytes` bytes; see mm_manager_create_sized. */
MM_API MM_CHECKED mm_status mm_loop_create_sized(mm_manager *manager, const mm_loop_options *options,
                                                 size_t options_bytes, mm_loop **loop_out);

/* Creates a loop for a manager. options: NULL for defaults. MM_ERR_INVALID: a stream on a device without streams of
 * callers. */
MM_CHECKED static inline mm_status mm_loop_create(mm_manager *manager, const mm_loop_options *options,
                                                  mm_loop **loop_out) {
    return mm_loop_create_sized(manager, options, sizeof *options, loop_out);
}

/* Aborts an iteration under way, forgets all keys, and frees. Pointers of the program's are left as they are. To be
 * called before the manager is destroyed. NULL is legal. */
MM_API void mm_loop_destroy(mm_loop *loop);

/* Begins an iteration: a recording, if the key is new; else one that computes, after planning the key's graph if that
 * failed before. Sets pointers to earlier results to NULL. MM_ERR_ORDER: an iteration is under way. Otherwise the
 * errors of mm_iteration_begin. After a failure no iteration is under way; mm_loop_end returns the failure again. */
MM_API MM_CHECKED mm_status mm_loop_begin(mm_loop *loop, int64_t key);

/* Enters the next step. True: the slots' pointers are set; compute now, then call mm_loop_leave. False: do not compute,
 * because the step was only recorded, or the iteration has failed. Failures, which mm_loop_end returns:
 * MM_ERR_INVALID (a recording) if a step reads, modifies or has in `over` what no step before it wrote, or for a
 * declaration that mm_graph_add_tensor, _add_step, _allow_inplace or _allow_alias refuse, or if two slots fill one
 * pointer; MM_ERR_ORDER if the step, a tensor, a touch or a size is not the recorded one: the message names both. The
 * step has not run then, but those before it have; another order needs another key. Otherwise the errors of
 * mm_layer_begin, and of `run`. */
MM_API bool mm_loop_enter(mm_loop *loop, const mm_loop_step *step, const mm_slot *slots, size_t n_slots);

/* Leaves the step that was entered. */
MM_API void mm_loop_leave(mm_loop *loop);

/* Enters the step, calls its `run` if that is due, and leaves. A failure of `run` is one of the iteration. */
MM_API void mm_loop_run(mm_loop *loop, const mm_loop_step *step, const mm_slot *slots, size_t n_slots);

/* Ends the iteration, and waits for it (mm_loop_options.ahead). Returns the iteration's first failure. *again_out: it
 * was recorded, and did not compute: run it again. MM_ERR_ORDER: recorded steps are left (the message names the next),
 * or no iteration is under way. After a recording, MM_ERR_INFEASIBLE and the other errors of mm_manager_prepare: the
 * recording stays, other keys run as before, and mm_loop_begin with this key plans again, under the policy and budget
 * of then. With MM_LOOP_RECORD_RUN its results are there even so. */
MM_API MM_CHECKED mm_status mm_loop_end(mm_loop *loop, bool *again_out);

/* Gives up the iteration, or the recording, and its failure. Outside of an iteration, and for NULL, it does nothing. */
MM_API void mm_loop_abort(mm_loop *loop);

/* In a step: the form in which the slot with that `where` is there, as mm_tensor_form; a read of signs must ask. */
MM_API mm_form mm_loop_form(mm_loop *loop, const void *where);

/* In a step: whether the slot with that `where`, an ADD, holds its sum already, so that the step must not add
 * (mm_slot.over). The sum has the bits of the slot that it equals; 0 + x would differ from x in the sign of zeros. */
MM_API bool mm_loop_given(mm_loop *loop, const void *where);

/* The graph of a key, frozen, for functions that take a graph (mm_facts_save, mm_observe, ...). The loop owns it.
 * NULL: the key is not known, or still being recorded. */
MM_API const mm_graph *mm_loop_graph(const mm_loop *loop, int64_t key);

/* Forgets a key; its next iteration is recorded. Sets pointers to its results to NULL. Between iterations only. Waits
 * for iterations that were ended without waiting, and returns their failure. MM_ERR_NOT_FOUND: the key is not known. */
MM_API MM_CHECKED mm_status mm_loop_forget(mm_loop *loop, int64_t key);

/* ---- Pointer tables. A program that makes one large allocation often keeps a table of pointers into it, where an
 * entry has one part for each block of the network, and computes table.ln1 + l * B * T * C. Each part becomes a tensor;
 * the pointer is set to the place of the step's part, less what the program adds. So its arithmetic stays as it is:
 *
 *                      row 0     row 1     row 2                     the tensor ln1.2 in mm's memory
 *   table.ln1 ─▶ · · · · · · · · · · · · · ┌─────────┐ ◀─ + 2 * row_bytes ── what the program computes
 *                                          └─────────┘
 *
 * A step uses one row of an entry. If it uses two (one block's output is the next one's input), one of them needs a
 * slot and a pointer of its own. */
typedef struct mm_table {
    const char *const *names; /* of the entries: `entries` of them; the tensors' names. Borrowed, as all members */
    void *pointers;           /* address of `entries` pointers of the program's, one behind the other, such as those of
                                 a struct (T *[], or a struct of T *) */
    const size_t *bytes;      /* of each entry, all rows together */
    int32_t entries;          /* 1 to 64 */
    int32_t rows;             /* of the entries in by_row */
    uint64_t by_row;          /* bit e: entry e has `rows` equal rows. Other entries have one, row 0 */
    mm_dtype dtype;
} mm_table;

/* Writes the slots of those entries whose bit is set in `mask`, in their order: at most 64. Returns their number. Does
 * not check its arguments: bits beyond `entries` are ignored. */
MM_API size_t mm_table_slots(const mm_table *table, uint64_t mask, int32_t row, mm_loop_touch touch,
                             mm_slot *slots_out);

#ifdef __cplusplus
}
#endif
#endif
