/* What was measured, or read from a file, about running a graph: integers, in ns and bytes. With the graph and the
 * limits it is all that a policy sees. A zero ns means "not known". */
#ifndef MM_CORE_FACTS_H
#define MM_CORE_FACTS_H

#include "mm/mm.h"

enum { MM_SPEC_CAPACITY = 64 };

/* One way to compute a step. */
typedef struct mm_variant {
    int32_t id;
    bool deterministic;
    int64_t workspace_bytes;
    int64_t ns;
} mm_variant;

/* What one codec does, for this graph. */
typedef struct mm_codec_facts {
    char spec[MM_SPEC_CAPACITY]; /* "zfp:rate=4" */
    bool lossless;
    bool fixed_size;
    bool gives_value; /* its code can be decoded to the elements */
    bool gives_sign;  /* its code, undecoded, serves a reader of MM_FORM_SIGN */
} mm_codec_facts;

typedef struct mm_code_facts {
    int64_t code_bytes; /* exact, or the reserve of a variable code; -1: this codec does not take this tensor */
    int64_t scratch_bytes;
    int64_t encode_ns, decode_ns;
    /* The code may be cut after split_rows rows of the outermost dimension and after every multiple of them: there a
     * code of the rows before ends and one of those behind begins. Each such part of the code takes split_bytes, a
     * multiple of MM_ALIGN, as the bytes of its rows are; the last part takes the rest. 0: nowhere. */
    int64_t split_rows, split_bytes;
} mm_code_facts;

/* What facts are of that were read from a file (mm_facts_load): steps and tensors by their names. */
typedef struct mm_facts_names {
    char *path;       /* of the file */
    char *graph;      /* the name of the graph that they were measured of; "" if the file does not say */
    int steps_of_all; /* that graph's */
    int tensors_of_all;
    int64_t tensor_bytes;
    char **layers;    /* per step, sorted by layer, then phase */
    mm_phase *phases; /* per step */
    char **tensors;   /* per tensor */
} mm_facts_names;

/* Facts are of one graph: arrays go by its steps and tensors. Or they were read from a file, and `names` says what
 * they are of; mm_facts_apply makes facts of a graph of them. */
struct mm_facts {
    mm_facts_names *names; /* NULL: of a graph */
    int n_steps;
    int *variant_first; /* n_steps + 1 entries: step s has variants [variant_first[s], variant_first[s + 1]) */
    mm_variant *variants;
    int n_tensors;
    int n_codecs;
    mm_codec_facts *codecs;
    mm_code_facts *codes;                              /* [codec * n_tensors + tensor] */
    int64_t out_bytes_per_s, in_bytes_per_s;           /* the link, one way alone */
    int64_t out_both_bytes_per_s, in_both_bytes_per_s; /* each way with both busy */
    int64_t memory_bytes_per_s;                        /* of the device; where nothing is measured, nominal times go by
                                                          it (policies/nominal.h). 0: not known */
    int contention_permille;                           /* how much longer compute takes while a codec works */
    int link_contention_permille;                      /* and while a copy over the link does; they add up */
    int64_t issue_ns; /* to issue one operation: what a copy takes beside its bytes; codecs' times have it in them */
    int64_t alloc_ns; /* of an unplanned allocation, or a free. It begins when all that runs has ended, and nothing
                         begins before it has: the CUDA runtime's synchronise the device. 0: they cost nothing */
    /* Steps' times are of steps that find all they use in the caches. What they last used more than cache_bytes of
     * other uses ago (far.h) takes so many ps a byte more. 0: not known, and contained in the times of steps. */
    int64_t cache_bytes, far_ps_per_byte;
    int threads;         /* of the machine's CPUs that steps were measured on; 0: not known, or another device */
    int64_t piece_bytes; /* a code on its way over the link goes in pieces of so many bytes of the map, or more
                            (mm/core/program.h) */
};

/* Of a map: its copy takes 20 us and more on the links of today's GPUs, even compressed four times, so that the two
 * launches and the event of each piece are small beside it; and maps of some tens of MiB still get several pieces. */
enum { MM_PIECE_BYTES = 4 << 20 };

/* What times can be summed up and simulated: a step or an operation takes less than 17 minutes, each kind of side work
 * slows compute down at most tenfold, and one way of the link the other. */
enum { MM_CONTENTION_MOST = 9000, MM_LINK_SHARED_LEAST = 10 };
#define MM_NS_MOST INT64_C(1000000000000)
enum { MM_ALLOC_NS_MOST = 1000000000 }; /* issuing an operation, or an allocation */
enum { MM_FAR_PS_MOST = 1000000 };

/* A variant for each workspace that the graph allows a step, the declared one first, without times; room for n_codecs
 * codecs. */
MM_CHECKED mm_status mm_facts_create(const mm_graph *graph, int n_codecs, mm_facts **facts_out);

/* Puts each step's variant with the least workspace first, which is the one that policies take. False if it was so. */
bool mm_facts_put_least_workspace_first(mm_facts *facts);

/* Index of the codec of that spec, -1. */
int mm_facts_codec(const mm_facts *facts, const char *spec);
const mm_code_facts *mm_facts_code(const mm_facts *facts, int codec, mm_tensor tensor);

/* Whether the link with both ways busy has at least a tenth of its rate one way alone (or that is not known). */
bool mm_facts_link_is_possible(const mm_facts *facts);

/* How much of the facts is taken. */
typedef enum mm_facts_part {
    MM_FACTS_ALL,   /* sizes of workspaces and codes and unknown codecs, too: to plan for another device */
    MM_FACTS_TIMES, /* for a plan that is run: sizes and codecs are those of `facts`, and must be those of `from` */
} mm_facts_part;

/* Fills in what `from` has of this graph and leaves the rest. `from` was read from a file, or is of an equal graph.
 * MM_ERR_FORMAT: it is of another graph, or its sizes are others; nothing is changed. */
MM_CHECKED mm_status mm_facts_apply(const mm_facts *from, const mm_graph *graph, mm_facts_part part, mm_facts *facts);

/* Writes the facts of a graph to a file (JSON), atomically: steps by layer name and phase, codes by tensor name and
 * codec spec. mm_facts_load reads it. MM_ERR_INVALID: two layers have one name and phase. */
MM_CHECKED mm_status mm_facts_write(const mm_facts *facts, const mm_graph *graph, const char *path);

/* A fingerprint of the graph, with the numbers of its steps and tensors: the sum of all tensors' bytes. It may wrap. */
int64_t mm_facts_tensor_bytes(const mm_graph *graph);

#endif
