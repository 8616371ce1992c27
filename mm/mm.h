/* SPDX-License-Identifier: MIT */
/* mm keeps the training of a neural network inside a byte budget. C11, usable from C++.
 *
 * Use it in a training loop of your own: declare the steps of an iteration and the tensors that they use once, as a
 * graph; then call mm_layer_begin and mm_layer_end around each step. A policy decides which feature maps are
 * compressed, copied to host memory or recomputed between the forward and the backward pass, and the manager does it
 * beside the computation. The headers:
 *
 *   mm.h        the loop: graph, manager, iteration. It includes the others, but for mm_loop.h.
 *   mm_comm.h   several processes train one network: all-reduces of their gradients.
 *   mm_plan.h   planning without an arena, refusals as data, graphs as files. Experimental.
 *   mm_trace.h  what a manager does: statistics, traces, observing.
 *   mm_loop.h   a graph that is learned from the loop's own calls, not declared; mm_loop.hpp: for C++. Experimental.
 *   mm_stash.h  another interface: a framework hands over the tensors that it saves, and nobody declares a graph.
 *               Experimental.
 *   mm_base.h   what these share: status, errors, types.
 *   mm_deprecated.h  names of version 0.14, which go with 0.17; without them: #define MM_NO_DEPRECATED.
 *
 * Object model
 *   mm_graph    the steps of one iteration, and the tensors that they read and write; declared once, then frozen.
 *   mm_manager  one arena of `device_bytes` bytes, a policy, and the threads that move tensors.
 *               Several graphs (training, a last smaller batch, evaluation) run in the same arena.
 *
 * One iteration
 *   mm_iteration_begin(m, graph)
 *     for each step, in the order declared:
 *       mm_layer_begin(m, layer, phase, stream)   inputs are there, outputs have room
 *       p = mm_tensor_data(m, tensor)             valid until mm_layer_end
 *       ... compute on `stream` ...
 *       mm_layer_end(m, layer, phase)
 *   mm_iteration_end(m)
 *
 * Errors. Every function that can fail returns mm_status. mm_last_error() then has one line that says what failed, on
 * which object, and with which numbers. On an error, outputs are unchanged. Any function may return MM_ERR_NOMEM for
 * the library's own memory, and MM_ERR_INVALID for a NULL argument; the comments below leave these out. "Between
 * iterations" means: MM_ERR_ORDER while an iteration is under way. Ownership. The caller destroys what a _create or
 * _load function returns. Strings that are passed in are copied, unless the comment says "borrowed". Strings that are
 * returned belong to the library. Units are bytes and nanoseconds. Threads. A graph under construction belongs to one
 * thread; a frozen graph may be read by any. A manager is driven by one thread at a time; mm_stats_get and
 * mm_manager_device_bytes may be called from any thread. Two managers in one process do not affect each other.
 *
 * mm/README.md has a picture of the library and a glossary (stash, code, form, ...). */
#ifndef MM_MM_H
#define MM_MM_H

#include "mm/mm_base.h"
#include "mm/mm_comm.h"
#include "mm/mm_plan.h"
#include "mm/mm_stash.h"
#include "mm/mm_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header and of the library: as text, which pkg-config's file and 'mm --version' take from here,
 * and as numbers for the preprocessor. The number in the library's soname, libmm.so.1 (mm/BUILD), is another one: it
 * changes when programs that were built against an older library would no longer run.
 *
 * Stable is all that is not under the heading "experimental": it leaves the interface only after a minor version that
 * calls it deprecated. What is experimental (the end of this header, mm_loop.h, mm_plan.h, mm_stash.h) may change with
 * any minor version. Constants keep their numbers. The only exceptions are constants without a written number, such as
 * MM_TENSOR_KINDS: they are the number of the other constants of their enum, and grow. mm/CONTRIBUTING.md has the
 * rules. */
#define MM_VERSION "0.15.0"

#define MM_VERSION_MAJOR 0
#define MM_VERSION_MINOR 15
#define MM_VERSION_PATCH 0

/* The library's MM_VERSION. Static. */
MM_API const char *mm_version(void);

/* ---------------------------------------------------------------- graph */

typedef enum mm_ownership {
    MM_MANAGED = 0,    /* owned by the manager: lives within one iteration, and may be moved, freed or compressed */
    MM_PERSISTENT = 1, /* owned by the manager: stays at one place for the manager's life; graphs that declare the same
                          name share the tensor */
    MM_EXTERNAL = 2,   /* owned by the user (mm_external_set): counts in the budget, and is never moved */
} mm_ownership;

typedef enum mm_layer_kind {
    MM_LAYER_OTHER = 0,
    MM_LAYER_DATA = 1,
    MM_LAYER_CONV = 2,
    MM_LAYER_LINEAR = 3,
    MM_LAYER_BATCH_NORM = 4,
    MM_LAYER_BATCH_NORM_RELU = 5, /* one layer that computes batch norm, then a residual sum if any, then ReLU */
    MM_LAYER_LRN = 6,
    MM_LAYER_RELU = 7,
    MM_LAYER_POOL = 8,
    MM_LAYER_ADD = 9,
    MM_LAYER_CONCAT = 10,
    MM_LAYER_CROP = 11,
    MM_LAYER_UPSAMPLE = 12,
    MM_LAYER_DROPOUT = 13,
    MM_LAYER_LOSS = 14,
    MM_LAYER_UPDATE = 15,
    MM_LAYER_EMBEDDING = 16, /* a learned row for each token, or for each position */
    MM_LAYER_LAYER_NORM = 17,
    MM_LAYER_GELU = 18,
    MM_LAYER_ATTENTION = 19,
    MM_LAYER_KINDS
} mm_layer_kind;

MM_API const char *mm_layer_kind_name(mm_layer_kind kind);

/* How long a layer's forward step takes. */
typedef enum mm_layer_cost {
    MM_LAYER_CHEAP = 0,     /* about as long as reading and writing its maps: batch norm, ReLU, pool */
    MM_LAYER_EXPENSIVE = 1, /* longer, because it multiplies matrices: convolution */
} mm_layer_cost;

/* Properties of a layer that policies take into account. */
typedef struct mm_layer_properties {
    mm_layer_cost cost;
    bool repeatable; /* its forward step may run again, and then gives the same bits (mm_recompute_fn) */
} mm_layer_properties;

/* The default properties of a kind: MM_LAYER_CONV, _LINEAR and _ATTENTION are expensive, all others cheap;
 * MM_LAYER_OTHER, _DATA, _DROPOUT, _LOSS and _UPDATE are not repeatable, all others are. A dropout that draws the same
 * random numbers when it runs again is repeatable: mm_graph_set_properties. */
MM_API mm_layer_properties mm_layer_kind_properties(mm_layer_kind kind);

typedef enum mm_access {
    MM_READ = 0,
    MM_WRITE = 1,  /* writes every byte; earlier contents are lost */
    MM_MODIFY = 2, /* reads, then writes in place: accumulation, weight update */
} mm_access;

/* The form in which a reader needs a tensor. */
typedef enum mm_form {
    MM_FORM_VALUE = 0, /* the elements */
    MM_FORM_SIGN = 1,  /* only whether each element is > 0. The reader gets either the elements or the exact mask:
                          one bit for each element, least significant bit first, in 32-bit little-endian words.
                          mm_tensor_form says which of the two it got. */
    MM_FORM_CODE = 2,  /* a code of the elements. Never declared in mm_use: mm_tensor_form returns it if the step reads
                          the tensor in compressed form (mm_graph_allow_code) */
} mm_form;

typedef struct mm_tensor_desc {
    const char *name; /* unique in the graph; copied */
    mm_tensor_kind kind;
    mm_ownership ownership;
    mm_dtype dtype;
    int rank;                  /* 1 to MM_RANK_MAX */
    int64_t dims[MM_RANK_MAX]; /* outermost first; feature maps are NHWC: batch, height, width, channels */
} mm_tensor_desc;

/* How a step uses a tensor. */
typedef struct mm_use {
    mm_tensor tensor;
    mm_access access;
    mm_form form; /* MM_FORM_VALUE; or MM_FORM_SIGN, only for a read of floats */
} mm_use;

/* Creates an empty graph. The name appears in messages. The caller destroys the graph, after every manager that has
 * prepared it is destroyed, or has forgotten it (mm_manager_forget). */
MM_API MM_CHECKED mm_status mm_graph_create(const char *name, mm_graph **graph_out);
/* NULL is legal. No manager may have the graph prepared. */
MM_API void mm_graph_destroy(mm_graph *graph);

/* The functions that declare parts of a graph return MM_ERR_ORDER once it is frozen, and MM_ERR_INVALID for a tensor
 * or a layer that it does not have, or for a name that is empty or longer than 200 characters. */

/* Declares a tensor. MM_ERR_INVALID: a name used twice, rank or dims out of range, a size above 2^62 bytes. */
MM_API MM_CHECKED mm_status mm_graph_add_tensor(mm_graph *graph, const mm_tensor_desc *desc, mm_tensor *tensor_out);

/* Declares to which weight (MM_WEIGHT) a tensor belongs: its gradient (MM_WEIGHT_GRADIENT), of as many elements, or a
 * state that the optimizer keeps for it (MM_OPTIMIZER), of any size. It changes no plan; operations on gradients find
 * their weights by it. MM_ERR_INVALID: a tensor of another kind, a gradient of another size, a second gradient of one
 * weight, or a tensor that belongs to a weight already. */
MM_API MM_CHECKED mm_status mm_graph_set_weight(mm_graph *graph, mm_tensor tensor, mm_tensor weight);

/* Declares a layer. Rules of policies name it by its kind or by its name. It has the properties of its kind
 * (mm_layer_kind_properties), unless mm_graph_set_properties gives it others. Give a layer of your own the kind that it
 * resembles: any activation is a MM_LAYER_RELU. */
MM_API MM_CHECKED mm_status mm_graph_add_layer(mm_graph *graph, const char *name, mm_layer_kind kind,
                                               mm_layer *layer_out);

/* Gives a fused layer the name of a further part, such as that of the ReLU in a convolution with ReLU. Rules find the
 * layer by any of its names. */
MM_API MM_CHECKED mm_status mm_graph_add_part(mm_graph *graph, mm_layer layer, const char *name);

/* Sets a layer's properties, in place of those of its kind. */
MM_API MM_CHECKED mm_status mm_graph_set_properties(mm_graph *graph, mm_layer layer,
                                                    const mm_layer_properties *properties);

/* Appends a step. The order of these calls is the order of execution. At run time the step gets `workspace_bytes` of
 * scratch memory (mm_workspace_data). MM_ERR_INVALID: (layer, phase) has a step already, a tensor is named twice, a
 * sign is read of a type without one, or the workspace is above 2^62 bytes. */
MM_API MM_CHECKED mm_status mm_graph_add_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses,
                                              size_t n_uses, size_t workspace_bytes);

/* Declares for the step added last: `output` may be written over `input`. The step must read and write them element by
 * element, as a ReLU or a residual sum does. The policy decides whether `output` is put there; if it is, the step sees
 * equal pointers. MM_ERR_INVALID, here and for mm_graph_allow_alias: the step does not read the one and write the
 * other, their sizes differ, or they are not both managed. */
MM_API MM_CHECKED mm_status mm_graph_allow_inplace(mm_graph *graph, mm_tensor input, mm_tensor output);

/* Declares for the step added last: `output` equals `input` bit for bit. For example, the gradient of a residual sum
 * with respect to each addend equals that with respect to the sum. A policy may let both share one storage; the step
 * then sees equal pointers, and has nothing to copy. */
MM_API MM_CHECKED mm_status mm_graph_allow_alias(mm_graph *graph, mm_tensor input, mm_tensor output);

/* Declares for the step added last: when it is recomputed (mm_recompute_fn), it can read what it wrote to `output` the
 * first time, instead of writing it again, and compute only its other outputs. mm_tensor_given tells the step whether
 * it is to do that. A batch norm, for example, reuses the statistics that it saved. The simulator assumes that such a
 * recomputation takes two thirds of the step's time, as a batch norm's does. MM_ERR_INVALID: not a managed output of a
 * forward step, or not among its first 64 uses. */
MM_API MM_CHECKED mm_status mm_graph_allow_given(mm_graph *graph, mm_tensor output);

/* Declares for the step added last: it can also run with a workspace of `workspace_bytes`, which must be less than all
 * sizes declared for it before. The size is chosen when the graph is planned (mm_workspace_bytes). Results may round
 * differently with another size. */
MM_API MM_CHECKED mm_status mm_graph_allow_workspace(mm_graph *graph, size_t workspace_bytes);

/* Checks the whole graph and freezes it; managers take frozen graphs only. MM_ERR_INVALID: there is no step, a managed
 * tensor is read before it is written, a tensor is not used, or all tensors together, or all workspaces together, are
 * above 2^60 bytes. */
MM_API MM_CHECKED mm_status mm_graph_freeze(mm_graph *graph);

/* The tensor with that name, or MM_ERR_NOT_FOUND. */
MM_API MM_CHECKED mm_status mm_graph_find_tensor(const mm_graph *graph, const char *name, mm_tensor *tensor_out);

/* ---------------------------------------------------------------- manager */

/* Which thread issues the operations of the side streams. */
typedef enum mm_issue {
    MM_ISSUE_THREAD = 0, /* worker threads (default) */
    MM_ISSUE_INLINE = 1, /* the training thread, in mm_layer_end */
} mm_issue;

typedef enum mm_event_kind {
    MM_EVENT_PLAN = 0,            /* a graph was planned: name = graph, bytes = its plan's peak */
    MM_EVENT_POLICY = 1,          /* the policy was set: name = policy */
    MM_EVENT_ITERATION_BEGIN = 2, /* name = graph, bytes = its plan's peak */
    MM_EVENT_ITERATION_END = 3,   /* name = graph, ns = wall time from its beginning to the call that ended it; the
                                     device may still run it */
    MM_EVENT_ABORT = 4,  /* the iteration failed or was aborted, so it has no MM_EVENT_ITERATION_END: name = graph */
    MM_EVENT_WAIT = 5,   /* mm_layer_begin blocked for a worker or an input: name = layer, ns = how long */
    MM_EVENT_LADDER = 6, /* fallback: name = the substitute policy, bytes = what is available to plans now */
    MM_EVENT_REPLAN = 7, /* mm_observe: a graph got another plan, because its iterations did not take the planned time:
                            name = graph, bytes = the new plan's peak, ns = what an iteration is predicted to take */
} mm_event_kind;

typedef struct mm_event_info {
    mm_event_kind kind;
    const char *name; /* graph, policy or layer; valid during the call */
    int64_t bytes;
    int64_t ns;
} mm_event_info;

/* Called on the thread that drives the manager, with no lock held. It must not call the manager. */
typedef void (*mm_event_fn)(void *ctx, const mm_event_info *event);

/* Reads and checks a file of facts, as `mm bench --facts` and mm_facts_save write it. The caller destroys the facts;
 * any number of managers and threads may read them. A manager that gets them (mm_options) uses the measured times for
 * every graph whose layers, tensors and sizes equal those of the measured graph, also under substitute policies. It
 * plans other graphs without them, and logs that: as a warning, or as MM_LOG_INFO for a graph without a backward pass,
 * where policies have nothing to choose. MM_ERR_IO, MM_ERR_FORMAT: the message names the file and the place in it. */
MM_API MM_CHECKED mm_status mm_facts_load(const char *path, mm_facts **facts_out);
/* No manager may still have the facts. NULL is legal. */
MM_API void mm_facts_destroy(mm_facts *facts);

/* Options of a manager. Zero is every member's default. Later versions add members at the end only. So code that sets
 * members by name, and leaves the rest zero, compiles with every version; and a program that was compiled with an older
 * header runs with a newer library. */
typedef struct mm_options {
    const char *device;   /* "host" (default), "cuda" (the first GPU; in builds with CUDA), "cuda:1" (the second).
                                 See "Devices and threads" */
    int64_t device_bytes; /* the budget: for all that plans place in the arena, and external tensors. Reserved at
                                 creation, never exceeded. A budget above what the device has free is refused; if the
                                 device then gives less, see "When memory is short". 0: what the graphs need. Whenever a
                                 graph is prepared, a persistent tensor added, or the policy set, the budget grows to
                                 what liveness needs for all graphs, or the policy, if that needs more; the log says so,
                                 and mm_manager_device_bytes. mm_budget_set ends that */
    int64_t pinned_bytes; /* the budget of host memory for offloaded tensors; reserved at creation. 0: nothing can be
                                 offloaded. On the host device offloading frees none of the machine's memory */
    const char *policy;   /* "liveness" (default), "freelunch:codec=zfp:rate=4,depth=2", ... see mm_policy_list */
    mm_issue issue;       /* which thread issues operations */
    bool no_ladder;       /* fail when memory is short, instead of running a substitute policy */
    bool self_check;      /* test what the loop declares (mm/README.md, "What self_check finds"), overwrite freed memory
                             with NaNs, and compare checksums of lossless copies; slow. A wrong declaration fails the
                             step, or the iteration, with MM_ERR_INVALID: step, tensor, and what to declare */
    bool measure_times;   /* time every step and operation, for mm_facts_save */
    bool equal_streams;   /* on a GPU: all streams have one priority. Default: the compute stream has a higher one */
    bool measure_touched; /* fill the memory of plans with a pattern, so that mm_touched_get can count */
    uint64_t delay_seed;  /* host device, for tests: if not 0, tasks are delayed at random, by at most */
    int64_t delay_max_ns; /* delay_max_ns, so that races show */
    int64_t link_bytes_per_s; /* host device: rate of the simulated link to pinned memory, each way; 0: as fast as
                                 memcpy */
    int64_t alloc_cost_ns;    /* host device: simulated cost of an allocation or free at run time (100000: cudaMalloc of
                                 128 MB on an H200, tools/facts/README.md) */
    int codec_threads;        /* host device: number of threads for one encode or decode; 0: 1 */
    mm_log log;
    mm_event_fn event_fn;
    void *event_ctx;
    const mm_facts *facts; /* measured times to plan by (mm_facts_load); borrowed until the manager is destroyed. NULL:
                              plans use nominal times, scaled to the device's rates of memory and link */
    const volatile int *stop_search; /* if it becomes not 0, a policy that searches for a plan stops with the best so
                                        far. A signal handler or another thread sets it; borrowed like facts. NULL:
                                        searches are never stopped */
    int64_t trace_bytes; /* buffer for the times of a trace (mm_trace_start); 0: 16 MiB on the host device, none on a
                            GPU. More than 0 makes a GPU time its events */
    /* With self_check, on the host device: if the program touches memory that is closed (mm/README.md, "What self_check
     * finds"), this is called with one line: step, tensor, what to declare. For the life of the manager it installs a
     * handler of SIGSEGV, which then calls the handler that was there before, or ends the process as without it. Called
     * in that handler, so it may only do what a signal handler may; mm_fault_print is one. NULL: no handler */
    void (*fault_fn)(const char *message);
    int64_t verify_issued; /* not 0: hold what is issued against the plan: streams, event records and waits, copies. A
                              difference fails the iteration with MM_ERR_PLAN, and all later ones: node, stream, what is
                              missing. A recording is verified when it is captured. mm_stats.verified counts. Not
                              together with self_check, which issues work of its own */
    /* A disk as a third place: a directory, such as one on an NVMe drive; copied. What does not fit the pinned memory
     * then waits there for its next use, in one file without a name, which bypasses the page cache where the file
     * system can do that. Loops need no change. If the disk is full or fails, so does the call or the iteration that
     * meets it, with MM_ERR_IO; the message names the directory. Homes of persistent tensors may lie there, too. One
     * that could not be written is not read (MM_ERR_IO) until mm_persistent_set has set it. NULL: none */
    const char *disk;
    int64_t disk_bytes;       /* the budget of the disk; with `disk`, more than 0 */
    int64_t disk_bytes_per_s; /* its rate, each way, to plan by, where the facts have none; 0: 500 MB/s */
} mm_options;

/* A mm_options.fault_fn: writes the line to the standard error output. */
MM_API void mm_fault_print(const char *message);

/* Devices and threads. A device's name is KIND or KIND:N, with N from 0; KIND alone is KIND:0. GPUs are numbered as
 * CUDA_VISIBLE_DEVICES leaves them. An unknown name, or a GPU that does not answer, is refused; the message says how
 * many answer. Managers on several GPUs may run concurrently, in one thread by turns or in several threads. The
 * manager's own threads have its GPU as their current device. In the caller's threads each call makes the GPU current,
 * and then restores what was current before (set by cudaSetDevice, or a context of the driver). So the caller's own
 * launches between mm_layer_begin and mm_layer_end need cudaSetDevice(N) before, unless N is 0 and no other GPU was
 * set. */

/* When memory is short. There are three cases: the device gives less than it says it has free; mm_budget_set makes the
 * budget smaller; memory runs out in the middle of an iteration, which then fails with MM_ERR_NOMEM (abort it, and run
 * it again). If the policy's plan no longer fits, the manager runs a substitute from the policy's ladder, the first
 * that fits: the same policy with smaller workspaces, with planned memory in place of allocations, with later decodes,
 * with more swapping; then stronger policies, which recompute cheap layers, recompute segments and swap the rest, or
 * swap while the computation waits. A lossless policy never gets a lossy substitute. Each substitution is logged as a
 * warning, counted (mm_stats.ladder_steps) and reported (MM_EVENT_LADDER). The policy that was set runs again as soon
 * as it fits: after mm_budget_set, mm_policy_set, or when graphs are added. If no substitute fits, MM_ERR_INFEASIBLE
 * says what is needed at least, and nothing changes.
 *
 * Two cases are mistakes rather than shortages, and are refused: MM_ERR_INFEASIBLE for a budget that is too small from
 * the start; MM_ERR_NOMEM, with both numbers, for a budget above what the device has free (the host device:
 * mm_host_memory_get). */

/* mm_manager_create for options of `options_bytes` bytes: sizeof(mm_options) in the caller's header. Members beyond
 * these bytes count as zero. MM_ERR_UNSUPPORTED: the options are longer than this library's, and a byte of what is
 * beyond is not zero, so they are from a newer header. Callers that find functions by name (dlsym) need this one;
 * others call mm_manager_create. */
MM_API MM_CHECKED mm_status mm_manager_create_sized(const mm_options *options, size_t options_bytes,
                                                    mm_manager **manager_out);

/* Creates a manager with its arena and its threads. The options' strings are copied. MM_ERR_INVALID (a value out of
 * range), MM_ERR_NOT_FOUND (policy, device, codec), MM_ERR_NOMEM (the budget), MM_ERR_DEVICE. */
MM_CHECKED static inline mm_status mm_manager_create(const mm_options *options, mm_manager **manager_out) {
    return mm_manager_create_sized(options, sizeof *options, manager_out);
}

/* Writes the measured times of a graph under its present plan to a file for mm_facts_load: mean times of steps, codecs
 * and copies, over all iterations but the first. The manager must have been created with measure_times. The time of a
 * step includes the delay by codecs and copies that ran at the same time; `mm bench --facts` measures several policies,
 * and separates the two. Times that this plan does not measure are those of mm_options.facts. For a graph that is
 * observed (mm_observe), it writes what was learned under all plans that ran, and needs no measure_times. Between
 * iterations. MM_ERR_ORDER: no times were measured; MM_ERR_INVALID: two steps have the same layer name and phase;
 * MM_ERR_IO. */
MM_API MM_CHECKED mm_status mm_facts_save(mm_manager *manager, const mm_graph *graph, const char *path);

/* Aborts an iteration under way, waits for the device, joins the threads, and frees. NULL is legal. */
MM_API void mm_manager_destroy(mm_manager *manager);

/* Plans and checks a graph under the current policy, and places its persistent tensors. Graphs share persistent tensors
 * by name. New ones are zeroed; those of the graph that was prepared first lie lowest in the arena. mm_iteration_begin
 * does the same for a graph that was not prepared. A loop that can recompute layers calls mm_recompute_set first, in
 * place of this call, or later, but before the graph's first iteration: until then plans may recompute, and afterwards
 * they do not without a function. A refusal names policies that need one with "(needs mm_recompute_set)". Between
 * iterations only.
 * MM_ERR_INFEASIBLE (mm_refusal_get says more; mm_requirement_get says what all graphs need together, beforehand): the
 * message names the least budget for this graph and those that are prepared, the layer whose step needs it, the graph
 * whose persistent tensors count in that, and a policy that would fit all, if there is one; nothing changed.
 * MM_ERR_INVALID: another graph has a persistent tensor with that name and another size. MM_ERR_ORDER: the graph is not
 * frozen. */
MM_API MM_CHECKED mm_status mm_manager_prepare(mm_manager *manager, const mm_graph *graph);

/* Forgets a graph, which may then be destroyed. Persistent tensors stay. Between iterations only. Waits for iterations
 * that were ended without waiting, and drops their failures; call mm_manager_sync before to learn of them.
 * MM_ERR_NOT_FOUND: the graph was not prepared. */
MM_API MM_CHECKED mm_status mm_manager_forget(mm_manager *manager, const mm_graph *graph);

/* The policy that runs now: the one that was set, or, if memory is short, its substitute. The text is valid until the
 * policy or the budget is set, a graph is prepared, or an iteration begins or fails. */
MM_API const char *mm_policy_now(const mm_manager *manager);

/* Sets the policy for the following iterations: plans and checks every prepared graph first, then switches all or
 * none. Persistent tensors stay where they are. Between iterations only. MM_ERR_NOT_FOUND (policy, codec),
 * MM_ERR_INVALID (an option), MM_ERR_INFEASIBLE as mm_manager_prepare. MM_ERR_UNSUPPORTED: the policy recomputes layers
 * of a prepared graph for which mm_recompute_set has set no function.
 *
 * A policy that searches (auto) takes up to seconds for a plan. If iterations have run, it is planned on a thread of
 * its own, while the loop goes on under the policy before; the first mm_iteration_begin that finds the plans ready
 * switches (mm_policy_now, MM_EVENT_POLICY). What changes a graph or the budget meanwhile has it planned again. If it
 * cannot be set, the policy before stays, and that is logged as an error; mm_policy_wait returns it. Another
 * mm_policy_set takes its place. A budget that follows the graphs (device_bytes 0) is planned at once, as other
 * policies are. */
MM_API MM_CHECKED mm_status mm_policy_set(mm_manager *manager, const char *policy);

/* Waits until a policy that is planned on a thread is set. Returns its failure, or that of the last one since
 * mm_policy_set, once. Between iterations only. MM_OK also if there is none. */
MM_API MM_CHECKED mm_status mm_policy_wait(mm_manager *manager);

/* Makes the budget smaller, because others need the memory, or larger again, up to what was reserved at creation. The
 * address range stays reserved, so no tensor moves. Plans and checks every prepared graph under the new budget first,
 * under substitute policies if necessary ("When memory is short"). Memory above a smaller budget is given back to the
 * system, except for persistent tensors. Between iterations only. MM_ERR_INFEASIBLE: the message says how much is
 * needed; nothing changed. MM_ERR_NOMEM: other programs have taken the memory meanwhile. MM_ERR_INVALID: not from 1 to
 * the bytes reserved. MM_ERR_UNSUPPORTED as mm_policy_set, for a graph that did not recompute under the old budget. */
MM_API MM_CHECKED mm_status mm_budget_set(mm_manager *manager, int64_t device_bytes);

/* Sets the user's memory for an external tensor: at least as large as the tensor, borrowed until it is replaced.
 * Prepares the graph if it was not. Between iterations only. MM_ERR_INVALID: the tensor is not external. */
MM_API MM_CHECKED mm_status mm_external_set(mm_manager *manager, const mm_graph *graph, mm_tensor tensor, void *data);

/* The address of a persistent tensor's home; NULL if there is no such tensor, or its home is on the disk, or a disk
 * that failed lost its value (mm_persistent_set then sets it anew). *bytes_out (may be NULL): its size, also on the
 * disk; unchanged if there is no such tensor. The address is the same for the manager's life, unless a policy is set
 * whose option resident= is not all, as auto: then mm_manager_prepare, mm_persistent_add, mm_policy_set and
 * mm_budget_set may move homes, also from the device to pinned memory, or to the disk (mm_options.disk), and back, if
 * the budget forces some to leave, or auto expects to be faster so; within a step such a tensor is where mm_tensor_data
 * says. On the host device the caller may read and write its bytes between iterations. (On cuda the CPU cannot reach
 * them: use mm_persistent_get and _set, which also reach the disk.) The call does not wait: after iterations that were
 * ended without waiting, call mm_manager_sync first. */
MM_API void *mm_persistent_data(mm_manager *manager, const char *name, size_t *bytes_out);

/* Copies `bytes` of a persistent tensor, from `offset` on, to `data` (get) or from `data` (set), on any device. Between
 * iterations only; blocks until the copy is done. MM_ERR_NOT_FOUND: no such tensor. MM_ERR_INVALID: more bytes than it
 * has. */
MM_API MM_CHECKED mm_status mm_persistent_get(mm_manager *manager, const char *name, int64_t offset, void *data,
                                              int64_t bytes);
MM_API MM_CHECKED mm_status mm_persistent_set(mm_manager *manager, const char *name, int64_t offset, const void *data,
                                              int64_t bytes);

/* ---- Values: small numbers that change between iterations and are read on the device, such as a bound, or the
 * iteration's number for random numbers. They lie in one persistent tensor, which graphs declare under this name with
 * MM_VALUES_OWN to MM_VALUES_MOST bytes. Steps may only read it; mm_graph_freeze refuses anything else. The manager
 * writes it before each iteration, also before a replayed one, in stream order. So the steps of an iteration see that
 * iteration's values, even if the caller has set others and begun later iterations meanwhile. At most 8 iterations that
 * read values are under way at a time: beginning one more waits. */
#define MM_VALUES "mm.values"
enum {
    /* Offset of the iteration's number (mm_iteration_number_set), an int64_t in the CPU's byte order. */
    MM_VALUES_ITERATION = 0,
    MM_VALUES_OWN = 8, /* offset of the caller's values, which are zero at first */
    MM_VALUES_MOST = 4096,
};

/* Deprecated: declare a persistent tensor of your own, and enqueue a copy to it on mm_compute_stream before the
 * iteration. Sets `bytes` of the values at `offset`, for iterations that begin from now on. Does not wait; `data` is
 * copied. Call it between iterations only. MM_ERR_NOT_FOUND: no prepared graph declares MM_VALUES. MM_ERR_INVALID:
 * bytes outside the caller's values. MM_ERR_NOMEM: at the first call. mm_persistent_set refuses this tensor. */
MM_API MM_CHECKED MM_DEPRECATED("copy to a persistent tensor on mm_compute_stream") mm_status
    mm_values_set(mm_manager *manager, int64_t offset, const void *data, int64_t bytes);

/* Sets the number of the next iteration. The manager's first iteration has number 0. Each iteration that ends, of
 * whatever graph, adds one; 0 follows INT64_MAX. Steps can read it (MM_VALUES_ITERATION), and codecs that round at
 * random use it as their key. So a loop that loads a state sets the number that the state had, and a loop that also
 * evaluates, or runs an iteration again, sets it before each iteration: then a resumed run rounds as one that never
 * stopped. Does not wait. Between iterations only. MM_ERR_INVALID: a negative number. */
MM_API MM_CHECKED mm_status mm_iteration_number_set(mm_manager *manager, int64_t number);

/* Adds a persistent tensor that no graph declares, zeroed: device memory for the caller's own use. Every prepared
 * graph is planned anew around it. Between iterations only. MM_ERR_INFEASIBLE: a graph would no longer fit under the
 * policy that runs now (no substitute is tried); nothing changed. MM_ERR_INVALID: the name is taken or NULL, or bytes
 * <= 0. */
MM_API MM_CHECKED mm_status mm_persistent_add(mm_manager *manager, const char *name, int64_t bytes);

/* Removes a tensor that mm_persistent_add added. Every prepared graph is planned anew without it. Between iterations
 * only. On failure nothing changed. MM_ERR_NOT_FOUND: there is no such tensor. MM_ERR_INVALID: a graph has declared
 * it. MM_ERR_ORDER: persistent tensors that were added later lie above it, and never move. */
MM_API MM_CHECKED mm_status mm_persistent_remove(mm_manager *manager, const char *name);

/* The manager's compute stream, to be passed to mm_layer_begin. It stays the same for the manager's life; the manager
 * owns it. While others capture it into a CUDA graph, calls that begin an iteration or a step return MM_ERR_ORDER.
 * On cuda, mm's streams are non-blocking ones: they do not synchronise with the legacy default stream. So work that a
 * program enqueues without a stream (cudaMemset, cudaMemcpy, a launch with two arguments) is not ordered with the
 * steps, and races with them: give it this stream, or run the steps on the program's own (mm_layer_begin_on). */
MM_API mm_stream *mm_compute_stream(mm_manager *manager);

/* The device's own handle of a stream, for launches and libraries: on cuda a cudaStream_t, which the manager owns.
 * NULL on the host device, where a loop computes on its own thread. Call this in each step, after mm_layer_begin: with
 * measure_times, the step's time counts from this call. */
MM_API void *mm_stream_handle(mm_stream *stream);

/* Begins an iteration of the graph, and prepares the graph if it was not. MM_ERR_ORDER: an iteration is under way, or
 * an external tensor has no memory yet. MM_ERR_UNSUPPORTED: the plan recomputes, and no mm_recompute_fn is set.
 * Otherwise the errors of mm_manager_prepare. */
MM_API MM_CHECKED mm_status mm_iteration_begin(mm_manager *manager, const mm_graph *graph);

/* Ends the iteration: waits for every stream. Returns the first failure of the iteration that no call has returned
 * yet. */
MM_API MM_CHECKED mm_status mm_iteration_end(mm_manager *manager);

/* Ends the iteration without waiting for the device. Tasks that are enqueued on the compute stream afterwards, such as
 * the next iteration's, run after all of this one. Returns only failures to enqueue. A failure while running is
 * returned by a later call that waits: mm_manager_sync, mm_iteration_end of a later iteration, or a call that needs
 * the manager to be idle and so waits first (mm_persistent_get and _set, changes of policy, budget or graphs). Waits
 * like mm_iteration_end if results must be inspected: self_check, measure_times, plans that place tensors at run time
 * (naive forms). */
MM_API MM_CHECKED mm_status mm_iteration_end_async(mm_manager *manager);

/* Waits for all iterations that were ended without waiting. The first call that waits returns a failure of any of them,
 * and clears it (mm_manager_forget drops it). Iterations that were enqueued after the failed one may not have run.
 * Between iterations only. */
MM_API MM_CHECKED mm_status mm_manager_sync(mm_manager *manager);

/* ---- Replaying an iteration. If iterations differ only in the contents of memory, the tasks of one can be recorded
 * and then enqueued with one call (on cuda, as a CUDA graph). The host then spends no time on each layer.
 *
 *   if (mm_replay_state(m, graph) == MM_REPLAY_MAY) {
 *       mm_record_begin(m, graph);  ... every step as in an iteration; nothing runs ...  mm_record_end(m);
 *   }
 *   mm_iteration_replay(m, graph);
 *
 * Pointers and arguments are those of the recording. A change of policy, budget, external memory, persistent tensors
 * or recompute function drops the recording. */
typedef enum mm_replay_state_id {
    MM_REPLAY_NO = 0, /* cannot be recorded (the log says once why), or not yet: no iteration has run under this plan */
    MM_REPLAY_MAY = 1,   /* can be recorded: call mm_record_begin */
    MM_REPLAY_READY = 2, /* is recorded: call mm_iteration_replay */
} mm_replay_state_id;

MM_API mm_replay_state_id mm_replay_state(const mm_manager *manager, const mm_graph *graph);

/* Begins an iteration whose tasks, until mm_record_end, are recorded instead of run. Pass the compute stream to every
 * step. MM_ERR_UNSUPPORTED: MM_ISSUE_THREAD, tensors placed at run time, self_check, measure_times, or a device that
 * cannot record. If this or any call before mm_record_end fails, call mm_iteration_abort: recording is not tried again
 * under this plan, and iterations run step by step. */
MM_API MM_CHECKED mm_status mm_record_begin(mm_manager *manager, const mm_graph *graph);
MM_API MM_CHECKED mm_status mm_record_end(mm_manager *manager);

/* Runs a whole iteration as recorded, and ends it like mm_iteration_end_async. MM_ERR_ORDER: there is no recording. */
MM_API MM_CHECKED mm_status mm_iteration_replay(mm_manager *manager, const mm_graph *graph);

/* Gives up the iteration: waits for its streams and drops its managed tensors. Persistent tensors stay as the steps
 * that have run left them; with self_check, those that the step under way declares MM_WRITE are lost. A failure of
 * earlier iterations that were ended without waiting stays, for a later call that waits. The manager can be used
 * afterwards. Outside of an iteration, and for NULL, it does nothing. */
MM_API void mm_iteration_abort(mm_manager *manager);

/* Begins the next step, which must be (layer, phase): else MM_ERR_ORDER, and nothing changed.
 * With `stream` (mm_compute_stream): makes the stream wait for what the step needs; the caller enqueues its work there.
 * With NULL: blocks until the inputs are there; the caller computes on its own thread before mm_layer_end.
 * Returns a failure of any operation that the step waits for; abort the iteration then. */
MM_API MM_CHECKED mm_status mm_layer_begin(mm_manager *manager, mm_layer layer, mm_phase phase, mm_stream *stream);

/* Ends the step. Never blocks, with two exceptions: the naive forms under MM_ISSUE_INLINE allocate on this thread, and
 * self_check waits for its tests if the caller computed the step on its own thread. MM_ERR_INVALID: self_check found
 * that the step does not do what it declares; abort the iteration then. MM_ERR_ORDER unless that step was begun. */
MM_API MM_CHECKED mm_status mm_layer_end(mm_manager *manager, mm_layer layer, mm_phase phase);

/* The address of a tensor that the current step uses, valid until mm_layer_end; NULL for any other tensor: then
 * mm_last_error names the step, the tensor, and the tensors that the step uses, and within a step this is logged as an
 * error; under self_check mm_layer_end then fails with it. Addresses of persistent and external tensors are available
 * at any time within the iteration. */
MM_API void *mm_tensor_data(mm_manager *manager, mm_tensor tensor);

/* What mm_tensor_data points to, for a tensor that the step reads: the elements (MM_FORM_VALUE); the mask's bits
 * (MM_FORM_SIGN), only if the step declared a read of MM_FORM_SIGN; or a code (MM_FORM_CODE), only if it declared that
 * it can read one (mm_graph_allow_code). */
MM_API mm_form mm_tensor_form(mm_manager *manager, mm_tensor tensor);

/* Whether a managed tensor that the step reads has exactly the bits that were first written to it. If so, the step may
 * recompute from it, exactly, other tensors that depend on it alone, instead of reading them. False if a lossy codec
 * decoded the tensor, if it was recomputed from such a tensor, or if its segment holds such contents at another time of
 * the iteration. Other recomputed tensors count as exact, because mm_recompute_fn promises the same bits. */
MM_API bool mm_tensor_exact(mm_manager *manager, mm_tensor tensor);

/* Whether an output of the step holds its value already, so that the step must read it and not write it. True only
 * while a step is recomputed, for outputs declared with mm_graph_allow_given. */
MM_API bool mm_tensor_given(mm_manager *manager, mm_tensor tensor);

/* Recomputes a layer: runs its forward step again. mm_layer_begin of the step that needs the output calls it, on the
 * driving thread. It gets addresses from mm_tensor_data, as in the forward step; they may differ from the first time.
 * It enqueues its tasks on `stream` (NULL: computes before it returns). It must produce the same bits as the first
 * time: it uses the same random numbers, and does not change persistent tensors again (running statistics). */
typedef mm_status (*mm_recompute_fn)(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

/* Sets the function that recomputes layers of a graph, and prepares the graph if it was not. It stays set when the
 * policy changes. It may be set after mm_manager_prepare, of this graph and others: plans may recompute already then,
 * and mm_iteration_begin refuses such a plan until the function is set. Plans that are made when the policy or the
 * budget is set, or once the graph has begun an iteration, never recompute without it: policies that would are refused
 * (MM_ERR_UNSUPPORTED), and `auto` leaves recomputing out. Between iterations only. */
MM_API MM_CHECKED mm_status mm_recompute_set(mm_manager *manager, const mm_graph *graph, mm_recompute_fn fn, void *ctx);

/* The current step's workspace, 256-byte aligned; NULL if it has none. */
MM_API void *mm_workspace_data(mm_manager *manager);

/* The workspace's bytes: one of the sizes declared with mm_graph_add_step and mm_graph_allow_workspace. */
MM_API size_t mm_workspace_bytes(mm_manager *manager);

/* The current step's index among the graph's steps; -1 outside of a step. */
MM_API int mm_current_step(const mm_manager *manager);

/* The present budget: mm_options.device_bytes, or less if the device gave less or mm_budget_set made it smaller. From
 * any thread. */
MM_API int64_t mm_manager_device_bytes(mm_manager *manager);

/* The name, and in *summary_out (may be NULL) a line about it, of the i-th policy, codec or device; NULL past the last.
 * Static strings. */
MM_API const char *mm_policy_list(size_t i, const char **summary_out);
MM_API const char *mm_codec_list(size_t i, const char **summary_out);
MM_API const char *mm_device_list(size_t i, const char **summary_out);

/* ---------------------------------------------------------------- experimental
 *
 * What follows may change with any minor version. */

/* Memory of the host, as this process may use it: for mm_options.pinned_bytes, and on the device host for device_bytes.
 * Control groups (of a container, a service, a batch system) may allow less than the machine has. */
typedef struct mm_host_memory {
    int64_t machine_bytes; /* the machine's physical memory */
    int64_t total_bytes;   /* the same, or the least limit of the process's control groups, if that is less */
    int64_t free_bytes;    /* what the process can take now without swapping, and without being killed or throttled */
} mm_host_memory;

/* Does nothing if the argument is NULL. Reads files of /proc and /sys: some hundred microseconds. Any thread. */
MM_API void mm_host_memory_get(mm_host_memory *memory_out);

/* Begins the next step, as mm_layer_begin does, for work that the caller enqueues on a stream of its own: on cuda any
 * cudaStream_t of the manager's GPU (NULL: the legacy default stream), on the host NULL, as for mm_layer_begin. The
 * stream waits for what the step needs; mm_layer_end makes later steps wait for all that is enqueued on it by then.
 * Steps of one iteration may use different streams. The caller keeps the stream alive until the iteration has ended.
 * A mm_recompute_fn that is called here may enqueue on its `stream`, or on the caller's, but not on both. Costs two
 * events and two waits a step more than mm_compute_stream. MM_ERR_ORDER also: the stream is being captured into a CUDA
 * graph. MM_ERR_UNSUPPORTED: the iteration is recorded for replay (mm_record_begin), which takes mm's own stream. */
MM_API MM_CHECKED mm_status mm_layer_begin_on(mm_manager *manager, mm_layer layer, mm_phase phase, void *stream);

/* Declares that the step added last, of the phase MM_UPDATE, runs on the host: on CPUs, beside the device's steps. Its
 * tensors have their homes in pinned memory, under any policy, where the step finds them; or on the disk, if pinned
 * memory has no room for an optimizer's states, which plans then load to pinned memory before the step and store after
 * it. For the device's steps plans fetch copies, and send home what these write. So an optimizer's states need no
 * memory of the device. It begins with mm_layer_begin. With a stream there, enqueue its work on mm_host_stream
 * instead; with NULL, do it before mm_layer_end. Later steps that use what it writes wait for it. It is never recorded
 * (mm_record_begin). MM_ERR_ORDER: there is no step. MM_ERR_INVALID: the step has another phase, a workspace, or a
 * tensor that is not persistent or is all-reduced. mm_graph_freeze also refuses that the graph's first step uses such
 * a tensor. */
MM_API MM_CHECKED mm_status mm_graph_run_on_host(mm_graph *graph);

/* The stream of steps on the host, for tasks of the CPU; within such a step only, else NULL. The manager owns it. */
MM_API mm_stream *mm_host_stream(mm_manager *manager);

/* A code that a step reads or writes by itself, strip by strip (mm_strips), instead of a codec that does it before or
 * after the step. */
typedef struct mm_code_use {
    mm_tensor tensor; /* a managed tensor of f32 that the step uses */
    mm_access access; /* MM_READ: it can read a code in place of the elements. MM_WRITE: it can also write a code of the
                         elements that it reads or writes */
    const char *codec;      /* the codec's name without options, such as "zfp"; copied */
    size_t workspace_bytes; /* bytes of extra workspace that the step needs for it; mm_workspace_data then has room for
                               these and the step's own */
    int workspace_strips;   /* the extra workspace also has room for the elements of so many strips; only for MM_READ */
    int passes;             /* how many times the step decodes the whole code; only for MM_READ, at least 1 */
} mm_code_use;

/* Declares for the step added last that it can read or write a code by itself. The policy decides whether it does
 * (mm_tensor_coded). MM_ERR_INVALID: the step has no such use of the tensor; the tensor is not managed or not f32; the
 * name is no codec's, or longer than 23 characters; or it is declared twice. */
MM_API MM_CHECKED mm_status mm_graph_allow_code(mm_graph *graph, const mm_code_use *code);

/* A code as a sequence of strips, each of which any thread can encode and decode by itself. The elements are f32, in
 * the tensor's order. They are divided into periods (a map's images); a period's last strip has what remains of it:
 *
 *      elements  | strip | strip | rest | strip | strip | rest | ...      strip s of the code is the bytes from
 *                |<--- period_elems --->|                                 s * strip_bytes on
 */
typedef struct mm_strips mm_strips;
struct mm_strips {
    int64_t elems;        /* number of elements of the tensor, a multiple of period_elems */
    int64_t period_elems; /* number of elements of a period */
    int64_t strip_elems;  /* number of elements of a strip, unless it is the last of its period */
    int64_t strip_bytes;  /* bytes of the code of a strip */
    /* Decode or encode strips first to first + n - 1. elems: those of these strips only. Concurrent calls must work on
     * different strips. counters: mm_coded.counters. They never fail. decode: NULL for a code of signs. Both are NULL
     * on CUDA, where the step's own kernels do the work. */
    void (*decode)(const mm_strips *strips, const void *code, int64_t first, int64_t n, float *elems_out);
    void (*encode)(const mm_strips *strips, const float *elems, int64_t first, int64_t n, void *code_out,
                   void *counters);
    int32_t blocks; /* on CUDA: mm_code_blocks, the device functions for this code (pipeline/codec/block/code_blocks.h);
                       else 0 */
};

/* A code that the current step reads or writes. */
typedef struct mm_coded {
    const mm_strips *strips; /* valid until the graph is planned anew */
    void *code;
    void *counters; /* for the statistics: the argument of mm_strips.encode */
} mm_coded;

/* Gets the code of a tensor that the current step must write (MM_WRITE), or reads in place of the elements (MM_READ).
 * False: there is none. */
MM_API bool mm_tensor_coded(mm_manager *manager, mm_tensor tensor, mm_access access, mm_coded *coded_out);

/* ---- Sampling. A policy that chooses the error bounds of its codes by measurements (comet) samples: it measures
 * tensors in a graph's first iteration and in every W-th after it. An iteration that samples runs step by step, with
 * lossless codes, and ends like mm_iteration_end. mm_replay_state is MM_REPLAY_NO before it; replays do not sample. The
 * loop need not do anything for that. But it can report what the bounds did to the weights' gradients, and the policy
 * compares that with what it predicted:
 *
 *   bool guards = mm_sampling_guards(m, graph);
 *   if (guards) {
 *       mm_rehearsal_begin(m, graph);  ... every step of the iteration that comes next, with its batch, but nothing
 *                                          that persists is changed, gradients aside ...
 *       mm_iteration_abort(m);         ... keep the gradients of the weights ...
 *   }
 *   ... the iteration ...
 *   if (guards) mm_sampling_report(m, graph, weight, deviation of the gradient from the kept one);  for each weight */

/* Whether the next iteration samples, and the policy compares gradients. False for NULL. */
MM_API bool mm_sampling_guards(const mm_manager *manager, const mm_graph *graph);

/* Begins an iteration that does not sample, is not counted, and can only be aborted. Errors of mm_iteration_begin. */
MM_API MM_CHECKED mm_status mm_rehearsal_begin(mm_manager *manager, const mm_graph *graph);

/* Reports the standard deviation of the error of a weight's gradient, after an iteration that sampled and before the
 * next. NaN counts as infinite: the layer's codes are then lossless until the next sample. A deviation of 0 tightens no
 * bound. MM_ERR_NOT_FOUND: not a weight (MM_WEIGHT) of a layer that was sampled. MM_ERR_ORDER: the last iteration of
 * the graph did not sample. */
MM_API MM_CHECKED mm_status mm_sampling_report(mm_manager *manager, const mm_graph *graph, mm_tensor weight,
                                               double sigma);

/* The number of iterations of the graph since the last one that sampled, that one included; -1: none has sampled. The
 * next iteration samples if the number is -1, or at least W. A saved state needs this number and the bounds. The policy
 * judges pending samples in this call, so call mm_sampling_report before. Between iterations. MM_ERR_NOT_FOUND: the
 * graph was not prepared. */
MM_API MM_CHECKED mm_status mm_sampling_age(mm_manager *manager, const mm_graph *graph, int64_t *age_out);
/* Sets the number that mm_sampling_age returns. To be called when a state is loaded, when a loop undoes an iteration,
 * or for a graph that runs several times for each update and is to sample once in W updates. Errors of mm_sampling_age;
 * MM_ERR_INVALID: age is below -1. */
MM_API MM_CHECKED mm_status mm_sampling_age_set(mm_manager *manager, const mm_graph *graph, int64_t age);

#ifdef __cplusplus
}
#endif

#ifndef MM_NO_DEPRECATED
#include "mm/mm_deprecated.h"
#endif
#endif
