/* SPDX-License-Identifier: MIT */
/* Values in a file of graphs or of plans, with messages that name the file and the place in it. */
#ifndef MM_CORE_GRAPH_GRAPH_READ_VALUE_H
#define MM_CORE_GRAPH_GRAPH_READ_VALUE_H

#include <jansson.h>

#include "mm/core/graph/graph_words.h"
#include "mm/core/status.h"

typedef struct mm_graph_reader {
    const char *what; /* the kind of file: "graph file" */
    const char *path;
    mm_graph *graph; /* that is read */
    char where[64];  /* the place in the file: "graph 0, step 12" */
} mm_graph_reader;

/* Fail with MM_ERR_FORMAT, and name the place, and the key. */
mm_status mm_graph_bad(const mm_graph_reader *reader, const char *what);
mm_status mm_graph_bad_key(const mm_graph_reader *reader, const char *key, const char *what);
/* The status of a declaration: one that was refused is a fault of the file. */
MM_CHECKED mm_status mm_graph_declared(const mm_graph_reader *reader, mm_status status);

/* Refuses an object that has other keys than these (NULL ends them), or is no object. */
MM_CHECKED mm_status mm_graph_check_keys(const mm_graph_reader *reader, json_t *object, const char *const *keys);

/* All fail with MM_ERR_FORMAT if the value is missing, of another type, or out of range. key: for messages. Texts are
 * borrowed from the JSON. They have no control characters, so that a message stays on one line. */
MM_CHECKED mm_status mm_graph_text_of(const mm_graph_reader *reader, const char *key, const json_t *value,
                                      const char **text_out);
MM_CHECKED mm_status mm_graph_text(const mm_graph_reader *reader, const json_t *object, const char *key,
                                   const char **text_out);
MM_CHECKED mm_status mm_graph_word(const mm_graph_reader *reader, const json_t *object, const char *key,
                                   const mm_graph_words *words, int *value_out);
MM_CHECKED mm_status mm_graph_integer(const mm_graph_reader *reader, const json_t *object, const char *key,
                                      int64_t most, int64_t *integer_out);
/* An array of at most so many entries. It may be missing, and then is NULL, which counts as empty. */
MM_CHECKED mm_status mm_graph_array(const mm_graph_reader *reader, const json_t *object, const char *key, size_t most,
                                    json_t **array_out);
/* The tensor of the graph with that name. */
MM_CHECKED mm_status mm_graph_named_tensor(const mm_graph_reader *reader, const json_t *object, const char *key,
                                           mm_tensor *tensor_out);

#endif
