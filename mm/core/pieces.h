/* A plan as it is issued: nodes, some of them in pieces, so that a codec and the link work on one map at once.
 *
 * A pair of nodes is divided where the second does nothing but carry on with what the first makes: ENCODE and the OUT
 * of its code, IN and the DECODE of what it brings. Both are cut at the same rows of the map's outermost dimension
 * (images); the codec says where a code may be cut (mm_code_facts.split_rows).
 *
 *      whole   encode |0 0 0 0|                  pieces  encode |0|1|2|3|
 *              out            |0 0 0 0|                  out      |0|1|2|3|
 *
 * Why the check of the plan, which knows nothing of pieces, still holds. A piece of the second node waits for the piece
 * of the first that it carries on with, the first piece of each node for all that the node waits for, and each node's
 * pieces follow each other on its stream. So
 *  - all that ended before the first node started has ended when the second starts. Only the first node itself may
 *    still be at work, and only at the bytes that it uses. Of these the second uses the code, in the order of the
 *    pieces. What else it uses lies elsewhere: an OUT writes pinned memory, of which an ENCODE whose code is on the
 *    device uses none; a DECODE writes a map and a scratch on the device, of which an IN uses only the code, which the
 *    DECODE reads, and what a node reads it may not write (mm_check_sharing).
 *  - the second ends after the first has: its last piece waits for the first's last. So whoever waits for a node, or
 *    for its stream, may conclude all that he could of the whole.
 *
 * The simulator and the dispatcher go by the same pieces: what is simulated is what is executed. */
#ifndef MM_CORE_PIECES_H
#define MM_CORE_PIECES_H

#include "mm/core/plan.h"

/* Of one node. */
enum { MM_PIECES_MOST = 8 };

typedef struct mm_piece {
    int32_t node;
    mm_stream_id stream;
    int32_t seq;                   /* its number on its stream, from 0, in issue order */
    int32_t wait[MM_STREAM_COUNT]; /* of each other stream, the piece that must have ended before it starts; -1: none.
                                      Always an earlier one in issue order, if that is so of the plan's nodes */
    int64_t first_row, rows;       /* of the map's outermost dimension; steps: 0 */
} mm_piece;

typedef struct mm_pieces {
    mm_piece *pieces; /* in issue order */
    int n;
    int32_t *first, *last;        /* per node: its pieces' seq on its stream */
    int32_t *at[MM_STREAM_COUNT]; /* per stream and seq: index of the piece */
    int32_t count[MM_STREAM_COUNT];
} mm_pieces;

/* MM_ERR_PLAN: a node waits for one that is not there. */
MM_CHECKED mm_status mm_pieces_init(const mm_plan *plan, const mm_facts *facts, mm_pieces *pieces_out);
void mm_pieces_fini(mm_pieces *pieces);

/* ---------------------------------------------------------------- an execution, measured or simulated
 *
 * ended_ns: per piece, when it ended; 0 where nobody knows. */

/* When a piece started: when its stream was free and what it waits for had ended. 0: it waited for nothing known. */
int64_t mm_pieces_started(const mm_pieces *pieces, const int64_t *ended_ns, const mm_piece *piece);

/* How much of the time that the computation stood before its steps a codec was at work on what it waited for. That is
 * found back along what each had to wait for: a step for a decode, that for a prefetch, that for an offload, that for
 * an encode. Must be known: the ends of all operations, and of steps before steps that wait for one. */
int64_t mm_pieces_codec_wait(const mm_pieces *pieces, const int64_t *ended_ns);

/* Whether a step waits for any operation. */
static inline bool mm_piece_waits(const mm_piece *step) {
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++)
        if (step->wait[s] >= 0) return true;
    return false;
}

static inline bool mm_piece_is_first(const mm_pieces *p, const mm_piece *piece) {
    return piece->seq == p->first[piece->node];
}
static inline bool mm_piece_is_last(const mm_pieces *p, const mm_piece *piece) {
    return piece->seq == p->last[piece->node];
}

#endif
