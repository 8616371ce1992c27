/* SPDX-License-Identifier: MIT */
/* Started by mpirun: runs comm_sums_try as one rank. Exit status 0: all is right; 77: there is no MPI. Argument "root":
 * rank 0 adds up. "apart": the last rank begins a sum of another size than the others; all must get an error (exit
 * status 3). */
#include <stdio.h>
#include <string.h>

#include "tests/comm/comm_sums.h"

/* Begins sums of different sizes on the ranks. Returns NULL if this fails with an error of MPI, else what went
 * wrong. */
static const char *try_apart(comm *m) {
    static float sums[1000];
    comm_allreduce_begin(m, COMM_SUM, sums, comm_rank(m) == comm_size(m) - 1 ? 1000 : 10);
    if (comm_allreduce_wait(m, NULL) == MM_OK) return "a sum of 10 with one of 1000";
    return strncmp(mm_last_error(), "MPI_", 4) == 0 ? NULL : mm_last_error();
}

int main(int argc, char **argv) {
    const comm_config config = {.backend = "mpi", .at_root = argc > 1 && strcmp(argv[1], "root") == 0};
    comm *m;
    mm_status status = comm_open(&config, &m);
    if (status != MM_OK) {
        fprintf(stderr, "%s\n", mm_last_error());
        return status == MM_ERR_UNSUPPORTED ? 77 : 1;
    }
    const bool apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    const char *wrong = apart ? try_apart(m) : comm_sums_try(m, 5);
    if (wrong) fprintf(stderr, "rank %d of %d: %s\n", comm_rank(m), comm_size(m), wrong);
    if (wrong || apart) comm_abort(m, wrong ? 1 : 3);
    comm_close(m);
    return 0;
}
