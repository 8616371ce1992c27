/* SPDX-License-Identifier: MIT */
/* Private to plan_file.h: the lines of a file of plans, as tables that the writer and the reader share. */
#ifndef MM_CORE_PLAN_PLAN_LINES_H
#define MM_CORE_PLAN_PLAN_LINES_H

#include "mm/core/graph/graph_words.h"
#include "mm/core/plan/plan_file.h"

/* Kinds of lines: name, word. In a plan, its lines follow one another in this order, after its header. */
#define MM_PLAN_LINES(X)                                                                                               \
    X(GRAPH, "graph")                                                                                                  \
    X(LIMITS, "limits")                                                                                                \
    X(HOME, "home")                                                                                                    \
    X(FACTS, "facts")                                                                                                  \
    X(CODEC, "codec")                                                                                                  \
    X(CODE, "code")                                                                                                    \
    X(VARIANTS, "variants")                                                                                            \
    X(PLAN, "plan")                                                                                                    \
    X(ALIAS, "alias")                                                                                                  \
    X(SEGMENT, "segment")                                                                                              \
    X(NODE, "node")                                                                                                    \
    X(PIECE, "piece")

#define MM_PLAN_LINE(name, word) MM_LINE_##name,
typedef enum mm_plan_line { MM_PLAN_LINES(MM_PLAN_LINE) MM_PLAN_LINE_KINDS } mm_plan_line;
#undef MM_PLAN_LINE

const char *mm_plan_line_name(int line);

/* Where a segment is. */
typedef enum mm_plan_where {
    MM_WHERE_DEVICE = MM_MEM_DEVICE,
    MM_WHERE_PINNED = MM_MEM_PINNED,
    MM_WHERE_DISK = MM_MEM_DISK,
    MM_WHERE_HEAP,
    MM_WHERES
} mm_plan_where;

extern const mm_graph_words mm_words_where, mm_words_content, mm_words_category, mm_words_node, mm_words_stream,
    mm_words_sum_at;

/* Limits of what a file may say. Chosen: far above any plan, and so that sums over a plan fit 64 bits. */
#define MM_PLAN_MOST_BYTES (INT64_C(1) << 61) /* of all segments together; of an offset, a base or a part of a tensor */
enum {
    MM_PLAN_MOST_LINES = 1 << 24,  /* of one kind, in one plan */
    MM_PLAN_MOST_CODECS = 1 << 10, /* of one plan, */
    MM_PLAN_MOST_CODES = 1 << 22,  /* and times its tensors */
    MM_PLAN_MOST_STRIP = 1 << 15,  /* elements of a strip, unless its tensor has more */
};

typedef enum mm_plan_value {
    MM_VALUE_INT,  /* int or int32_t */
    MM_VALUE_LONG, /* int64_t */
    MM_VALUE_BOOL,
} mm_plan_value;

/* A key whose value is a number, true or false, and the member of a struct that has it. */
typedef struct mm_plan_field {
    const char *key;
    size_t offset;
    mm_plan_value value;
    bool needed; /* false: it is left out if the value is `otherwise` */
    int64_t otherwise;
    int64_t least, most; /* of a number that is there */
} mm_plan_field;

/* Each ends with a NULL key. */
extern const mm_plan_field mm_plan_limits_fields[];  /* of mm_limits */
extern const mm_plan_field mm_plan_home_fields[];    /* of mm_place */
extern const mm_plan_field mm_plan_facts_fields[];   /* of mm_graph_facts */
extern const mm_plan_field mm_plan_codec_fields[];   /* of mm_codec_facts */
extern const mm_plan_field mm_plan_code_fields[];    /* of mm_code_facts */
extern const mm_plan_field mm_plan_variant_fields[]; /* of mm_variant */
extern const mm_plan_field mm_plan_count_fields[];   /* of mm_plan_counts */
extern const mm_plan_field mm_plan_plan_fields[];    /* of mm_plan */
extern const mm_plan_field mm_plan_segment_fields[]; /* of mm_segment */
extern const mm_plan_field mm_plan_node_fields[];    /* of mm_node */
extern const mm_plan_field mm_plan_piece_fields[];   /* of mm_piece */

/* How many lines of these kinds a plan has. */
typedef struct mm_plan_counts {
    int segments, nodes, pieces;
} mm_plan_counts;

int64_t mm_plan_field_get(const mm_plan_field *field, const void *of);
void mm_plan_field_set(const mm_plan_field *field, void *of, int64_t value);

#endif
