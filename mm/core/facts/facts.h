/* SPDX-License-Identifier: MIT */
/* Facts about running a graph, measured or read from a file: integers, in ns and bytes. A policy sees the graph, the
 * facts and the limits, and nothing else. A time of 0 ns means "not known". */
#ifndef MM_CORE_FACTS_FACTS_H
#define MM_CORE_FACTS_FACTS_H

#include "mm/mm.h"

enum { MM_SPEC_CAPACITY = 64 }; /* bytes of a codec's spec, with its NUL */

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
    bool fixed_size;  /* every code has exactly code_bytes: it has no body */
    bool gives_value; /* its code can be decoded to the elements */
    bool gives_sign;  /* its code serves readers of MM_FORM_SIGN without being decoded */
    bool drops_zeros; /* its code leaves out zeros, and is small only if the map has many */
} mm_codec_facts;

/* Facts of one codec on one tensor. A code of variable size has a head of fixed size, and a body in a pool (plan.h). */
typedef struct mm_code_facts {
    /* Exact bytes of the code, or of its head if it has a body; -1: the codec cannot encode the tensor. */
    int64_t code_bytes;
    /* The next three are bytes of the body; all 0 if there is none. The typical size and the reserve are at most the
     * bound. */
    int64_t body_bound_bytes;   /* the most that a body can take */
    int64_t body_reserve_bytes; /* what plans reserve for it on the device; at least 1 */
    int64_t body_typical_bytes; /* its usual size, with which times are predicted */
    bool body_is_measured;      /* body_typical_bytes was measured on this map; else it is what the codec assumes */
    int64_t scratch_bytes;
    int64_t encode_ns, decode_ns;
    /* A code may be cut into parts after every split_rows rows of the outermost dimension; each part is itself a code
     * of its rows. A part takes split_bytes of the code; these and the bytes of its rows in the map are multiples of
     * MM_ALIGN. The last part takes the rest. 0: the code cannot be cut. */
    int64_t split_rows, split_bytes;
    int64_t strip_elems; /* elements of a strip (mm_strips), if steps can read and write the code themselves; else 0 */
} mm_code_facts;

/* Kinds of work that streams do. While one runs, it may slow the others down (mm_contention). */
typedef enum mm_work {
    MM_WORK_EXPENSIVE, /* steps of layers that multiply matrices (MM_LAYER_EXPENSIVE) */
    MM_WORK_CHEAP,     /* all other steps */
    MM_WORK_ENCODE,
    MM_WORK_DECODE,
    MM_WORK_LINK, /* copies in both directions; the link's rates say how the directions slow each other down */
    MM_WORK_KINDS
} mm_work;

const char *mm_work_name(mm_work work);

/* permille[a][b]: by how much longer work a takes while work b runs, in permille of its time alone. If several others
 * run, their entries add up. Entries [a][a], and those between the two kinds of steps, mean nothing. */
typedef struct mm_contention {
    bool known; /* false: only mm_graph_facts.contention_permille and link_contention_permille are known */
    int permille[MM_WORK_KINDS][MM_WORK_KINDS];
} mm_contention;

/* Where the sums of an all-reduce are computed. */
typedef enum mm_sum_at {
    MM_SUM_AT_RANKS,  /* on the host: every rank adds up its own part, on one core */
    MM_SUM_AT_ROOT,   /* on the host: one rank adds up everything, on one core */
    MM_SUM_AT_DEVICE, /* on the first device, once all ranks have sent everything to the host. It fetches everything
                         over the link and sends the sums back, one after the other; only then do the other ranks get
                         them. While all ranks send, and while all get the sums, they share the link (link_sharers); in
                         between, the first device has its full rate */
    MM_SUM_IN_PLACE,  /* in a ring of devices, without the host; for tensors all-reduced in place. First partial sums go
                         round the ring, from each device to the next, then the finished sums do */
    MM_SUM_PLACES
} mm_sum_at;

/* Facts of one graph, indexed by its steps and tensors. */
typedef struct mm_graph_facts {
    int n_steps;
    int *variant_first; /* n_steps + 1 entries: step s has variants variant_first[s] to variant_first[s + 1] - 1 */
    mm_variant *variants;
    int n_tensors;
    int n_codecs;
    mm_codec_facts *codecs;
    mm_code_facts *codes;                              /* [codec * n_tensors + tensor] */
    int64_t out_bytes_per_s, in_bytes_per_s;           /* the link's rates to the host and back, one at a time */
    int64_t out_both_bytes_per_s, in_both_bytes_per_s; /* with both directions busy */
    /* Bytes that steps on the host (mm_graph_run_on_host) read and write, together; 0: MM_HOST_BYTES_PER_S. Their
     * variants have no times. */
    int64_t host_bytes_per_s;
    /* The disk's rates, of writes and of reads, and what an access takes besides. 0: MM_DISK_BYTES_PER_S, and no
     * time. */
    int64_t store_bytes_per_s, load_bytes_per_s, disk_ns;
    int64_t memory_bytes_per_s; /* rate of the device's memory; nominal times scale with it
                                   (policies/schedule/nominal.h). 0: not known */
    /* How much longer steps take while a codec (the first) or a copy over the link (the second) runs. Codecs and copies
     * are taken not to be slowed down by steps. If `contention` is known, it is used instead of these two. */
    int contention_permille, link_contention_permille;
    mm_contention contention;
    /* For several devices that run the plan at the same time, each on a part of the batch (mm_graph_allreduce). */
    int64_t host_sum_bytes_per_s; /* rate at which a core of the host adds up their tensors; 0: adding takes no time */
    int link_sharers;             /* how many devices share the link's rates; 0: each has a link of its own */
    int ranks;                    /* number of devices in the run, not in the machine (mm_facts_set_ranks); 0 means 1 */
    mm_sum_at sum_at;
    int64_t issue_ns; /* time to issue a copy, in addition to the time of its bytes; codecs' times include it */
    int64_t alloc_ns; /* time of an allocation or free at run time. The whole device is idle meanwhile, as it is with
                         cudaMalloc and cudaFree. 0: they cost nothing */
    /* Step times assume warm caches. A byte is far if more than cache_bytes other bytes were used since its last use
     * (time/cache_miss.h); each far byte adds far_ps_per_byte picoseconds to the step. 0: not known; the times of steps
     * then include it. */
    int64_t cache_bytes, far_ps_per_byte;
    int threads;         /* number of CPU threads with which steps were measured; 0: not known, or not on a CPU */
    int64_t piece_bytes; /* least bytes of the map in a piece of a code that goes over the link, and in a piece of an
                            all-reduced tensor (plan/program.h) */
} mm_graph_facts;

/* Adds times to the facts of any graph, with sizes and codecs as the graph has them. */
typedef mm_status (*mm_facts_fill)(const void *ctx, const mm_graph *graph, mm_graph_facts *facts);

/* Rates of a codec on any map: for codes of which a file has no times. */
typedef struct mm_codec_rate {
    char spec[MM_SPEC_CAPACITY];                    /* the codec's whole spec, or its name alone */
    int64_t encode_bytes_per_s, decode_bytes_per_s; /* bytes of the map; at least 1 */
    int64_t launch_ns;                              /* added to each */
} mm_codec_rate;

/* Facts from a file (mm_facts_load), which names steps and tensors; or a function that gives the times of any graph
 * (mm_facts_of). mm_facts_apply makes facts of a graph from them. */
struct mm_facts {
    mm_facts_fill fill; /* NULL: the facts are those of the file, which are all that follows */
    const void *fill_ctx;
    char *path;
    char *graph;      /* name of the graph that was measured; "" if the file does not say */
    int steps_of_all; /* number of steps of that graph */
    int tensors_of_all;
    int64_t tensor_bytes;   /* mm_facts_tensor_bytes of that graph */
    char **layers;          /* per step, sorted by layer, then phase */
    mm_phase *phases;       /* per step */
    char **tensors;         /* per tensor */
    mm_graph_facts by_name; /* indexed as the names above are */
    mm_codec_rate *rates;
    int n_rates;
};

/* Default of piece_bytes. Chosen: copying 4 MiB of a map, compressed to a quarter, takes 20 us and more on links of up
 * to 50 GB/s, which is long beside the two launches and the event of a piece; and maps of some tens of MiB still get
 * several pieces. No file of facts contains it, because processes that all-reduce piece by piece must all have the same
 * value. */
enum { MM_PIECE_BYTES = 4 << 20 };

/* Rate of steps on the host if no facts say it. A socket with eight channels of DDR5-4800 has 307 GB/s (Intel, Xeon
 * Platinum 8480+); updates are taken to reach 0.6 of that, chosen: on an EPYC they exceed memcpy's rate. */
#define MM_HOST_BYTES_PER_S INT64_C(180000000000)

/* Rate of a disk if no facts say it: what SSDs behind Serial ATA 3 (600 MB/s) reach; NVMe drives have several times as
 * much. Chosen at the low end: copies that are hidden at this rate are hidden on a faster disk, too. */
#define MM_DISK_BYTES_PER_S INT64_C(500000000)

/* Ranges of times, so that their sums fit 64 bits in the simulator: a step or an operation takes at most 1000 s, each
 * kind of work slows another down at most tenfold, and each direction of the link the other at most tenfold. */
enum { MM_CONTENTION_MOST = 9000, MM_LINK_SHARED_LEAST = 10 };
#define MM_NS_MOST INT64_C(1000000000000)
enum { MM_ALLOC_NS_MOST = 1000000000 }; /* the largest legal issue_ns and alloc_ns */
enum { MM_RANKS_MOST = 1024 };          /* the largest legal ranks and link_sharers. Chosen */
enum { MM_FAR_PS_MOST = 1000000 };

/* Creates facts of a graph, without times, and with room for n_codecs codecs. Each step has a variant for each
 * workspace that the graph allows it, the declared one first. MM_ERR_NOMEM. The caller destroys them. */
MM_CHECKED mm_status mm_graph_facts_create(const mm_graph *graph, int n_codecs, mm_graph_facts **facts_out);

/* A copy. MM_ERR_NOMEM. The caller destroys it. */
MM_CHECKED mm_status mm_graph_facts_copy(const mm_graph_facts *facts, mm_graph_facts **copy_out);

/* NULL is legal. */
void mm_graph_facts_destroy(mm_graph_facts *facts);

/* Removes all variants of each step but the one with the id ids[step]. A step without such a variant stays as it is. */
void mm_facts_keep_variants(mm_graph_facts *facts, const int32_t *ids);

/* Removes all variants of each step but the one with the smallest workspace. */
void mm_facts_keep_least_workspaces(mm_graph_facts *facts);

/* Whether the sizes of a code's body are possible, and agree with each other and with the codec. */
static inline bool mm_facts_body_is_possible(const mm_codec_facts *codec, const mm_code_facts *code) {
    if (code->body_bound_bytes == 0) return code->body_reserve_bytes == 0 && code->body_typical_bytes == 0;
    return code->body_bound_bytes > 0 && !codec->fixed_size && code->body_typical_bytes >= 0 &&
           code->body_typical_bytes <= code->body_bound_bytes && code->body_reserve_bytes > 0 &&
           code->body_reserve_bytes <= code->body_bound_bytes;
}

/* Index of the codec with that spec; -1: there is none. */
int mm_facts_codec(const mm_graph_facts *facts, const char *spec);
const mm_code_facts *mm_facts_code(const mm_graph_facts *facts, int codec, mm_tensor tensor);

/* Whether a codec can encode a tensor of the graph, and gives back elements that its readers accept. False for codec
 * -1. */
bool mm_facts_gives_value(const mm_graph_facts *facts, const mm_graph *graph, int codec, mm_tensor tensor);

/* Whether a feature map can be expected to have so many zeros that codes which leave them out (drops_zeros) are smaller
 * than it by an eighth (chosen) or more. What was measured on the map decides; if nothing was, how it is made: after a
 * ReLU or a dropout, or if the backward step of its own layer reads its signs alone; after a pool, a concatenation and
 * the like, if all inputs promise zeros; after a layer whose output equals its input, if that does. Any activation may
 * be declared as MM_LAYER_RELU (mm.h), also one without zeros: then only a measurement tells. False for all other
 * tensors. */
bool mm_facts_promise_zeros(const mm_graph_facts *facts, const mm_graph *graph, mm_tensor tensor);

/* By how much longer work `of` takes while work `beside` runs, in permille; 0 if they never run at the same time. */
int mm_facts_contention(const mm_graph_facts *facts, mm_work of, mm_work beside);

/* By how much longer a step of any kind takes while work `beside` runs: the smaller of the values for the two kinds of
 * steps. */
int mm_facts_step_contention(const mm_graph_facts *facts, mm_work beside);

/* Whether two kinds of work can run at the same time: they are on different streams, and not both copies. */
static inline bool mm_work_can_run_beside(mm_work a, mm_work b) {
    return a != b && (a > MM_WORK_CHEAP || b > MM_WORK_CHEAP);
}

/* Turns facts of a device that runs alone into those of one of `ranks` devices (1 or more): divides the link's rates by
 * the number of devices that share them. To be called once only. */
void mm_facts_set_ranks(mm_graph_facts *facts, int ranks, mm_sum_at sum_at);

/* Time of the sums of an all-reduce of a tensor of so many bytes, over facts->ranks devices. */
int64_t mm_facts_sum_ns(const mm_graph_facts *facts, int64_t bytes);

/* Whether each direction of the link keeps at least a tenth of its rate while both are busy. True if not known. */
bool mm_facts_link_is_possible(const mm_graph_facts *facts);
/* Sets the rates with both directions busy to 0, not known, if they contradict the more reliable ones of one
 * direction. */
void mm_facts_drop_impossible(mm_graph_facts *facts);

/* Checks that times, rates and contention are in the ranges above, for a simulation; entries that are never used, too.
 * graph: name for the message. MM_ERR_INVALID. */
MM_CHECKED mm_status mm_facts_check(const mm_graph_facts *facts, const char *graph);

/* Which facts mm_facts_apply takes over. */
typedef enum mm_facts_part {
    MM_FACTS_ALL,   /* all facts, including sizes and codecs that `facts` has not: to plan for another device */
    MM_FACTS_TIMES, /* times, rates, and the sizes of bodies of codes: for a plan that will run. All other sizes must be
                       equal in `facts` and `from` */
} mm_facts_part;

/* Facts of every graph, by a function. The context is borrowed until the facts are destroyed. MM_ERR_NOMEM. The caller
 * destroys them (mm_facts_destroy). */
MM_CHECKED mm_status mm_facts_of(mm_facts_fill fill, const void *ctx, mm_facts **facts_out);

/* Copies into `facts`, which are of `graph`, what a file says about that graph; other members of `facts` stay. Of
 * facts by a function: calls it, whatever the part. MM_ERR_FORMAT: the file is of another graph, or has other sizes;
 * MM_ERR_NOMEM. On failure nothing changes. */
MM_CHECKED mm_status mm_facts_apply(const mm_facts *from, const mm_graph *graph, mm_facts_part part,
                                    mm_graph_facts *facts);

/* Copies into `facts`, which are of `graph`, the times that follow from n files (1 or more) of the same network, each
 * measured with another batch. Batches are compared by the bytes of all maps. Times are on the line between the two
 * batches next to the graph's. Beyond all batches they are on the line of the two nearest, but between the nearest
 * one's time and that in proportion to bytes; updates take the nearest one's. Of a single batch, times are in
 * proportion. Rates are those of the nearest. A variant that was not measured takes the time of its step's first one, a
 * step the others' mean time for each byte; codes that were not measured keep their times. Sizes stay, but a code's
 * typical one. MM_ERR_FORMAT: the graph lacks a forward or backward step that was measured; MM_ERR_NOMEM. On failure
 * nothing changes. */
MM_CHECKED mm_status mm_facts_apply_between(const mm_facts *const *files, int n, const mm_graph *graph,
                                            mm_graph_facts *facts);

/* mm_facts_apply with facts of an equal graph. */
MM_CHECKED mm_status mm_graph_facts_merge(const mm_graph_facts *from, const mm_graph *graph, mm_facts_part part,
                                          mm_graph_facts *facts);

/* Gives codes without times those that follow from the rates. */
void mm_facts_rate_codes(const mm_codec_rate *rates, int n, const mm_graph *graph, mm_graph_facts *facts);

/* Reads the key "codec_rates" of a file of facts; NULL: the file has none. path: for messages. MM_ERR_FORMAT,
 * MM_ERR_NOMEM. The caller frees *rates_out. */
struct json_t;
MM_CHECKED mm_status mm_codec_rates_parse(const char *path, const struct json_t *object, mm_codec_rate **rates_out,
                                          int *n_out);

/* mm_facts_load of JSON that was read (json_text.h). path: for messages. */
MM_CHECKED mm_status mm_facts_parse(const char *path, const struct json_t *root, mm_facts **facts_out);

/* Writes the facts of a graph to a file (JSON) for mm_facts_load, atomically. The file names steps by layer and phase,
 * and codes by tensor and codec. MM_ERR_INVALID: two steps have the same layer name and phase; MM_ERR_IO,
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_facts_write(const mm_graph_facts *facts, const mm_graph *graph, const char *path);

/* The sum of the bytes of a graph's maps and saved tensors, modulo 2^63. With the numbers of steps and tensors it
 * identifies a graph. Other tensors do not count, because a device may pad inputs and parameters. */
int64_t mm_facts_tensor_bytes(const mm_graph *graph);

#endif
