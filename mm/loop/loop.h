/* SPDX-License-Identifier: MIT */
/* A loop's state, which its files share. A recording is an ordinary graph, and beside it what the graph does not know:
 * which pointers of the program's a step fills. Step i of a recording is step i of its graph. */
#ifndef MM_LOOP_LOOP_H
#define MM_LOOP_LOOP_H

#include "mm/core/graph/graph.h"
#include "mm/core/graph/names.h"
#include "mm/core/status.h"
#include "mm/mm_loop.h"

typedef struct mm_loop_slot {
    const char *name; /* the tensor's; the graph owns it. NULL: scratch */
    int name_length;  /* of the part that is mm_slot.name */
    int32_t row;
    mm_loop_touch touch;
    mm_form form;
    int over;         /* index of the slot of mm_slot.over; -1: none */
    mm_tensor tensor; /* -1: scratch */
    int use;          /* number among the graph's uses of the step; -1: scratch */
    int64_t bytes;
    int64_t offset; /* of scratch, in the step's workspace */
    bool first;     /* the first ADD of its tensor */
    bool lasts;     /* its tensor is a result, so pointers to it stay until the next iteration begins */
    /* Of the latest mm_loop_enter. NULL: the pointer was set to NULL, and may be gone. */
    void *where;
    int64_t row_offset;
} mm_loop_slot;

typedef struct mm_loop_made {
    const char *name; /* the layer's; the graph owns it */
    int name_length;
    int32_t row;
    mm_layer layer;
    mm_phase phase;
    mm_loop_slot *slots;
    int n_slots;
    mm_status (*run)(void *ctx, int32_t row); /* of the latest mm_loop_enter, as ctx */
    void *ctx;
} mm_loop_made;

/* The order that a key names. */
typedef struct mm_loop_recording {
    mm_loop *loop;
    int64_t key;
    mm_graph *graph;
    mm_names tensors, layers; /* by NAME.ROW; what they call is borrowed from `texts` */
    char **texts;
    int n_texts;
    mm_loop_made *steps;
    int n_steps;
    bool learned; /* the graph is frozen */
    bool planned; /* the manager has prepared it */
} mm_loop_recording;

typedef struct mm_loop_block {
    mm_tensor tensor; /* -1: scratch */
    void *memory;
    int64_t bytes;
} mm_loop_block;

typedef enum mm_loop_state { MM_LOOP_IDLE, MM_LOOP_RECORDS, MM_LOOP_RUNS } mm_loop_state;

struct mm_loop {
    mm_manager *manager;
    mm_loop_options options;
    int number; /* of the manager's loops */
    bool is_inline;
    mm_loop_recording **recordings;
    int n_recordings;
    mm_loop_state state;
    mm_loop_recording *now; /* of the iteration under way, or of the last one, whose results may be read; NULL: none */
    int at;                 /* steps of the iteration that have ended */
    mm_loop_made *entered;  /* the step under way, or the one that is computed again; NULL: none */
    mm_failure failure;     /* the iteration's first, until mm_loop_end returns it */
    mm_loop_block *blocks;  /* plain memory of MM_LOOP_RECORD_RUN */
    int n_blocks;
};

/* Makes room for one more item of an array whose capacity is the power of two at or above its count. */
MM_CHECKED mm_status mm_loop_grow(void *array, int count, size_t item_bytes);

/* Keeps the iteration's first failure. */
void mm_loop_fail(mm_loop *loop, mm_status status);

/* "ln1.3 forward", for messages. Returns buffer. */
enum { MM_LOOP_NAME_CAPACITY = 256 };
const char *mm_loop_step_text(const mm_loop_step *step, char buffer[MM_LOOP_NAME_CAPACITY]);
#define MM_LOOP_STEP_TEXT(step) mm_loop_step_text(step, (char[MM_LOOP_NAME_CAPACITY]){0})
const char *mm_loop_touch_name(mm_loop_touch touch);

#endif
