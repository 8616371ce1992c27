/* What a policy does, in types: the configuration that its spec is parsed into, once. Specs are text for people. */
#ifndef POLICIES_CONFIG_H
#define POLICIES_CONFIG_H

#include "mm/core/plan.h"
#include "policies/selector.h"

/* Where bytes lie. */
typedef enum mm_region {
    MM_REGION_GENERAL, /* placed by lifetime */
    MM_REGION_CODES,   /* the sliding compression workspace */
    MM_REGION_BUFFERS, /* the persistent tensor buffers */
    MM_REGION_HEAP,    /* placed at run time */
    MM_REGION_PINNED,  /* pinned host memory, placed by lifetime */
    MM_REGIONS
} mm_region;

typedef enum mm_action {
    MM_ACTION_KEEP,
    MM_ACTION_CODE,      /* compressed, on the device */
    MM_ACTION_SWAP,      /* in pinned memory */
    MM_ACTION_CODE_SWAP, /* compressed, in pinned memory */
    MM_ACTION_RECOMPUTE, /* dropped, made again from what its layer read */
} mm_action;

/* What is run again, and how long what it makes is kept. */
typedef enum mm_recompute_mode {
    MM_RECOMPUTE_SPEED,  /* cheap layers once; what they make on the way is kept until its last backward use */
    MM_RECOMPUTE_MEMORY, /* cheap layers anew for each backward step; nothing is kept */
    MM_RECOMPUTE_COST,   /* for each segment, maps made of one another: as SPEED if all of it is at most what the
                            largest layer's step takes, else as MEMORY (SuperNeurons' cost-aware recomputation). A sum
                            or concatenation that would make its segment larger than that is kept, as SuperNeurons
                            keeps all of them: along a chain of residual blocks MEMORY takes quadratic time */
    MM_RECOMPUTE_SQRT,   /* all layers, convolutions too, within about sqrt(n) segments; once (Chen et al.) */
} mm_recompute_mode;

typedef struct mm_rule {
    mm_selector selector;
    mm_action action;
    char codec[MM_SPEC_CAPACITY];
    bool mask; /* CODE: the exact mask, for maps of which only the sign is read */
} mm_rule;

typedef enum mm_fetch {
    MM_FETCH_DEPTH,  /* `depth` maps when the backward pass begins, then one more for each it has finished with */
    MM_FETCH_LAYER,  /* one backward step ahead (vDNN) */
    MM_FETCH_DEMAND, /* when it is needed */
} mm_fetch;

typedef enum mm_when {
    MM_WHEN_NEEDED, /* no more maps than the budget forces (mm_engine_plan_needed) */
    MM_WHEN_ALWAYS, /* all, whatever the budget */
} mm_when;

/* Of the engine behind every policy but the two baselines, whose configuration is empty. */
typedef struct mm_engine_config {
    mm_rule *rules; /* a copy of the struct borrows them */
    int n_rules;
    mm_fetch fetch;
    int depth;
    int leave_steps;   /* a map put away holds up the step that comes this many steps later; 0: none (asynchronous) */
    mm_region buffers; /* of maps that are put away and fetched */
    int k;             /* buffers wanted; 0: as many as needed */
    mm_recompute_mode recompute;
    mm_region codes; /* of codes that stay on the device. HEAP: made elsewhere, and copied (the unoptimised workflow) */
    int throttle;    /* CODE_SWAP: pieces encoded ahead of the link at most (mm_node.throttle); 0: no limit */
    mm_when when;
} mm_engine_config;

/* The codec of masks: a bit per element, whether it is above zero. */
extern const char mm_mask_spec[];

/* Reads "conv=compress(zfp:rate=4);relu=keep;*=swap", of any length. MM_ERR_INVALID says where and what; MM_ERR_NOMEM.
 * The caller ends the rules. */
MM_CHECKED mm_status mm_rules_parse(const char *text, mm_engine_config *config);
void mm_rules_fini(mm_engine_config *config);

/* The rules in their own language, as mm_rules_parse reads them; the caller frees it. NULL: out of memory. */
char *mm_rules_print(const mm_engine_config *config);

/* Adds a rule for all maps. `codec`: of an action that needs one; else NULL. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_rules_add(mm_engine_config *config, mm_action action, const char *codec);

/* A copy with rules of its own, which the caller ends (mm_rules_fini). MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_config_copy(const mm_engine_config *config, mm_engine_config *copy_out);
bool mm_config_equal(const mm_engine_config *a, const mm_engine_config *b);

/* The codec of elements that the rules name, the first if they name several; "" if they name none. The mask is none. */
const char *mm_rules_codec(const mm_engine_config *config);

/* The codecs that the rules name, and the mask: at most `capacity`; returns how many. */
int mm_engine_codecs(const mm_engine_config *config, char specs_out[][MM_SPEC_CAPACITY], int capacity);

#endif
