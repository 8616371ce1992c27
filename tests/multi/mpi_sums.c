/* Started by mpirun: this rank's part of multi_sums_try. Exit status 0: all is right; 77: there is no MPI. The argument
 * "root": rank 0 adds up. */
#include <stdio.h>
#include <string.h>

#include "tests/multi/multi_sums.h"

int main(int argc, char **argv) {
    const multi_config config = {.engine = "mpi", .at_root = argc > 1 && strcmp(argv[1], "root") == 0};
    multi *m;
    mm_status status = multi_open(&config, &m);
    if (status != MM_OK) {
        fprintf(stderr, "%s\n", mm_last_error());
        return status == MM_ERR_UNSUPPORTED ? 77 : 1;
    }
    const char *wrong = multi_sums_try(m, 5);
    if (wrong) fprintf(stderr, "rank %d of %d: %s\n", multi_rank(m), multi_ranks(m), wrong);
    if (wrong) multi_abort(m, 1);
    multi_close(m);
    return 0;
}
