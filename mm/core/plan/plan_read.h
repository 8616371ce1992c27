/* SPDX-License-Identifier: MIT */
/* Private to plan_file.h: what the lines of a plan say (plan_read_line.c), for the reader of the file (plan_read.c). */
#ifndef MM_CORE_PLAN_PLAN_READ_H
#define MM_CORE_PLAN_PLAN_READ_H

#include "mm/core/graph/graph_read_value.h"
#include "mm/core/plan/plan_lines.h"

/* A plan that is being read. */
typedef struct mm_plan_reader {
    mm_graph_reader r; /* its graph is file.graph */
    mm_plan_file file;
    int lines[MM_PLAN_LINE_KINDS]; /* how many were read of each kind */
    mm_plan_counts counts;         /* how many the plan says that there are */
    mm_plan stated;                /* members of mm_plan_plan_fields as the plan says; the others mean nothing */
    int64_t segment_bytes;         /* of all segments so far */
    int first_segment_line;        /* number of that line in the file */
    char *policy;                  /* of the header; owned */
    int line;                      /* number of the present line in the file, from 1 */
} mm_plan_reader;

/* Read a line of a kind. All kinds before are complete. MM_ERR_FORMAT, MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_read_graph(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_limits(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_home(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_facts(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_codec(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_code(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_variants(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_plan(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_alias(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_segment(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_node(mm_plan_reader *reader, json_t *line);
MM_CHECKED mm_status mm_plan_read_piece(mm_plan_reader *reader, json_t *line);

/* Makes room for the codes of all codecs, when all codecs were read. */
MM_CHECKED mm_status mm_plan_make_codes(mm_plan_reader *reader);
/* Checks what segments say of pools, which may follow them, when all segments were read. */
MM_CHECKED mm_status mm_plan_check_pools(mm_plan_reader *reader);
/* Makes the plan and its program whole, when all lines were read. */
MM_CHECKED mm_status mm_plan_read_finish(mm_plan_reader *reader);

/* ---- values (plan_read_value.c); key: for messages */

MM_CHECKED mm_status mm_plan_no_memory(const mm_plan_reader *reader);
MM_CHECKED mm_status mm_plan_bad_key(const mm_plan_reader *reader, const char *key, const char *what);
/* Makes room for one more item of an array, whose capacity is the power of two at or above its count. False: out of
 * memory. */
bool mm_plan_grow(void **array, int count, size_t item_bytes);
/* value: NULL if it is missing. */
MM_CHECKED mm_status mm_plan_read_number(const mm_plan_reader *reader, const char *key, const json_t *value,
                                         int64_t least, int64_t most, int64_t *number_out);
/* Sets the members of a struct that the fields name. */
MM_CHECKED mm_status mm_plan_read_fields(const mm_plan_reader *reader, const json_t *line, const mm_plan_field *fields,
                                         void *of);
/* Refuses keys that are neither fields (NULL: none) nor one of `others` (NULL ends them). */
MM_CHECKED mm_status mm_plan_check_keys(const mm_plan_reader *reader, json_t *line, const mm_plan_field *fields,
                                        const mm_plan_field *more, const char *const *others);
/* Checks that a key has the number of the line among those of its kind. */
MM_CHECKED mm_status mm_plan_check_index(const mm_plan_reader *reader, const json_t *line, const char *key, int due);
/* Checks that a segment is one of the plan's, or -1. */
MM_CHECKED mm_status mm_plan_check_segment(const mm_plan_reader *reader, const char *key, int32_t segment);
/* The codec that the key "codec" names. */
MM_CHECKED mm_status mm_plan_read_codec_of(const mm_plan_reader *reader, const json_t *line, int *codec_out);
/* The key "waits". wait_out: MM_STREAM_COUNT entries. */
MM_CHECKED mm_status mm_plan_read_waits(const mm_plan_reader *reader, const json_t *line, int32_t *wait_out);

#endif
