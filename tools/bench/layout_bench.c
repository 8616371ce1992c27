/* SPDX-License-Identifier: MIT */
/* Measures how high the skyline heuristic and the exact search place published instances, and how long they take.
 *
 * An instance is a file of MiniMalloc's format: a line of names of columns, then one item a line: id, lower, upper,
 * size. The item lives from lower to upper - 1. MiniMalloc's hard instances (its folder benchmarks/challenging, A to K)
 * fit in 1048576. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffers/layout/layout.h"
#include "mm/device/contract/clock.h"
#include "tools/args/args.h"

typedef struct bench {
    const char *instance_list;
    int64_t capacity, nodes;
    bool help;
    arg_texts instances;
} bench;

static mm_status add_item(mm_interval **items, size_t n, mm_interval item) {
    if ((n & (n - 1)) == 0) {
        mm_interval *grown = realloc(*items, (n ? 2 * n : 1) * sizeof *grown);
        if (!grown) return mm_fail(MM_ERR_NOMEM, "out of memory for %zu items", n);
        *items = grown;
    }
    (*items)[n] = item;
    return MM_OK;
}

static mm_status read_items(const char *path, FILE *file, mm_interval **items, size_t *n) {
    char line[256];
    mm_status status = MM_OK;
    for (int number = 1; status == MM_OK && fgets(line, sizeof line, file); number++) {
        int64_t first, end, bytes;
        const int read = sscanf(line, "%*[^,],%" SCNd64 ",%" SCNd64 ",%" SCNd64, &first, &end, &bytes);
        if (number == 1 && read != 3) continue;
        if (read != 3 || first < 0 || end <= first || end > INT32_MAX || bytes < 0)
            return mm_fail(MM_ERR_INVALID,
                           "%s, line %d: must be id, lower, upper, size, with 0 <= lower < upper < 2^31", path, number);
        status = add_item(items, *n, (mm_interval){bytes, (int32_t)first, (int32_t)end - 1, 0});
        *n += status == MM_OK;
    }
    return status;
}

static mm_status measure(const bench *b, const char *path, mm_interval *items, size_t n) {
    const char *slash = strrchr(path, '/');
    int64_t nodes = b->nodes, height;
    bool fits;
    const int64_t bound = mm_layout_lower_bound(items, n, 1), start = mm_now_ns();
    if (bound < 0) return MM_ERR_INVALID;
    MM_TRY(mm_layout_place(items, n, MM_LAYOUT_BEST, 1, &height));
    const int64_t placed = mm_now_ns();
    MM_TRY(mm_layout_fit(items, n, 1, b->capacity, &nodes, &fits));
    const double s = (double)(mm_now_ns() - placed) * 1e-9;
    const int64_t used = b->nodes - nodes;
    printf("%-20s %6zu %10" PRId64 " %10" PRId64 " %8.3f  %-7s %10" PRId64 " %8.3f %10.0f\n", slash ? slash + 1 : path,
           n, bound, height, (double)(placed - start) * 1e-9,
           fits        ? "fits"
           : nodes > 0 ? "none"
                       : "stopped",
           used, s, used > 0 ? (double)used / s : 0);
    fflush(stdout);
    return MM_OK;
}

static mm_status run_instance(const bench *b, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return mm_fail(MM_ERR_IO, "%s cannot be read", path);
    mm_interval *items = NULL;
    size_t n = 0;
    mm_status status = read_items(path, file, &items, &n);
    fclose(file);
    if (status == MM_OK) status = measure(b, path, items, n);
    free(items);
    return status;
}

static mm_status run(bench *b) {
    if (!b->instance_list) return mm_fail(MM_ERR_INVALID, "--instances A.csv,B.csv is missing: it names the files");
    MM_TRY(args_split("--instances", b->instance_list, &b->instances));
    mm_status status = MM_OK;
    printf("%-20s %6s %10s %10s %8s  %-7s %10s %8s %10s\n", "instance", "items", "live", "skyline", "s", "exact",
           "nodes", "s", "nodes/s");
    for (int i = 0; status == MM_OK && i < b->instances.n; i++) status = run_instance(b, b->instances.text[i]);
    args_texts_fini(&b->instances);
    return status;
}

int main(int argc, char **argv) {
    bench b = {.capacity = 1048576, .nodes = 50000000};
    const arg table[] = {
        {"--instances", "A,B", "files: id,lower,upper,size, as MiniMalloc's", ARG_TEXT, &b.instance_list, 0, 0},
        {"--capacity", "N", "bytes that the exact search may take (1048576)", ARG_COUNT, &b.capacity, 1, 1e15},
        {"--nodes", "N", "nodes after which the exact search stops (50000000)", ARG_COUNT, &b.nodes, 1, 1e15},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "layout --instances A.csv,B.csv [OPTIONS]",
                                  "Heights and times of the skyline and of the exact search.", &b.help);
    if (status == MM_OK && b.help) return 0;
    if (status == MM_OK) status = run(&b);
    if (status != MM_OK) fprintf(stderr, "layout: %s\n", mm_last_error());
    return status == MM_OK ? 0 : 1;
}
