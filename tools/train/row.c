/* SPDX-License-Identifier: MIT */
#include "tools/train/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/core/text.h"
#include "tools/args/json_file.h"
#include "tools/args/speed.h"
#include "tools/args/table.h"
#include "tools/need/target.h"

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(const double *sorted, int64_t n) { return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2; }

void row_times(row *r, int64_t images, double *seconds, double *host_seconds, int64_t n) {
    if (n == 0) return;
    int64_t first = n > 1;
    double sum = 0;
    for (int64_t i = first; i < n; i++) sum += seconds[i];
    r->iteration_seconds_mean = sum / (double)(n - first);
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    qsort(host_seconds, (size_t)n, sizeof *host_seconds, by_value);
    r->host_seconds = median(host_seconds, n);
    r->iteration_seconds_median = median(seconds, n);
    r->iteration_seconds_p95 = seconds[(int64_t)(0.95 * (double)(n - 1) + 0.5)];
    r->images_per_second = (double)images / r->iteration_seconds_median;
}

void row_end(row *r, bool interrupted) {
    strcpy(r->status, r->diverged_iteration > 0 ? "diverged" : interrupted ? "interrupted" : "ok");
}

/* ---------------------------------------------------------------- table */

enum { CELL = 64 };

static bool has_speed(const row *r) { return r->images_per_second > 0; }

static bool is_predicted(const row *r) { return !r->simulated && r->iteration_seconds_predicted > 0; }

/* The simulator's error relative to the measurement; negative: one of the two is not known. */
static double error_of(const row *r) {
    if (!is_predicted(r) || r->iteration_seconds_median <= 0) return -1;
    double error = r->iteration_seconds_predicted / r->iteration_seconds_median - 1;
    return error < 0 ? -error : error;
}

static void expected_cell(const row *r, char *cell) {
    snprintf(cell, CELL, "%.1f ms, %+.1f%%%s", 1e3 * r->iteration_seconds_predicted,
             100 * (r->iteration_seconds_predicted / r->iteration_seconds_median - 1), r->calibrated ? " (own)" : "");
}

/* Whether host_seconds says anything: on the host device the training thread competes with the computation for
 * cores. */
static bool has_host_time(const row *r) { return r->host_seconds > 0 && !target_is_host(r->device); }

static double host_seconds_per_layer(const row *r) { return r->layers > 0 ? r->host_seconds / (double)r->layers : 0; }

const char *row_stand_in(const row *r) {
    return r->policy_now && strcmp(r->policy_now, r->policy) != 0 ? r->policy_now : NULL;
}

char *row_policy(const row *r) {
    const char *now = r->ran ? NULL : row_stand_in(r), *mark = r->lossy ? " (lossy)" : "";
    return r->ran ? mm_text_format("%s", r->ran)
                  : mm_text_format("%s%s%s%s", r->policy, mark, now ? " -> " : "", now ? now : "");
}

static void size_cell(table *t, int64_t bytes) {
    char size[32];
    table_cell(t, "%s", bytes > 0 ? mm_size_format(bytes, size, sizeof size) : "-");
}

static void net_cell(table *t, const row *r) { table_cell(t, "%s", r->net); }
static bool is_split(const row *r) { return r->sub_batch > 0 && r->sub_batch < row_part(r); }

static void batch_cell(table *t, const row *r) {
    char ranks[16] = "", passes[24] = "";
    if (r->ranks > 1) snprintf(ranks, sizeof ranks, "%dx", r->ranks);
    if (is_split(r)) snprintf(passes, sizeof passes, "/%lld", (long long)r->sub_batch);
    table_cell(t, "%s%lld%s", ranks, (long long)row_part(r), passes);
}

static void budget_cell(table *t, const row *r) { size_cell(t, r->budget_bytes); }
static void predicted_cell(table *t, const row *r) { size_cell(t, r->predicted_peak_bytes); }
static void touched_cell(table *t, const row *r) { size_cell(t, r->peak_bytes); }
static void outside_cell(table *t, const row *r) { size_cell(t, r->outside_bytes); }
static void stash_cell(table *t, const row *r) { size_cell(t, r->stash_bytes); }
static void pinned_cell(table *t, const row *r) { size_cell(t, r->pinned_bytes); }
static double speed(const row *r) { return speed_of(r->images_per_second, r->sample_tokens); }
static void speed_cell(table *t, const row *r) { table_cell(t, "%.1f", speed(r)); }
static void status_cell(table *t, const row *r) {
    if (r->same_plan_as)
        table_cell(t, "%s (same plan as %s)", r->status, r->same_plan_as);
    else
        table_cell(t, "%s", r->status);
}

static void policy_cell(table *t, const row *r) {
    char *name = row_policy(r);
    if (name)
        table_cell(t, "%s", name);
    else
        table_fail(t);
    free(name);
}

static void hidden_cell(table *t, const row *r) {
    if (r->codec_hidden_share >= 0)
        table_cell(t, "%.0f%%", 100 * r->codec_hidden_share);
    else
        table_cell(t, "-");
}

static void gap_cell(table *t, const row *r) {
    if (r->bound_seconds > 0)
        table_cell(t, "%.1f%%", 100 * (r->iteration_seconds_predicted / r->bound_seconds - 1));
    else
        table_cell(t, "-");
}

static void ratio_cell(table *t, const row *r) {
    if (r->coded_bytes > 0)
        table_cell(t, "%.1fx", r->encoded_bytes / r->coded_bytes);
    else
        table_cell(t, "-");
}

static void host_cell(table *t, const row *r) {
    if (has_host_time(r))
        table_cell(t, "%.0f us, %.2f a layer%s", 1e6 * r->host_seconds, 1e6 * host_seconds_per_layer(r),
                   r->replays > 0 ? ", replayed" : "");
    else
        table_cell(t, "-");
}

/* Writes large losses with an exponent, so that the cell stays narrow. */
static const char *loss_text(double loss, char text[CELL]) {
    snprintf(text, CELL, fabs(loss) < 1e4 || !isfinite(loss) ? "%.2f" : "%.2e", loss);
    return text;
}

static void loss_cell(table *t, const row *r) {
    char first[CELL], last[CELL];
    if (r->simulated)
        table_cell(t, "-");
    else
        table_cell(t, "%s -> %s", loss_text(r->loss_first, first), loss_text(r->loss_last, last));
}

static void accuracy_cell(table *t, const row *r) {
    if (r->test_accuracy >= 0)
        table_cell(t, "%.2f%%", 100 * r->test_accuracy);
    else
        table_cell(t, "-");
}

static void simulated_cell(table *t, const row *r) {
    char cell[CELL] = "-";
    if (is_predicted(r)) expected_cell(r, cell);
    table_cell(t, "%s", cell);
}

/* The columns of the table, in order. A row that did not run fills only the columns with `names`; its status follows in
 * place of figures. */
static const struct column {
    table_column shown;
    void (*cell)(table *t, const row *r);
    bool names;
} columns[] = {
    {{"net", true, 0}, net_cell, true},
    {{"batch", false, 0}, batch_cell, true},
    {{"policy", true, 0}, policy_cell, true},
    {{"budget", false, 0}, budget_cell, true},
    {{"predicted", false, 2}, predicted_cell, false},
    {{"touched", false, 9}, touched_cell, false},
    {{"outside", false, 1}, outside_cell, false},
    {{"stash", false, 5}, stash_cell, false},
    {{"pinned", false, 7}, pinned_cell, false},
    {{"img/s", false, 0}, speed_cell, false},
    {{"gap", false, 0}, gap_cell, false},
    {{"hidden", false, 8}, hidden_cell, false},
    {{"ratio", false, 4}, ratio_cell, false},
    {{"host", false, 3}, host_cell, false},
    {{"loss", true, 6}, loss_cell, false},
    {{"accuracy", false, 11}, accuracy_cell, false},
    {{"simulated", false, 10}, simulated_cell, false},
    {{"status", true, 0}, status_cell, false},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static void add_row(table *t, const row *r) {
    table_row(t);
    for (int c = 0; c < COLUMNS; c++)
        if (has_speed(r) || columns[c].names) columns[c].cell(t, r);
    if (!has_speed(r)) table_note(t, "%s", r->status);
}

/* A training is about its loss: all other figures are dropped first. */
enum { DROP_LAST = 12 };

static mm_status print_table(FILE *file, const row *rows, int n, bool training) {
    table_column shown[COLUMNS];
    table *t;
    for (int c = 0; c < COLUMNS; c++) {
        shown[c] = columns[c].shown;
        if (columns[c].cell == speed_cell && n > 0) shown[c].head = speed_unit_brief(rows[0].sample_tokens);
        if (columns[c].cell == loss_cell && training) shown[c].drop = DROP_LAST;
    }
    MM_TRY(table_create(shown, COLUMNS, TABLE_DROPPING, &t));
    for (int i = 0; i < n; i++) add_row(t, &rows[i]);
    mm_status status = table_print(file, t);
    table_destroy(t);
    return status;
}

mm_status rows_print(FILE *file, const row *rows, int n) { return print_table(file, rows, n, false); }

mm_status row_print(FILE *file, const row *r) { return print_table(file, r, 1, true); }

mm_status row_print_line(FILE *file, const row *r) {
    char size[32], *name = row_policy(r);
    if (!name) return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
    fprintf(file, "%s, batch %lld, ", r->net, (long long)r->batch);
    if (r->ranks > 1) fprintf(file, "%d ranks, ", r->ranks);
    if (is_split(r)) fprintf(file, "sub-batch %lld, ", (long long)r->sub_batch);
    fprintf(file, "%s", name);
    free(name);
    if (r->asked_bytes > 0) fprintf(file, ", budget %s", mm_size_format(r->asked_bytes, size, sizeof size));
    if (has_speed(r))
        fprintf(file, ": %.1f %s, %.1f ms", speed(r), speed_unit_brief(r->sample_tokens),
                1e3 * r->iteration_seconds_median);
    if (has_speed(r) && is_predicted(r)) {
        char cell[CELL];
        expected_cell(r, cell);
        fprintf(file, ", simulated %s", cell);
    }
    fprintf(file, ": %s\n", r->status);
    return MM_OK;
}

mm_status rows_print_error(FILE *file, const row *rows, int n) {
    double *errors = malloc(((size_t)n + 1) * sizeof *errors);
    int known = 0, own = 0;
    if (!errors) return mm_fail(MM_ERR_NOMEM, "out of memory for the simulator's errors");
    for (int i = 0; i < n; i++) {
        if (error_of(&rows[i]) < 0) continue;
        if (rows[i].calibrated)
            own++;
        else
            errors[known++] = 100 * error_of(&rows[i]);
    }
    if (known > 0) {
        qsort(errors, (size_t)known, sizeof *errors, by_value);
        fprintf(file, "\nsimulator error of %d runs%s: median %.1f%%, p90 %.1f%%, max %.1f%%\n", known,
                own > 0 ? " without own facts" : "", median(errors, known), errors[(int)(0.9 * (known - 1) + 0.5)],
                errors[known - 1]);
    }
    free(errors);
    return MM_OK;
}

void rows_print_idle(FILE *file, const row *rows, int n) {
    for (int i = 0; i < n; i++) {
        bool told = !rows[i].idle || (rows[i].unforced && rows[i].same_plan_as);
        for (int k = 0; !told && k < i; k++) told = rows[k].idle && strcmp(rows[k].idle, rows[i].idle) == 0;
        if (!told) fprintf(file, "%s\n", rows[i].idle);
    }
}

void rows_print_offers(FILE *file, const row *rows, int n) {
    char size[32];
    for (int i = 0; i < n; i++)
        if (rows[i].offer)
            fprintf(file, "%s, batch %lld, %s: %s %s\n", rows[i].net, (long long)rows[i].batch,
                    mm_size_format(rows[i].budget_bytes, size, sizeof size), rows[i].offer, rows[i].offer_text);
}

/* ---------------------------------------------------------------- JSON */

/* null if not finite, which JSON cannot express. */
static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *optional(double value) { return value < 0 ? json_null() : number(value); }

static json_t *positive(double value) { return optional(value > 0 ? value : -1); }

/* 0, unknown, becomes null. */
static json_t *known_bytes(int64_t bytes) { return bytes > 0 ? json_integer(bytes) : json_null(); }

/* The part of the process's memory that is not planned: the program, its libraries and their buffers, data. */
static json_t *host_other_bytes(const row *r) {
    int64_t rest = r->host_peak_bytes - r->host_planned_bytes;
    return r->host_peak_bytes > 0 ? json_integer(rest > 0 ? rest : 0) : json_null();
}

/* null: none. */
static json_t *offer_json(const row *r) {
    if (!r->offer) return json_null();
    const double times = r->images_per_second > 0 ? r->offer_per_second / r->images_per_second : 0;
    return json_pack("{ss so so ss}", "policy", r->offer, "images_per_second", positive(r->offer_per_second), "times",
                     positive(times), "differs", r->offer_differs);
}

/* null if nothing ran. */
static json_t *code_bytes(const row *r, double bytes) {
    return r->iteration_seconds_median > 0 ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *to_json(const row *r) {
    bool ran = r->iteration_seconds_median > 0;
    return json_pack(
        "{ss sI sI si ss ss ss si sI ss ss sb sI ss sI sI sI sI sI sI sI sf sf sf so so sb sb so sf sf so so so so so "
        "so "
        "so "
        "sI "
        "sI "
        "sI so so so so so so so sI so so sI sI ss? ss? ss? so ss}",
        "net", r->net, "batch", (json_int_t)r->batch, "sub_batch", (json_int_t)r->sub_batch, "ranks",
        r->ranks > 1 ? r->ranks : 1, "device", r->device, "precision", r->precision, "fuse", r->fuse, "threads",
        r->threads, "workspace_limit_bytes", (json_int_t)r->workspace_limit_bytes, "policy", r->policy,
        "policy_effective", r->policy_now ? r->policy_now : r->policy, "lossy", (int)r->lossy, "ladder_steps",
        (json_int_t)r->ladder_steps, "codec", r->codec, "budget_bytes", (json_int_t)r->budget_bytes, "peak_bytes",
        (json_int_t)r->peak_bytes, "predicted_peak_bytes", (json_int_t)r->predicted_peak_bytes, "minimum_bytes",
        (json_int_t)r->minimum_bytes, "staged_bytes", (json_int_t)r->staged_bytes, "outside_bytes",
        (json_int_t)r->outside_bytes, "stash_bytes", (json_int_t)r->stash_bytes, "images_per_second",
        r->images_per_second, "iteration_seconds_median", r->iteration_seconds_median, "iteration_seconds_p95",
        r->iteration_seconds_p95, "iteration_seconds_predicted",
        optional(r->iteration_seconds_predicted > 0 ? r->iteration_seconds_predicted : -1), "simulator_error",
        optional(error_of(r)), "simulated", (int)r->simulated, "calibrated", (int)r->calibrated, "codec_hidden_share",
        optional(r->codec_hidden_share), "codec_busy_seconds", r->codec_busy_seconds, "compute_busy_seconds",
        r->compute_busy_seconds, "step_ratio", positive(r->step_ratio), "compute_ratio", positive(r->compute_ratio),
        "host_seconds", positive(r->host_seconds), "host_seconds_per_layer", positive(host_seconds_per_layer(r)),
        "loss_first", ran ? number(r->loss_first) : json_null(), "loss_last", ran ? number(r->loss_last) : json_null(),
        "test_accuracy", optional(r->test_accuracy), "iterations", (json_int_t)r->iterations, "replays",
        (json_int_t)r->replays, "pinned_bytes", (json_int_t)r->pinned_bytes, "host_peak_bytes",
        known_bytes(r->host_peak_bytes), "host_planned_bytes", known_bytes(r->host_planned_bytes), "host_other_bytes",
        host_other_bytes(r), "encoded_bytes", code_bytes(r, r->encoded_bytes), "coded_bytes",
        code_bytes(r, r->coded_bytes), "spilled_bytes", code_bytes(r, r->spilled_bytes), "bound_seconds",
        positive(r->bound_seconds), "replans", (json_int_t)r->replans, "tokens_per_second",
        positive(r->sample_tokens > 0 ? speed(r) : -1), "test_loss",
        r->test_accuracy < 0 ? json_null() : number(r->test_loss), "moved_bytes", (json_int_t)r->moved_bytes,
        "steps_again", (json_int_t)r->steps_again, "idle", r->idle, "would", r->would, "same_plan_as", r->same_plan_as,
        "offer", offer_json(r), "status", r->status);
}

mm_status rows_save(const char *path, const row *rows, int n) {
    json_t *array = json_array();
    for (int i = 0; array && i < n; i++) {
        json_t *one = to_json(&rows[i]);
        if (one && rows[i].store_bytes > 0)
            json_object_update_new(one, json_pack("{sI sI}", "store_bytes", (json_int_t)rows[i].store_bytes,
                                                  "load_bytes", (json_int_t)rows[i].load_bytes));
        if (json_array_append_new(array, one) == 0) continue;
        json_decref(array);
        array = NULL;
    }
    return json_file_save(path, array);
}
