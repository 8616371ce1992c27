/* SPDX-License-Identifier: MIT */
/* trace_told TRACE [ROWS]: checks a trace (tests/core/trace_check.h), and with ROWS compares it with the plans' bytes
 * at each step. Prints for each process, as name=value: iterations, flows, counters, slices, waits, memories (of
 * plans), replans, seconds of all iterations, and each stream's busy seconds. Then the number of dropped slices. */
#include <stdio.h>

#include "tests/core/trace_check.h"

static json_t *read_rows(const char *path) {
    json_error_t error;
    json_t *rows = json_load_file(path, 0, &error);
    if (!rows) fprintf(stderr, "trace_told: %s, line %d: %s\n", path, error.line, error.text);
    return rows;
}

int main(int argc, char **argv) {
    static trace_checked checked;
    if (argc < 2 || argc > 3) return 2;
    json_t *rows = argc == 3 ? read_rows(argv[2]) : NULL;
    if (argc == 3 && !rows) return 1;
    const bool good = trace_check(argv[1], rows, &checked);
    json_decref(rows);
    if (!good) return 1;
    for (int i = 0; i < checked.n; i++) {
        const trace_process *p = &checked.process[i];
        printf("%s\niterations=%d flows=%d counters=%d slices=%d waits=%d memories=%d replans=%d seconds=%.9f", p->name,
               p->iterations, p->flows, p->counters, p->slices, p->waits, p->memories, p->replans,
               (double)p->iterations_ns * 1e-9);
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            printf(" %s=%.9f", mm_stream_id_name((mm_stream_id)s), (double)p->busy_ns[s] * 1e-9);
        putchar('\n');
    }
    printf("dropped=%lld\n", (long long)checked.dropped);
    return 0;
}
