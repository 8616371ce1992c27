/* SPDX-License-Identifier: MIT */
/* Started by mpirun: this rank's part of multi_sums_try. Exit status 0: all is right; 77: there is no MPI. The argument
 * "root": rank 0 adds up; "apart": the last rank begins another sum than the others, and must be told so. */
#include <stdio.h>
#include <string.h>

#include "tests/multi/multi_sums.h"

/* NULL: the ranks are told of MPI's error. */
static const char *try_apart(multi *m) {
    static float sums[1000];
    multi_begin(m, MULTI_SUM, sums, multi_rank(m) == multi_ranks(m) - 1 ? 1000 : 10);
    if (multi_await(m, NULL) == MM_OK) return "a sum of 10 with one of 1000";
    return strncmp(mm_last_error(), "MPI_", 4) == 0 ? NULL : mm_last_error();
}

int main(int argc, char **argv) {
    const multi_config config = {.engine = "mpi", .at_root = argc > 1 && strcmp(argv[1], "root") == 0};
    multi *m;
    mm_status status = multi_open(&config, &m);
    if (status != MM_OK) {
        fprintf(stderr, "%s\n", mm_last_error());
        return status == MM_ERR_UNSUPPORTED ? 77 : 1;
    }
    const bool apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    const char *wrong = apart ? try_apart(m) : multi_sums_try(m, 5);
    if (wrong) fprintf(stderr, "rank %d of %d: %s\n", multi_rank(m), multi_ranks(m), wrong);
    if (wrong || apart) multi_abort(m, wrong ? 1 : 3);
    multi_close(m);
    return 0;
}
