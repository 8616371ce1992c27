/* SPDX-License-Identifier: MIT */
/* Private to mm/core: for the proof in time_bound.h, a graph's numbers (time_bound_model.c), and the sum over tensors
 * for given weights and prices (time_bound_prices.c). */
#ifndef MM_CORE_TIME_TIME_BOUND_PRICES_H
#define MM_CORE_TIME_TIME_BOUND_PRICES_H

#include "mm/core/plan/plan.h"

/* What it takes to keep a tensor in one of the ways of the proof: ns of streams, before or after the step c starts, and
 * bytes. */
typedef enum mm_bound_resource {
    MM_BOUND_OUT,       /* ns of copies to the host, before */
    MM_BOUND_ENCODE,    /* ns of encodes, before */
    MM_BOUND_AGAIN,     /* ns of recomputed steps, after */
    MM_BOUND_IN,        /* ns of copies from the host, after */
    MM_BOUND_DECODE,    /* ns of decodes, after */
    MM_BOUND_IN_BEFORE, /* ns of copies from the host, before */
    MM_BOUND_OUT_AFTER, /* ns of copies to the host, after */
    MM_BOUND_DEVICE,    /* bytes on the device */
    MM_BOUND_PINNED,    /* bytes of pinned memory */
    MM_BOUND_RESOURCES
} mm_bound_resource;

typedef struct mm_bound_amounts {
    double of[MM_BOUND_RESOURCES];
} mm_bound_amounts;

/* What the steps from c on need of a storage. */
typedef enum mm_bound_need {
    MM_BOUND_NOTHING,
    MM_BOUND_SIGN,
    MM_BOUND_VALUE,
    MM_BOUND_NOW, /* c reads its elements */
} mm_bound_need;

/* A storage: tensors that may share the same bytes, because each equals the others. */
typedef struct mm_bound_storage {
    double bytes, mask_bytes;
    double copy_ns[2], mask_ns; /* ns of a copy to the host ([0]) and back ([1]); of a mask's copy to the host */
    bool plain;                 /* only one step writes elements to it, once, so all readers read the same value */
    int32_t first;              /* first step that writes it */
    int32_t readers;            /* steps that can run again and read its elements */
    mm_bound_need need;
    double price[2]; /* price of the cheapest way to keep its signs ([0]) and its elements ([1]) */
    int way[2];      /* that way */
    double taken[2]; /* how often way[] counts in the sum: once if c or a later step needs the storage, and by shares
                        for recomputations */
} mm_bound_storage;

/* What a code of the storage takes: the least among its tensors. */
typedef struct mm_bound_code {
    bool possible;
    double device_bytes; /* on the device: of the body, if it has one */
    double pinned_bytes; /* in pinned memory, without a body */
    double ns[2];        /* encode, decode */
    double link_ns[2];   /* to move the code over the link, and back */
} mm_bound_code;

/* A storage whose elements a step that can be recomputed reads, or writes. */
typedef struct mm_bound_link {
    int32_t storage;
    double part; /* the share of this storage in the bytes that the step writes; < 0: the step reads the storage */
} mm_bound_link;

/* A persistent tensor whose home may be in pinned memory. */
typedef struct mm_bound_visitor {
    double bytes;        /* the least on the device: of its elements, or of a code */
    double pinned_bytes; /* at home */
    double copy_ns[2];   /* to the host, and back */
    /* how the steps before c ([0]), and c and those after it, use it */
    bool used[2], written[2], reads_first[2];
    bool now;                      /* c reads it, so it is on the device */
    double ns[MM_BOUND_RESOURCES]; /* of its copies, if it is not on the device while c starts */
} mm_bound_visitor;

/* A graph's storages and steps, and the cut between the steps before c and the others. */
typedef struct mm_bound_model {
    const mm_graph *graph;
    const mm_graph_facts *facts;
    bool pinned;         /* whether there is pinned memory */
    int32_t *storage_of; /* per tensor: index of its storage; -1: it is not managed */
    mm_bound_storage *storages;
    int n_storages;
    mm_bound_code *codes;       /* [storage * number of codecs + codec] */
    double *step_ns, *again_ns; /* per step: its least time, and that of recomputing it; < 0: it cannot be recomputed */
    int32_t *first_link;        /* per step, and one more entry: its first link */
    mm_bound_link *links;       /* what recomputing a step reads, then what it writes */
    mm_bound_visitor *visitors; /* if homes may be in pinned memory */
    int32_t *visitor_of;        /* per tensor: its visitor; -1: none; NULL: homes may not */
    int n_visitors;
    double staying_bytes;       /* of the persistent tensors that are no visitors; 0 if homes may not */
    bool *gone;                 /* per tensor: scratch of mm_bound_cut */
    int cut;                    /* the step c */
    double before_ns, after_ns; /* time of the steps before c; time of c and the steps after it */
    double fixed_bytes;         /* bytes that are on the device while c runs, under every plan */
} mm_bound_model;

/* homes_move: persistent tensors may have their homes in pinned memory. */
MM_CHECKED mm_status mm_bound_model_init(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                         bool homes_move, mm_bound_model *model_out);
void mm_bound_model_fini(mm_bound_model *model);

/* Sets c to `step`: finds what c and later steps need. */
void mm_bound_cut(mm_bound_model *model, int step);

/* Finds the visitors. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_bound_visitors_init(mm_bound_model *model);
/* For the model's cut: sets what the visitors' copies take; returns the bytes of those that c reads. */
double mm_bound_visitors_cut(mm_bound_model *model);
/* Adds to *sum what the visitors take in the cheapest ways at these prices. */
void mm_bound_visitors_add(const mm_bound_model *model, const mm_bound_amounts *prices, mm_bound_amounts *sum);

/* What the cheapest ways, at these prices, to hold all that is needed take together. */
mm_bound_amounts mm_bound_cheapest(mm_bound_model *model, const mm_bound_amounts *prices);

#endif
