/* SPDX-License-Identifier: MIT */
/* Facts about running a graph, measured or read from a file: integers, in ns and bytes. A policy sees the graph, the
 * facts and the limits, and nothing else. A time of 0 ns means "not known". */
#ifndef MM_CORE_FACTS_FACTS_H
#define MM_CORE_FACTS_FACTS_H

#include "mm/mm.h"

enum { MM_SPEC_CAPACITY = 64 }; /* of a codec's spec, with its NUL */

/* One way to compute a step. */
typedef struct mm_variant {
    int32_t id;
    bool deterministic;
    int64_t workspace_bytes;
    int64_t ns;
} mm_variant;

/* A codec's properties. */
typedef struct mm_codec_facts {
    char spec[MM_SPEC_CAPACITY]; /* "zfp:rate=4" */
    bool lossless;
    bool fixed_size;  /* all of a code has code_bytes: it has no body */
    bool gives_value; /* its code can be decoded to the elements */
    bool gives_sign;  /* its code serves readers of MM_FORM_SIGN without being decoded */
} mm_codec_facts;

/* One codec on one tensor. A code of variable size has a head of a fixed size, and a body in a pool (plan.h). */
typedef struct mm_code_facts {
    /* Exact bytes of the code, or of its head if it has a body; -1: the codec cannot encode the tensor. */
    int64_t code_bytes;
    /* Bytes of the body; all 0 if there is none. typical and reserve are at most the bound. */
    int64_t body_bound_bytes;   /* the most that it can take */
    int64_t body_reserve_bytes; /* reserved for it on the device by plans; at least 1 */
    int64_t body_typical_bytes; /* usually; times are predicted by it */
    int64_t scratch_bytes;
    int64_t encode_ns, decode_ns;
    /* A code may be cut after each multiple of split_rows rows of the outermost dimension: each part is a code of its
     * rows. Parts take split_bytes, a multiple of MM_ALIGN, as do the bytes of their rows in the map; the last part
     * takes the rest. 0: the code cannot be cut. */
    int64_t split_rows, split_bytes;
    int64_t strip_elems; /* of the strips that steps can read and write by themselves (mm_strips); 0: they cannot */
} mm_code_facts;

/* Kinds of work, of which each takes longer while others run. */
typedef enum mm_work {
    MM_WORK_DEAR,  /* steps of layers that multiply matrices (MM_LAYER_EXPENSIVE) */
    MM_WORK_CHEAP, /* all other steps */
    MM_WORK_ENCODE,
    MM_WORK_DECODE,
    MM_WORK_LINK, /* copies of either direction; how these slow each other is in the link's rates */
    MM_WORK_KINDS
} mm_work;

const char *mm_work_name(mm_work work);

/* permille[of][beside]: by how much of its time alone the one work takes longer while the other runs. What several
 * others take adds up. Entries of a kind with itself, and of dear with cheap steps, mean nothing. */
typedef struct mm_contention {
    bool known; /* false: mm_facts.contention_permille and link_contention_permille are all that is known */
    int permille[MM_WORK_KINDS][MM_WORK_KINDS];
} mm_contention;

/* Who adds up what devices share. */
typedef enum mm_sum_at {
    MM_SUM_AT_RANKS,  /* a core for each device, all a part */
    MM_SUM_AT_ROOT,   /* one core */
    MM_SUM_AT_DEVICE, /* the first device, when all have sent all to the host: all of it goes there over the link, and
                         the sums back, one after the other; no other device has its sums before. While all send to the
                         host, and while all get the sums, they share the link (link_sharers); what is between has all
                         of its rate */
    MM_SUM_IN_PLACE, /* each device a part, in place: parts of the sums go round, from each device to the next, then the
                         sums do. Of what a graph shares in place */
    MM_SUM_PLACES
} mm_sum_at;

/* Names in facts that were read from a file (mm_facts_load). */
typedef struct mm_facts_names {
    char *path;       /* of the file */
    char *graph;      /* name of the graph that was measured; "" if the file does not say */
    int steps_of_all; /* number of that graph's steps */
    int tensors_of_all;
    int64_t tensor_bytes; /* mm_facts_tensor_bytes of that graph */
    char **layers;        /* per step, sorted by layer, then phase */
    mm_phase *phases;     /* per step */
    char **tensors;       /* per tensor */
} mm_facts_names;

/* Facts of one graph, indexed by its steps and tensors. Or facts from a file, indexed by `names`; mm_facts_apply makes
 * facts of a graph from them. */
struct mm_facts {
    mm_facts_names *names; /* of facts from a file; else NULL */
    int n_steps;
    int *variant_first; /* n_steps + 1 entries: step s has variants variant_first[s] to variant_first[s + 1] - 1 */
    mm_variant *variants;
    int n_tensors;
    int n_codecs;
    mm_codec_facts *codecs;
    mm_code_facts *codes;                              /* [codec * n_tensors + tensor] */
    int64_t out_bytes_per_s, in_bytes_per_s;           /* rates of the link, the other direction idle */
    int64_t out_both_bytes_per_s, in_both_bytes_per_s; /* with both directions busy */
    int64_t memory_bytes_per_s;                        /* of the device's memory, by which nominal times scale
                                                          (policies/schedule/nominal.h). 0: not known */
    /* How much longer steps take while an encode, or a decode, or a copy over the link runs. What slows them is not
     * slowed by them, as far as these know; `contention`, if it is known, stands in their place. */
    int contention_permille, link_contention_permille;
    mm_contention contention;
    /* Of several devices that each run the plan at the same time, on a part of the batch (mm_graph_allreduce). */
    int64_t host_sum_bytes_per_s; /* at which a core of the host adds what they share; 0: that takes no time */
    int link_sharers;             /* how many of them share the link's rates; 0: each has its own */
    int ranks; /* how many devices there are: of a run, not of a machine (mm_facts_set_ranks); 0: one */
    mm_sum_at sum_at;
    int64_t issue_ns; /* time to issue a copy, in addition to that of its bytes; codecs' times include theirs */
    int64_t alloc_ns; /* time of an unplanned allocation or free. The whole device is idle meanwhile, as it is with
                         cudaMalloc and cudaFree. 0: they cost nothing */
    /* Step times assume warm caches. A byte that was last used more than cache_bytes of other uses ago (far.h) takes
     * far_ps_per_byte more. 0: not known, and contained in the times of steps. */
    int64_t cache_bytes, far_ps_per_byte;
    int threads;         /* CPU threads that steps were measured on; 0: not known, or another device */
    int64_t piece_bytes; /* a code that goes over the link is cut into pieces of at least so many bytes of the map, and
                            a tensor that processes share into pieces of as many (mm/core/plan/program.h) */
};

/* Default of piece_bytes. Chosen: copying 4 MiB of a map, compressed to a quarter, takes 20 us and more on links of up
 * to 50 GB/s, which is long beside the two launches and the event of a piece; and maps of some tens of MiB still get
 * several pieces. In no file of facts: processes add up piece by piece, and must have the same. */
enum { MM_PIECE_BYTES = 4 << 20 };

/* Ranges of times, so that their sums fit 64 bits in the simulator: a step or an operation takes at most 1000 s, each
 * kind of work slows another down at most tenfold, and each direction of the link the other at most tenfold. */
enum { MM_CONTENTION_MOST = 9000, MM_LINK_SHARED_LEAST = 10 };
#define MM_NS_MOST INT64_C(1000000000000)
enum { MM_ALLOC_NS_MOST = 1000000000 }; /* of issue_ns and alloc_ns */
enum { MM_RANKS_MOST = 1024 };          /* of ranks and link_sharers. Chosen */
enum { MM_FAR_PS_MOST = 1000000 };

/* Facts of a graph without times. Each step has a variant for each workspace that the graph allows it, the declared one
 * first. Room for n_codecs codecs. MM_ERR_NOMEM. The caller destroys them. */
MM_CHECKED mm_status mm_facts_create(const mm_graph *graph, int n_codecs, mm_facts **facts_out);

/* A copy of a graph's facts (not of a file's). MM_ERR_NOMEM. The caller destroys it. */
MM_CHECKED mm_status mm_facts_copy(const mm_facts *facts, mm_facts **copy_out);

/* Leaves each step the variant with that id alone; a step that has none stays as it is. ids: per step. */
void mm_facts_keep_variants(mm_facts *facts, const int32_t *ids);

/* Leaves each step the variant with the least workspace alone. */
void mm_facts_keep_least_workspaces(mm_facts *facts);

/* Whether the bytes of a code's body are possible, and agree with each other and with the codec. */
static inline bool mm_facts_body_is_possible(const mm_codec_facts *codec, const mm_code_facts *code) {
    if (code->body_bound_bytes == 0) return code->body_reserve_bytes == 0 && code->body_typical_bytes == 0;
    return code->body_bound_bytes > 0 && !codec->fixed_size && code->body_typical_bytes >= 0 &&
           code->body_typical_bytes <= code->body_bound_bytes && code->body_reserve_bytes > 0 &&
           code->body_reserve_bytes <= code->body_bound_bytes;
}

/* Index of the codec with that spec; -1: there is none. */
int mm_facts_codec(const mm_facts *facts, const char *spec);
const mm_code_facts *mm_facts_code(const mm_facts *facts, int codec, mm_tensor tensor);

/* By how much longer a kind of work takes while another runs, in permille; 0 for what never runs beside it. */
int mm_facts_contention(const mm_facts *facts, mm_work of, mm_work beside);

/* The same of any step: of the kind that takes less. */
int mm_facts_step_contention(const mm_facts *facts, mm_work beside);

/* Whether two kinds of work can run at the same time: they are on different streams, and not both copies. */
static inline bool mm_work_can_run_beside(mm_work a, mm_work b) {
    return a != b && (a > MM_WORK_CHEAP || b > MM_WORK_CHEAP);
}

/* Makes the facts those of one of so many devices (1: the only one): the link's rates are what it gets of them while
 * all copy. ranks: from 1. Once. */
void mm_facts_set_ranks(mm_facts *facts, int ranks, mm_sum_at sum_at);

/* How long adding up takes of a tensor that so many devices share. */
int64_t mm_facts_sum_ns(const mm_facts *facts, int64_t bytes);

/* Whether each direction of the link has, with both busy, at least a tenth of its rate alone. True if not known. */
bool mm_facts_link_is_possible(const mm_facts *facts);
/* Forgets the rates with both busy if they contradict those of one direction, which are known better. */
void mm_facts_drop_impossible(mm_facts *facts);

/* Which facts mm_facts_apply takes over. */
typedef enum mm_facts_part {
    MM_FACTS_ALL,   /* all, sizes and new codecs too: to plan for another device */
    MM_FACTS_TIMES, /* times, rates, and what bodies of codes take: for a plan that is run. All other sizes must be
                       equal on both sides */
} mm_facts_part;

/* Takes over into `facts`, of `graph`, what `from` has of it; the rest stays. from: facts from a file, or of an equal
 * graph. MM_ERR_FORMAT: `from` is of another graph, or has other sizes; MM_ERR_NOMEM. On failure nothing changes. */
MM_CHECKED mm_status mm_facts_apply(const mm_facts *from, const mm_graph *graph, mm_facts_part part, mm_facts *facts);

/* Writes the facts of a graph to a file (JSON) for mm_facts_load, atomically. The file has steps by layer and phase,
 * and codes by tensor and codec. MM_ERR_INVALID: two steps have the same layer name and phase; MM_ERR_IO,
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_facts_write(const mm_facts *facts, const mm_graph *graph, const char *path);

/* The sum of the bytes of a graph's maps and saved tensors, modulo 2^63. With the numbers of steps and tensors it
 * identifies a graph. Others count nothing: a device may pad inputs and parameters. */
int64_t mm_facts_tensor_bytes(const mm_graph *graph);

#endif
