/* SPDX-License-Identifier: MIT */
#include "tools/plan/explain_homes.h"

#include <stdbool.h>
#include <stdlib.h>

#include "mm/core/plan/plan_visits.h"
#include "mm/core/size.h"
#include "tools/args/table.h"

/* The tensors with homes in pinned memory or on the disk, the largest first. Returns their number; -1: out of
 * memory. */
typedef struct home {
    mm_tensor tensor;
    int64_t bytes;
} home;

static int by_bytes(const void *a, const void *b) {
    const home *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : x->tensor - y->tensor;
}

static int list_homes(const mm_plan *plan, home **list_out) {
    home *list = malloc(((size_t)mm_graph_tensors(plan->graph) + 1) * sizeof *list);
    int n = 0;
    if (!list) return -1;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++)
        if (mm_plan_visits(plan, t)) list[n++] = (home){t, mm_graph_tensor(plan->graph, t)->bytes};
    qsort(list, (size_t)n, sizeof *list, by_bytes);
    *list_out = list;
    return n;
}

/* ---------------------------------------------------------------- text */

static void print_visits(FILE *file, const mm_plan *plan, mm_tensor tensor) {
    char step[256];
    int n = 0;
    mm_plan_visit v;
    for (int s = 0; mm_plan_next_visit(plan, tensor, &s, &v);) {
        fprintf(file, "%s%s ", n++ ? "; " : "", v.fetched ? "comes for" : "made by");
        fputs(v.first < 0 ? "nothing" : mm_graph_step_name(plan->graph, v.first, step, sizeof step), file);
        if (v.last != v.first) fprintf(file, " to %s", mm_graph_step_name(plan->graph, v.last, step, sizeof step));
        fputs(v.sent ? ", goes home" : "", file);
    }
    if (mm_graph_tensor(plan->graph, tensor)->on_host) fprintf(file, "%supdated there", n++ ? "; " : "");
    fputs(n ? "" : "stays there", file);
}

static mm_status print_home(FILE *file, const mm_plan *plan, const home *h) {
    enum { INDENT = 14 };
    char size[32], *text = NULL;
    size_t bytes;
    FILE *told = open_memstream(&text, &bytes);
    if (!told) return mm_fail(MM_ERR_NOMEM, "out of memory for the explanation");
    print_visits(told, plan, h->tensor);
    const bool whole = fclose(told) == 0;
    if (whole) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, h->tensor);
        const bool disk = plan->segments[tensor->persistent].memory == MM_MEM_DISK;
        fprintf(file, "  %10s  %s%s\n%*s", mm_size_format(h->bytes, size, sizeof size), tensor->name,
                disk ? ", on the disk" : "", INDENT, "");
        table_wrap(file, INDENT, INDENT, text);
        fputc('\n', file);
    }
    free(text);
    return whole ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the explanation");
}

/* Tells how many tensors have their homes in a memory, in all and of each kind. */
static void print_kinds(FILE *file, const mm_plan *plan, const home *list, int n, mm_memory memory) {
    int64_t all = 0, bytes[MM_TENSOR_KINDS] = {0};
    int total = 0, count[MM_TENSOR_KINDS] = {0};
    char size[32];
    for (int i = 0; i < n; i++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, list[i].tensor);
        if (plan->segments[tensor->persistent].memory != memory) continue;
        all += list[i].bytes;
        total++;
        bytes[tensor->kind] += list[i].bytes;
        count[tensor->kind]++;
    }
    if (total == 0) return;
    fprintf(file, "%s, %s: %d tensors of %s have their homes %s\n", mm_graph_name(plan->graph), plan->policy, total,
            mm_size_format(all, size, sizeof size), mm_memory_where(memory));
    for (int k = 0; k < MM_TENSOR_KINDS; k++)
        if (count[k] > 0)
            fprintf(file, "  %10s  %d of kind %s\n", mm_size_format(bytes[k], size, sizeof size), count[k],
                    mm_tensor_kind_name((mm_tensor_kind)k));
}

mm_status explain_homes_print(FILE *file, const mm_plan *plan, int most) {
    home *list;
    const int n = list_homes(plan, &list);
    if (n < 0) return mm_fail(MM_ERR_NOMEM, "out of memory for the explanation");
    for (mm_memory m = MM_MEM_PINNED; m < MM_MEMORY_COUNT; m++) print_kinds(file, plan, list, n, m);
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < n && i < most; i++) status = print_home(file, plan, &list[i]);
    if (status == MM_OK && n > most) fprintf(file, "              and %d smaller ones\n", n - most);
    free(list);
    return status;
}

/* ---------------------------------------------------------------- json */

static json_t *visits_json(const mm_plan *plan, mm_tensor tensor) {
    char first[256], last[256];
    json_t *array = json_array();
    mm_plan_visit v;
    for (int s = 0; array && mm_plan_next_visit(plan, tensor, &s, &v);) {
        if (v.first < 0) continue;
        json_array_append_new(array, json_pack("{ss ss sb sb}", "first_step",
                                               mm_graph_step_name(plan->graph, v.first, first, sizeof first),
                                               "last_step", mm_graph_step_name(plan->graph, v.last, last, sizeof last),
                                               "fetched", v.fetched, "sent_home", v.sent));
    }
    return array;
}

json_t *explain_homes_json(const mm_plan *plan) {
    home *list;
    const int n = list_homes(plan, &list);
    json_t *array = n < 0 ? NULL : json_array();
    for (int i = 0; array && i < n; i++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, list[i].tensor);
        json_array_append_new(array,
                              json_pack("{ss ss ss sI sb so}", "name", tensor->name, "place",
                                        mm_memory_name(plan->segments[tensor->persistent].memory), "kind",
                                        mm_tensor_kind_name(tensor->kind), "bytes", (json_int_t)list[i].bytes,
                                        "on_host", tensor->on_host, "visits", visits_json(plan, list[i].tensor)));
    }
    if (n >= 0) free(list);
    return array;
}
