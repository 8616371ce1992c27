/* SPDX-License-Identifier: MIT */
/* Measures how high published instances are placed, and how long that takes, through the calls that plans make.
 *
 * An instance is a file of MiniMalloc's format: a line of names of columns, then one item a line: id, lower, upper,
 * size, and possibly offset. The item lives from lower to upper - 1. An offset is where the item has to lie; where it
 * is empty, the item is free. MiniMalloc's hard instances (its folder benchmarks/challenging, A to K) fit in
 * 1048576. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "buffers/layout/layout.h"
#include "tools/args/args.h"

typedef struct bench {
    const char *instance_list;
    int64_t capacity;
    bool fit, help;
    arg_texts instances;
    int n_fit;
    double fit_s; /* of all instances */
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

static mm_status read_items(FILE *file, mm_interval **items, size_t *n) {
    char line[256];
    mm_status status = MM_OK;
    for (int number = 1; status == MM_OK && fgets(line, sizeof line, file); number++) {
        int64_t first, end, bytes, offset = 0;
        const int read =
            sscanf(line, "%*[^,],%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64, &first, &end, &bytes, &offset);
        if (number == 1 && read < 3) continue;
        if (read < 3 || first < 0 || end <= first || end > INT32_MAX || bytes < 0)
            return mm_fail(
                MM_ERR_INVALID,
                "line %d: must be id, lower, upper, size and possibly offset, with 0 <= lower < upper < 2^31", number);
        status = add_item(items, *n,
                          (mm_interval){.bytes = bytes,
                                        .first = (int32_t)first,
                                        .last = (int32_t)end - 1,
                                        .offset = offset,
                                        .is_given = read == 4});
        *n += status == MM_OK;
    }
    return status;
}

static double user_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6;
}

static mm_status place(const bench *b, mm_interval *items, size_t n, mm_layout_algorithm algorithm, int64_t *height_out,
                       double *s_out) {
    const int64_t goal = algorithm == MM_LAYOUT_FIT ? b->capacity : MM_LAYOUT_NO_GOAL;
    const double start = user_s();
    MM_TRY(mm_layout_place(items, n, algorithm, 1, goal, height_out));
    *s_out = user_s() - start;
    printf(" %10" PRId64 " %8.3f", *height_out, *s_out);
    fflush(stdout);
    return MM_OK;
}

static mm_status measure(bench *b, const char *path, mm_interval *items, size_t n) {
    const char *slash = strrchr(path, '/');
    const int64_t bound = mm_layout_lower_bound(items, n, 1);
    int64_t height;
    double s;
    if (bound < 0) return MM_ERR_INVALID;
    printf("%-20s %6zu %10" PRId64, slash ? slash + 1 : path, n, bound);
    if (b->fit) {
        MM_TRY(place(b, items, n, MM_LAYOUT_FIT, &height, &s));
        b->n_fit += height <= b->capacity;
        b->fit_s += s;
        puts(height <= b->capacity ? "  fits" : "  does not fit");
        return MM_OK;
    }
    MM_TRY(place(b, items, n, MM_LAYOUT_QUICK, &height, &s));
    MM_TRY(place(b, items, n, MM_LAYOUT_BEST, &height, &s));
    MM_TRY(place(b, items, n, MM_LAYOUT_EXACT, &height, &s));
    puts("");
    return MM_OK;
}

static mm_status run_instance(bench *b, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return mm_fail(MM_ERR_IO, "%s cannot be read", path);
    mm_interval *items = NULL;
    size_t n = 0;
    mm_status status = read_items(file, &items, &n);
    fclose(file);
    if (status == MM_OK) status = measure(b, path, items, n);
    if (status != MM_OK) status = mm_fail_in(status, "%s", path);
    free(items);
    return status;
}

static mm_status run(bench *b) {
    if (!b->instance_list) return mm_fail(MM_ERR_INVALID, "--instances A.csv,B.csv is missing: it names the files");
    MM_TRY(args_split("--instances", b->instance_list, &b->instances));
    mm_status status = MM_OK;
    printf("%-20s %6s %10s", "instance", "items", "bound");
    if (b->fit)
        printf(" %10s %8s\n", "fit", "user s");
    else
        printf(" %10s %8s %10s %8s %10s %8s\n", "quick", "user s", "best", "user s", "exact", "user s");
    for (int i = 0; status == MM_OK && i < b->instances.n; i++) status = run_instance(b, b->instances.text[i]);
    if (status == MM_OK && b->fit)
        printf("%d of %d fit in %" PRId64 ", %.2f s of user CPU\n", b->n_fit, b->instances.n, b->capacity, b->fit_s);
    args_texts_fini(&b->instances);
    return status;
}

int main(int argc, char **argv) {
    bench b = {.capacity = 1048576};
    const arg table[] = {
        {"--instances", "A,B", "files: id,lower,upper,size[,offset], as MiniMalloc's", ARG_TEXT, &b.instance_list, 0,
         0},
        {"--fit", NULL, "search for placements within the capacity, as plans do", ARG_FLAG, &b.fit, 0, 0},
        {"--capacity", "N", "bytes to meet with --fit (1048576)", ARG_COUNT, &b.capacity, 1, 1e15},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "layout --instances A.csv,B.csv [OPTIONS]",
                                  "Heights of placements, and the time that they take.", &b.help);
    if (status == MM_OK && b.help) return 0;
    if (status == MM_OK) status = run(&b);
    if (status != MM_OK) fprintf(stderr, "layout: %s\n", mm_last_error());
    return status == MM_OK ? 0 : 1;
}
