/* SPDX-License-Identifier: MIT */
/* The file in which all backends of a test program keep the algorithms that timing chose. Without it, each backend on a
 * GPU would time for itself and could choose differently; sums would then have other bits, and workspaces other
 * sizes. */
#ifndef TESTS_NETS_ALGORITHMS_FILE_H
#define TESTS_NETS_ALGORITHMS_FILE_H

/* The path, for nets_backend_config.algorithms_path with deterministic = true. The file belongs to this process and is
 * removed at its end. */
const char *algorithms_file(void);

#endif
