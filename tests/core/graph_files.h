/* SPDX-License-Identifier: MIT */
/* For tests of files of graphs: files of their own, a graph that uses all that a file can say, and a comparison. A
 * failure fails the test. */
#ifndef TESTS_CORE_GRAPH_FILES_H
#define TESTS_CORE_GRAPH_FILES_H

#include "mm/core/graph/graph.h"

enum { GRAPH_PATH = 4200 };

/* Writes the path of a file, which does not exist, in the test's temporary folder. Returns path_out. */
const char *graph_files_path(const char *name, char path_out[GRAPH_PATH]);
void graph_files_write(const char *path, const void *text, size_t n);
/* The file's text, with a NUL. The caller frees it. */
char *graph_files_read(const char *path, size_t *n_out);

/* Frozen; the caller destroys it. */
mm_graph *graph_files_everything(void);
/* The same with a step on the host. */
mm_graph *graph_files_with_host(void);

/* Fails unless the graphs are equal in all that a policy or an executor may read. */
void graph_files_expect_same(const mm_graph *a, const mm_graph *b);

#endif
