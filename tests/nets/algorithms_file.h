/* Where all backends of a test program keep the algorithms that timing chose. On a GPU each would time anew else, and
 * by chance choose others, whose sums have other bits and whose workspaces have other sizes. */
#ifndef TESTS_NETS_ALGORITHMS_FILE_H
#define TESTS_NETS_ALGORITHMS_FILE_H

/* For nets_backend_config.algorithms_path, with deterministic = true. Of this process alone, and removed when it
 * ends. */
const char *algorithms_file(void);

#endif
