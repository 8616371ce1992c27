/* SPDX-License-Identifier: MIT */
/* Planning without an arena: what graphs would need, as data; refusals as data; graphs and plans as files. Include
 * mm/mm.h, which includes it. Experimental: it may change with any minor version.
 *
 *   mm_requirement *needs;
 *   mm_plan_limits limits = {.device_bytes = 8 << 20};
 *   mm_requirement_get(graphs, n, NULL, "liveness", &limits, &needs);
 *   ... needs->least_bytes, needs->fits, needs->advised.policy ...
 *   mm_requirement_destroy(needs);
 *
 * Nothing here runs a step or reserves memory of a device. All functions may be called from any thread, concurrently on
 * different objects; they read frozen graphs and facts only. */
#ifndef MM_MM_PLAN_H
#define MM_MM_PLAN_H

#include "mm/mm_base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MM_PLAN_NAME_CAPACITY = 256,    /* bytes of a name here, with its NUL; a longer name is cut, and ends in "..." */
    MM_PLAN_MESSAGE_CAPACITY = 512, /* bytes of a message, with its NUL */
};

/* ---------------------------------------------------------------- graphs as files
 *
 * A file of graphs is JSON (UTF-8). Keys in parentheses may be left out; their defaults are named. All other keys must
 * be there. Keys that are not listed are refused, except at the top level: a file may say more about its graphs.
 *
 *   { "format": "mm graph", "version": 1,
 *     "graphs": [ { "name": "training",
 *       "tensors": [ { "name": "w1", "kind": "weight", "ownership": "persistent", "dtype": "f32", "dims": [32, 256],
 *                      ("weight": the weight's name, of a gradient or an optimizer state; none),
 *                      ("allreduce": { "when": "at once", "as": "sum" }; not all-reduced) } ],
 *       "layers":  [ { "name": "linear1", "kind": "linear", "cost": "expensive", "repeatable": true,
 *                      ("parts": further names, of a fused layer's parts; []) } ],
 *       "steps":   [ { "layer": its index in "layers", "phase": "forward", "workspace_bytes": 0,
 *                      "uses": [ { "tensor": "w1", "access": "read", ("form": "sign"; "value") } ],
 *                      ("less_workspace_bytes": smaller workspaces, falling; []),
 *                      ("pairs": [ { "allow": "inplace" or "alias", "input": "h", "output": "r" } ]; []),
 *                      ("given": names of outputs that may be given; []),
 *                      ("codes": [ { "tensor": "h", "access": "read", "codec": "zfp", "workspace_bytes": 0,
 *                                    "workspace_strips": 0, "passes": 1 } ]; []),
 *                      ("on_host": true; the step runs on the device) } ] } ] }
 *
 * Names of kinds, phases and types are those of mm_tensor_kind_name, mm_layer_kind_name, mm_phase_name and
 * mm_dtype_name. Ownership: "managed", "persistent", "external". When: "at once", "at end", "in place at once", "in
 * place at end"; as: "sum", "mean". Tensors, layers and steps are in the order of their declaration. A graph that is
 * read back gets the same plans as the one that was written. A later version of mm reads all earlier versions; a file
 * of a later version is refused, and the message says so.
 *
 * MM_SAVE_GRAPH. If this variable of the environment names a file, every manager writes its graphs there whenever a
 * graph is prepared, also if the graph is then refused: all that it has prepared, in this order, and the new one. `mm
 * plan --graph FILE` reads the file. If it cannot be written, the manager's log has a warning. A program that runs with
 * another user's rights (setuid) does not read the variable. */

/* Writes frozen graphs to a file, atomically. MM_ERR_ORDER: a graph is not frozen. MM_ERR_INVALID: n is 0, or a name is
 * not UTF-8 or has control characters. MM_ERR_IO. */
MM_API MM_CHECKED mm_status mm_graph_save(const mm_graph *const *graphs, size_t n, const char *path);

/* Reads all graphs of a file; they are frozen. The caller frees them, and the list, with mm_graph_list_destroy.
 * MM_ERR_IO. MM_ERR_FORMAT: not a file of graphs, or of a later version, or what it declares is not valid; the message
 * names the file and the place in it. Files of more than 256 MiB or 1024 graphs, and steps with more than 16384 pairs,
 * codes or smaller workspaces, are refused, too. */
MM_API MM_CHECKED mm_status mm_graph_load(const char *path, mm_graph ***graphs_out, size_t *n_out);
/* NULL is legal. No manager may have one of the graphs prepared. */
MM_API void mm_graph_list_destroy(mm_graph **graphs, size_t n);

/* ---------------------------------------------------------------- plans as files
 *
 * A file of plans is text, one JSON object a line; mm/core/plan/FORMAT.md describes it. It holds all that a proof of
 * the plans needs: graph, sizes, places, what is issued on which stream, and what waits for what. Anyone can read it,
 * check it, and run it: the policy "plan:FILE" (mm_options.policy, mm_policy_set) takes the plan of each graph from the
 * file, by the graph's name, and proves it anew. It refuses a graph that is not the file's, and other sizes. */

/* Writes the plans under which a manager runs n of its graphs to a file, atomically; graphs NULL: all that are
 * prepared, in the order of their preparation. To be called by the thread that drives the manager. MM_ERR_NOT_FOUND: a
 * graph is not prepared, or none is. MM_ERR_INVALID: a name is not UTF-8 or has control characters. MM_ERR_IO,
 * MM_ERR_NOMEM. */
MM_API MM_CHECKED mm_status mm_plan_save(const mm_manager *manager, const mm_graph *const *graphs, size_t n,
                                         const char *path);

/* ---------------------------------------------------------------- what holds memory */

/* What bytes on the device are for. */
typedef enum mm_held_kind {
    MM_HELD_WEIGHT = 0,
    MM_HELD_WEIGHT_GRADIENT = 1,
    MM_HELD_OPTIMIZER = 2,
    MM_HELD_STATE = 3,
    MM_HELD_OTHER = 4,       /* alignment, and persistent tensors that only other graphs declare */
    MM_HELD_STASH = 5,       /* inputs, feature maps and saved tensors that wait for the backward pass */
    MM_HELD_CODE = 6,        /* codes of such */
    MM_HELD_BUFFER = 7,      /* tensor buffers */
    MM_HELD_FEATURE_MAP = 8, /* inputs, feature maps and saved tensors that only one pass uses */
    MM_HELD_GRADIENT_MAP = 9,
    MM_HELD_WORKSPACE = 10,
    MM_HELD_KINDS
} mm_held_kind;

/* The kind's name, such as "gradient maps"; "unknown" for a number that is no kind. Static. */
MM_API const char *mm_held_kind_name(mm_held_kind kind);

/* What is known of a policy that would fit. */
typedef enum mm_advice_kind {
    MM_ADVICE_NONE = 0,        /* nothing */
    MM_ADVICE_FITS = 1,        /* the policy would fit */
    MM_ADVICE_PINNED = 2,      /* it would fit with more pinned memory, mm_advised.pinned_bytes */
    MM_ADVICE_NEEDS_LEAST = 3, /* no policy would fit; of all, this one needs least */
} mm_advice_kind;

/* A policy, and what its plans of all graphs were found to take. */
typedef struct mm_advised {
    mm_advice_kind kind;
    char policy[MM_PLAN_NAME_CAPACITY]; /* for mm_options.policy; "": none */
    int64_t device_bytes, pinned_bytes;
    bool lossy;
    bool needs_recompute_set; /* its plans recompute layers: the loop must call mm_recompute_set */
} mm_advised;

/* ---------------------------------------------------------------- what graphs need */

/* What to plan for. Zero is every member's default, and right unless it is said otherwise. */
typedef struct mm_plan_limits {
    const char *device;              /* as mm_options.device; it need not answer if the build has it */
    int64_t device_bytes;            /* the budget; 0: none, so the plans are the smallest */
    int64_t pinned_bytes;            /* the budget of host memory; INT64_MAX: no limit */
    int64_t disk_bytes;              /* the budget of a disk (mm_options.disk); 0: there is none */
    int64_t disk_bytes_per_s;        /* as mm_options.disk_bytes_per_s */
    int64_t link_bytes_per_s;        /* as mm_options.link_bytes_per_s */
    bool no_recompute;               /* the loop sets no function that recomputes layers (mm_recompute_set) */
    bool no_advice;                  /* do not look for a policy that would fit, which takes far longer than all else */
    const volatile int *stop_search; /* as mm_options.stop_search */
} mm_plan_limits;

/* Live device bytes at a step. */
typedef struct mm_held_step {
    int step; /* index in the graph */
    mm_phase phase;
    int64_t live_bytes;
    int64_t held[MM_HELD_KINDS]; /* their sum is live_bytes */
} mm_held_step;

/* What a plan does with a map that waits for the backward pass. Several may apply to one map, but none beside KEEP. */
typedef enum mm_map_action {
    MM_MAP_KEEP = 0,          /* it stays on the device */
    MM_MAP_MASK = 1,          /* its signs are kept, one bit each; the backward pass reads nothing else of it */
    MM_MAP_COMPRESS = 2,      /* a code of it stays on the device */
    MM_MAP_RECOMPUTE = 3,     /* forward steps run again in the backward pass */
    MM_MAP_SWAP = 4,          /* it is copied to host memory and back */
    MM_MAP_COMPRESS_SWAP = 5, /* a code of it is copied to host memory and back */
    MM_MAP_ACTIONS
} mm_map_action;

/* The action's name, such as "compress-swap"; "unknown" for a number that is no action. Static. */
MM_API const char *mm_map_action_name(mm_map_action action);

/* A managed map or saved tensor that the forward pass writes and the backward pass reads. */
typedef struct mm_stashed {
    mm_tensor tensor; /* in the graph; the first of those that share its bytes */
    char name[MM_PLAN_NAME_CAPACITY];
    int64_t bytes;
    int64_t held_bytes; /* what it takes of the device between the passes, as itself or as a code */
    uint32_t actions;   /* bit k: mm_map_action k applies */
    char codec[64];     /* spec of the codec of its elements; "": none */
    int64_t ns;         /* time of what is done with it, each part running alone; 0: not known. A step that computes
                           several maps again counts with each */
} mm_stashed;

/* A memory in which persistent tensors are between iterations. */
typedef enum mm_home_memory {
    MM_HOME_DEVICE = 0,
    MM_HOME_PINNED = 1, /* page-locked host memory */
    MM_HOME_DISK = 2,
    MM_HOME_MEMORIES
} mm_home_memory;

/* The memory's name, "device", "pinned" or "disk"; "unknown" for a number that is no memory. Static. */
MM_API const char *mm_home_memory_name(mm_home_memory memory);

/* A copy on the device of a persistent tensor whose home is elsewhere. */
typedef struct mm_home_visit {
    int begin, end; /* indices in the timeline: the first and the last step at which it is there. One that comes or
                       goes between two steps is there from, or to, the step before; if there is none, the first */
} mm_home_visit;

/* A persistent tensor with its home. */
typedef struct mm_housed {
    mm_tensor tensor; /* in the graph */
    char name[MM_PLAN_NAME_CAPACITY];
    mm_tensor_kind kind;
    mm_home_memory home;
    int64_t bytes;
    const mm_home_visit *visits; /* in the order of their beginnings; none of a tensor at home on the device, nor of
                                    one that only steps on the host use */
    int n_visits;
} mm_housed;

/* What one graph needs, beside all others in one arena. */
typedef struct mm_graph_requirement {
    char graph[MM_PLAN_NAME_CAPACITY];
    int64_t least_bytes;   /* the lowest peak of the policy's plans within the pinned memory */
    int64_t planned_bytes; /* peak of the plan within the budget; least_bytes if it does not fit, or there is none */
    int64_t pinned_bytes;  /* host memory that this plan takes */
    int64_t disk_bytes;    /* bytes of the disk that it takes */
    int64_t moved_bytes;   /* bytes that it copies to and from host memory in an iteration */
    int64_t stored_bytes;  /* bytes that it copies to and from the disk in an iteration */
    int64_t stash_bytes;   /* device bytes between the passes */
    int64_t other_bytes;   /* of least_bytes: persistent tensors that only other graphs declare */
    int64_t iteration_ns;  /* predicted time of an iteration; 0: the facts have no times of it */
    int64_t bound_ns;      /* if the plan fits: no plan of these bytes and these codecs takes less; 0: not known */
    int steps;             /* number of steps */
    int steps_again;       /* number of steps that the plan recomputes */
    int held_step;         /* the step with most live bytes */
    char held_by[MM_PLAN_NAME_CAPACITY]; /* its name, such as "conv1 backward" */
    int64_t live_bytes;                  /* live bytes at that step; planned_bytes less these are gaps */
    int64_t held[MM_HELD_KINDS];         /* live_bytes by what they are for */
    const mm_held_step *timeline;        /* in the order of execution */
    int n_timeline;
    const mm_stashed *stashed; /* what the plan does with each map, the largest map first */
    int n_stashed;
    const mm_housed *housed; /* all persistent tensors, in the order of the graph's; none if all are at home on the
                                device */
    int n_housed;
} mm_graph_requirement;

/* What all graphs need together: they run one after the other in one arena, and share persistent tensors by name. The
 * library allocates it; mm_requirement_destroy frees it with all that it points to. */
typedef struct mm_requirement {
    const char *policy;       /* as given */
    bool lossy;               /* it may use a lossy codec */
    bool fits;                /* a manager with these limits would start, if the device has the memory */
    bool needs_recompute_set; /* a plan recomputes layers: the loop must call mm_recompute_set */
    int64_t device_bytes;     /* the limits */
    int64_t pinned_limit_bytes;
    int64_t disk_limit_bytes; /* 0: there is no disk */
    int64_t least_bytes;   /* the least budget: a manager with so much starts, with less it refuses. Of a policy whose
                                 option resident= is not all, as auto, a little less may do */
    int64_t planned_bytes; /* most bytes of any plan within the budget; least_bytes if it does not fit, or there is
                                 none */
    int64_t pinned_bytes;  /* most host memory of any of these plans */
    int64_t disk_bytes;    /* most bytes of the disk of any of them */
    int64_t persistent_bytes; /* of least_bytes: persistent tensors of all graphs, aligned */
    int64_t iteration_ns;     /* an iteration of each graph together; 0: the time of one is not known */
    int n_graphs;
    int most; /* index of the graph that needs most */
    const mm_graph_requirement *graphs;
    mm_advised advised;     /* if it does not fit: what would; a lossless policy if there is one */
    mm_advised recomputing; /* the same among lossless policies that need mm_recompute_set, if no_recompute is set */
    const char *refusal;    /* if it does not fit: why, in the words of a manager; else "" */
} mm_requirement;

/* Plans n frozen graphs under a policy within limits, as a manager would, which prepares them in this order. facts:
 * measured times; NULL: none. limits NULL: all zero. That the plans do not fit is no failure: fits is false. The caller
 * destroys *requirement_out. MM_ERR_INVALID: no graph, a negative limit, an option of the policy, or a persistent
 * tensor with two sizes. MM_ERR_ORDER: a graph is not frozen. MM_ERR_NOT_FOUND: policy, codec, device. */
MM_API MM_CHECKED mm_status mm_requirement_get(const mm_graph *const *graphs, size_t n, const mm_facts *facts,
                                               const char *policy, const mm_plan_limits *limits,
                                               mm_requirement **requirement_out);
/* NULL is legal. */
MM_API void mm_requirement_destroy(mm_requirement *requirement);

/* Writes a requirement as text of several lines, for people: as `mm plan --graph` prints it. The caller frees it. */
MM_API MM_CHECKED mm_status mm_requirement_text(const mm_requirement *requirement, char **text_out);

/* Writes a requirement as a JSON object: its members under their names, but for counts of arrays; `held` by names of
 * kinds with "_" for blanks; `actions` by their names; times and codecs that are not known or none, no limit, and
 * advice of MM_ADVICE_NONE as null. The caller frees it. MM_ERR_INVALID: a name is not UTF-8. */
MM_API MM_CHECKED mm_status mm_requirement_json(const mm_requirement *requirement, char **text_out);

/* ---------------------------------------------------------------- refusals of a manager */

/* The latest MM_ERR_INFEASIBLE of a manager, as data. */
typedef struct mm_refusal {
    char message[MM_PLAN_MESSAGE_CAPACITY];  /* as mm_last_error had it */
    char policy[MM_PLAN_NAME_CAPACITY];      /* the policy that does not fit */
    char graph[MM_PLAN_NAME_CAPACITY];       /* of the prepared graphs and the new one, that which needs most */
    char held_by[MM_PLAN_NAME_CAPACITY];     /* the step that needs it, such as "conv1 backward" */
    int64_t needed_bytes;                    /* the least budget of the policy for these graphs; 0: it is not known */
    int64_t needed_pinned_bytes;             /* host memory of the plan that needs needed_bytes */
    int64_t device_bytes, pinned_bytes;      /* what there is */
    int64_t held[MM_HELD_KINDS];             /* live bytes at held_by, by what they are for */
    int64_t other_bytes;                     /* of needed_bytes: persistent tensors that `graph` does not declare */
    char other_graph[MM_PLAN_NAME_CAPACITY]; /* the graph that declares most of these; "": none does */
    mm_advised advised;                      /* a policy that would fit */
    mm_advised recomputing; /* a lossless policy that would fit with mm_recompute_set, which was not called yet */
} mm_refusal;

/* The latest refusal of this manager, copied. False: there was none, or an argument is NULL. To be called by the thread
 * that drives the manager. */
MM_API bool mm_refusal_get(const mm_manager *manager, mm_refusal *refusal_out);

#ifdef __cplusplus
}
#endif
#endif
