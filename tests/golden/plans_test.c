/* SPDX-License-Identifier: MIT */
/* Compares plans of every network, policy and budget with those recorded in plans.csv. They do not depend on this
 * machine: what operations need is a formula of their shapes (shape_backend.h), times follow from machine.json, and
 * each network has a limit of pinned memory.
 *
 *     bazel run //tests/golden:plans_test -- --rewrite      writes plans.csv anew: the commit says why plans changed */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "mm/core/plan/plan_file.h"
#include "mm/core/status.h"
#include "mm/core/time/simulate.h"
#include "mm/planning/planning.h"
#include "nets/lower/lower.h"
#include "nets/zoo/zoo.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/golden/shape_backend.h"
#include "tests/golden/whole_digest.h"
#include "tools/facts/facts_source.h"

static const char FILE_NAME[] = "tests/golden/plans.csv", MACHINE[] = "tests/golden/machine.json";
static const char REWRITE[] = "bazel run //tests/golden:plans_test -- --rewrite";

/* ---------------------------------------------------------------- what is planned */

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

typedef struct golden_net {
    const char *name;
    int64_t batch, pinned_bytes; /* pinned_bytes: the limit; of some networks below what policies would take */
    mm_dtype maps;
    int ranks;
    bool small; /* also planned with the policies of SMALL */
} golden_net;

static const golden_net NETS[] = {
    {"tiny", 16, GIB, MM_F32, 1, true},
    {"resnet20", 16, 12 * MIB, MM_F32, 1, true},
    {"gpt,layers=2", 8, 16 * GIB, MM_F32, 1, true},
    {"resnet32", 128, 16 * GIB, MM_F32, 2, false},
    {"resnet50", 16, 512 * MIB, MM_F32, 1, false},
    {"alexnet-2012", 64, 16 * GIB, MM_F32, 1, false},
    {"vgg16", 16, 256 * MIB, MM_F32, 1, false},
    {"nin", 32, 16 * GIB, MM_F32, 1, false},
    {"googlenet", 16, 256 * MIB, MM_F32, 1, false},
    {"squeezenet1_0", 32, 16 * GIB, MM_F32, 1, false},
    {"densenet121", 4, 16 * GIB, MM_F32, 1, false},
    {"unet", 1, 16 * GIB, MM_F32, 1, false},
    {"gpt", 16, 32 * MIB, MM_F32, 1, false},
    {"gpt,dropout=0.1", 16, 16 * GIB, MM_BF16, 1, false},
    {"gpt2", 2, 16 * GIB, MM_F32, 2, false},
};
enum { NETS_N = sizeof NETS / sizeof NETS[0] };

/* One of each policy of this build. */
static const char *const POLICIES[] = {
    "naive",
    "liveness",
    "freelunch",
    "swap",
    "swap-async",
    "hybrid",
    "vdnn-all",
    "vdnn-conv",
    "vdnn-dyn",
    "cdma",
    "modnn",
    "comet",
    "gist",
    "recompute",
    "recompute-swap",
    "auto:effort=0",
    "rules:relu=mask;conv=compress(zfp:rate=4);linear=compress-swap(zvc);*=lean-swap",
    "rotor",
    "knapsack",
    NULL,
};

/* For small networks: policies that take long, and forms that POLICIES does not have. */
static const char *const SMALL[] = {
    "auto",
    "auto:codecs=zfp:rate=4+zvc",
    "liveness:inplace=off,stash=apart",
    "liveness:layout=groups",
    "freelunch:eligible=all,rate=4,buffers=naive,workspace=naive,when=always",
    "freelunch:eligible=all,rate=4,codes=auto,k=3",
    "swap-async:depth=0",
    "vdnn-all:algorithms=least,when=always",
    "cdma:codec=zvc,signs=whole",
    "gist:lossy=fp8,depth=2",
    "recompute:mode=speed",
    "recompute:mode=memory",
    "recompute:mode=sqrt",
    "recompute:mode=nested",
    "recompute-swap:mode=nested",
    NULL,
};

/* ---------------------------------------------------------------- rows */

enum { CELL_CAPACITY = 128, KEY_CAPACITY = 2 * CELL_CAPACITY + 64, VALUES_CAPACITY = 192 };

static const char COLUMNS[] = "net,batch,maps,ranks,policy,budget,pinned limit,budget bytes,fits,digest,peak bytes,"
                              "pinned bytes,predicted ns\n";
enum { KEY_COLUMNS = 6, VALUES = 7 };
static const char *const VALUE_NAMES[VALUES] = {"pinned limit", "budget bytes", "fits",        "digest",
                                                "peak bytes",   "pinned bytes", "predicted ns"};

typedef struct row {
    char key[KEY_CAPACITY];       /* "resnet20,16,f32,1,swap,half," */
    char values[VALUES_CAPACITY]; /* the rest of the line, without its end */
} row;

typedef struct rows {
    row *rows;
    int n;
} rows;

static mm_status add_row(rows *all, row **row_out) {
    row *grown = realloc(all->rows, ((size_t)all->n + 1) * sizeof *grown);
    if (!grown) return mm_fail(MM_ERR_NOMEM, "out of memory for %d rows", all->n + 1);
    all->rows = grown;
    *row_out = &grown[all->n++];
    return MM_OK;
}

/* The text as a cell of the file: in quotes if it has a comma. */
static const char *cell(const char *text, char buffer_out[CELL_CAPACITY]) {
    snprintf(buffer_out, CELL_CAPACITY, strchr(text, ',') ? "\"%s\"" : "%s", text);
    return buffer_out;
}

/* ---------------------------------------------------------------- planning */

typedef struct subject {
    const golden_net *of;
    nets_net *net;
    nets_backend backend;
    nets_lowered *lowered;
    facts_source machine;
    int64_t most; /* bytes that policy liveness needs */
} subject;

static mm_status plan(const subject *s, mm_planned *planned, const mm_policy *policy, int64_t budget_bytes) {
    const mm_graph *graph = s->lowered->graph;
    const mm_limits limits = {
        .device_bytes = budget_bytes, .pinned_bytes = s->of->pinned_bytes, .base_bytes = mm_plan_base(graph)};
    return mm_planned_make(planned, policy, graph, &limits);
}

/* Whether two files have the same bytes. */
static bool is_same_file(const char *a, const char *b) {
    FILE *first = fopen(a, "r"), *second = fopen(b, "r");
    int c = 0, d = 0;
    while (first && second && c == d && c != EOF) {
        c = fgetc(first);
        d = fgetc(second);
    }
    const bool same = first && second && c == d;
    if (first) fclose(first);
    if (second) fclose(second);
    return same;
}

static mm_status predict(const mm_program *program, const mm_graph_facts *facts, int64_t *ns_out) {
    mm_simulation sim;
    MM_TRY(mm_program_simulate(program, facts, &sim));
    *ns_out = sim.iteration_ns;
    mm_simulation_fini(&sim);
    return MM_OK;
}

/* Checks a plan that was read: it is proved, takes as long, and is written as it was. */
static mm_status check_read(const mm_plan_file *file, const char *first, const char *second, int64_t ns) {
    const mm_plan_view view = {.program = file->program, .facts = file->facts, .limits = &file->limits};
    int64_t again = 0;
    MM_TRY(mm_program_prove(file->program, file->facts, &file->limits, NULL));
    MM_TRY(predict(file->program, file->facts, &again));
    MM_TRY(mm_plan_file_write(&view, 1, second));
    if (again == ns && is_same_file(first, second)) return MM_OK;
    return mm_fail(MM_ERR_FORMAT, "%s: another plan comes back from a file", file->plan->policy);
}

/* Writes the plan to a file, and reads it back. */
static mm_status through_file(const mm_planned *planned, int64_t ns) {
    const mm_plan_view view = {.program = planned->program, .facts = planned->facts};
    const char *folder = getenv("TEST_TMPDIR");
    char first[4096], second[4096];
    mm_plan_file *files;
    size_t n;
    snprintf(first, sizeof first, "%s/first.jsonl", folder ? folder : "/tmp");
    snprintf(second, sizeof second, "%s/second.jsonl", folder ? folder : "/tmp");
    MM_TRY(mm_plan_file_write(&view, 1, first));
    MM_TRY(mm_plan_files_read(first, &files, &n));
    const mm_status status = check_read(files, first, second, ns);
    mm_plan_files_destroy(files, n);
    remove(first);
    remove(second);
    return status;
}

static mm_status plan_row(const subject *s, mm_planned *planned, const mm_policy *policy, const char *budget,
                          int64_t budget_bytes, rows *all) {
    char net[CELL_CAPACITY], spec[CELL_CAPACITY];
    int64_t ns = 0;
    row *r;
    MM_TRY(plan(s, planned, policy, budget_bytes));
    MM_TRY(predict(planned->program, planned->facts, &ns));
    if (test_depth(s->of->small && strcmp(budget, "half") == 0, true)) MM_TRY(through_file(planned, ns));
    MM_TRY(add_row(all, &r));
    const mm_plan *made = planned->plan;
    const bool fits = made->peak_bytes <= budget_bytes && made->pinned_bytes <= s->of->pinned_bytes;
    snprintf(r->key, sizeof r->key, "%s,%lld,%s,%d,%s,%s,", cell(s->of->name, net), (long long)s->of->batch,
             mm_dtype_name(s->of->maps), s->of->ranks, cell(policy->spec, spec), budget);
    snprintf(r->values, sizeof r->values, "%lld,%lld,%s,%016llx,%lld,%lld,%lld", (long long)s->of->pinned_bytes,
             (long long)budget_bytes, fits ? "yes" : "no", (unsigned long long)whole_digest(planned->program),
             (long long)made->peak_bytes, (long long)made->pinned_bytes, (long long)ns);
    return MM_OK;
}

/* Plans with a policy, and finds its smallest plan. */
static mm_status prepare(const subject *s, const mm_policy *policy, mm_planned *planned) {
    MM_TRY(mm_planned_init(planned, policy, s->lowered->graph, "host"));
    MM_TRY(facts_source_fill(&s->machine, s->lowered->graph, planned->facts));
    mm_status status = plan(s, planned, policy, 0);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "%s", policy->spec);
}

/* Plans in three budgets: the least that the policy needs, what liveness needs, and halfway between. */
static mm_status plan_budgets(const subject *s, const mm_policy *policy, mm_planned *planned, rows *all) {
    MM_TRY(prepare(s, policy, planned));
    const int64_t least = planned->plan->peak_bytes;
    MM_TRY(plan_row(s, planned, policy, "least", least, all));
    MM_TRY(plan_row(s, planned, policy, "half", least + (s->most - least) / 2, all));
    return plan_row(s, planned, policy, "all", s->most, all);
}

static mm_status plan_policy(const subject *s, const char *spec, rows *all) {
    mm_policy policy;
    mm_planned planned = {0};
    MM_TRY(mm_policy_parse(spec, &policy));
    mm_status status = plan_budgets(s, &policy, &planned, all);
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    return status;
}

static mm_status find_most(subject *s) {
    mm_policy policy;
    mm_planned planned = {0};
    MM_TRY(mm_policy_parse("liveness", &policy));
    mm_status status = prepare(s, &policy, &planned);
    if (status == MM_OK) s->most = planned.plan->peak_bytes;
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    return status;
}

static mm_status plan_all(subject *s, rows *all) {
    MM_TRY(facts_source_open(MACHINE, &s->machine));
    s->machine.ranks = s->of->ranks;
    s->backend = shape_backend(s->of->maps);
    MM_TRY(nets_zoo_build(s->of->name, &s->net));
    nets_lowering how = {.mode = NETS_TRAIN, .optimizer = NETS_SGD};
    if (s->of->ranks > 1) how.allreduce = (nets_allreduce){.n = s->of->ranks, .when = MM_ALLREDUCE_AT_ONCE};
    MM_TRY(nets_lower(s->net, &s->backend, s->of->batch, &how, &s->lowered));
    MM_TRY(find_most(s));
    for (int p = 0; POLICIES[p]; p++) MM_TRY(plan_policy(s, POLICIES[p], all));
    for (int p = 0; s->of->small && SMALL[p]; p++) MM_TRY(plan_policy(s, SMALL[p], all));
    return MM_OK;
}

/* Adds the rows of a network. */
static mm_status plan_net(const golden_net *net, rows *all) {
    subject s = {.of = net};
    mm_status status = plan_all(&s, all);
    nets_lowered_destroy(s.lowered);
    nets_net_destroy(s.net);
    facts_source_close(&s.machine);
    return status;
}

/* ---------------------------------------------------------------- the file */

/* A line's key: all before its sixth comma that is not in quotes. */
static size_t key_length(const char *line) {
    bool quoted = false;
    size_t at = 0;
    for (int commas = 0; line[at] && commas < KEY_COLUMNS; at++) {
        quoted ^= line[at] == '"';
        commas += line[at] == ',' && !quoted;
    }
    return at;
}

static mm_status read_rows(FILE *file, rows *all) {
    char line[KEY_CAPACITY + VALUES_CAPACITY];
    if (!fgets(line, sizeof line, file) || strcmp(line, COLUMNS) != 0)
        return mm_fail(MM_ERR_FORMAT, "%s: its columns are not those that are planned now", FILE_NAME);
    while (fgets(line, sizeof line, file)) {
        row *r;
        const size_t length = key_length(line);
        MM_TRY(add_row(all, &r));
        snprintf(r->key, sizeof r->key, "%.*s", (int)length, line);
        snprintf(r->values, sizeof r->values, "%.*s", (int)strcspn(line + length, "\n"), line + length);
    }
    return MM_OK;
}

/* Writes all rows to the file (an mm_file_writer). */
static mm_status write_rows(const void *ctx, FILE *file) {
    const rows *all = ctx;
    fputs(COLUMNS, file);
    for (int i = 0; i < all->n; i++) fprintf(file, "%s%s\n", all->rows[i].key, all->rows[i].values);
    return MM_OK;
}

static mm_status rewrite(const char *path) {
    rows all = {0};
    mm_status status = MM_OK;
    for (int i = 0; i < NETS_N && status == MM_OK; i++) status = plan_net(&NETS[i], &all);
    if (status == MM_OK) status = mm_atomic_file_print(path, write_rows, &all);
    if (status == MM_OK) printf("%s: %d rows\n", path, all.n);
    free(all.rows);
    return status;
}

/* ---------------------------------------------------------------- comparing */

typedef struct golden_file {
    rows rows;
    bool *is_known; /* per row of the file: this run has planned it */
} golden_file;

typedef struct net_case {
    const golden_net *net;
    golden_file *file;
    char name[CELL_CAPACITY];
} net_case;

enum { MOST_TOLD = 12 }; /* at most so many of a network's rows are printed */

/* Prints the columns that differ: "peak bytes was 1, is 2". */
static void tell_values(const char *was, const char *is) {
    for (int v = 0; v < VALUES; v++) {
        const int n = (int)strcspn(was, ","), m = (int)strcspn(is, ",");
        if (n != m || strncmp(was, is, (size_t)n) != 0)
            print_error("    %s was %.*s, is %.*s\n", VALUE_NAMES[v], n, was, m, is);
        was += n + (was[n] != '\0');
        is += m + (is[m] != '\0');
    }
}

/* Whether the file has the same row. Prints what differs if `told`. */
static bool compare(golden_file *file, const row *r, bool told) {
    for (int i = 0; i < file->rows.n; i++) {
        const row *was = &file->rows.rows[i];
        if (strcmp(was->key, r->key) != 0) continue;
        file->is_known[i] = true;
        if (strcmp(was->values, r->values) == 0) return true;
        if (told) print_error("%s\n", r->key);
        if (told) tell_values(was->values, r->values);
        return false;
    }
    if (told) print_error("%s is not in the file\n", r->key);
    return false;
}

static void net_is_planned_as_before(void **state) {
    const net_case *c = *state;
    rows all = {0};
    int differ = 0;
    expect_ok(plan_net(c->net, &all));
    for (int i = 0; i < all.n; i++) differ += !compare(c->file, &all.rows[i], differ < MOST_TOLD);
    if (differ)
        fail_msg("%d of %d plans differ from %s, of which at most %d are told above. If that is meant:\n    %s\n"
                 "and the commit says why.",
                 differ, all.n, FILE_NAME, (int)MOST_TOLD, REWRITE);
    free(all.rows);
}

/* Runs after the tests of the networks. */
static void every_row_of_the_file_is_planned(void **state) {
    const golden_file *file = *state;
    int lost = 0;
    for (int i = 0; i < file->rows.n; i++) {
        if (file->is_known[i]) continue;
        if (lost++ < MOST_TOLD) print_error("%s is in the file, and not planned\n", file->rows.rows[i].key);
    }
    if (lost) fail_msg("%d rows of %s are not planned. If that is meant:\n    %s", lost, FILE_NAME, REWRITE);
}

static bool is_planned(const char *policy) {
    const size_t length = strlen(policy);
    for (int p = 0; POLICIES[p]; p++)
        if (strcspn(POLICIES[p], ":") == length && strncmp(POLICIES[p], policy, length) == 0) return true;
    return false;
}

static void every_policy_is_planned(void **state) {
    (void)state;
    for (size_t i = 0; mm_policy_table(i); i++)
        if (strcmp(mm_policy_table(i)->name, "plan") != 0 && !is_planned(mm_policy_table(i)->name))
            fail_msg("policy %s has no plans in %s: add it to POLICIES", mm_policy_table(i)->name, FILE_NAME);
}

static int run_cases(golden_file *file) {
    net_case cases[NETS_N];
    struct CMUnitTest tests[NETS_N + 2] = {cmocka_unit_test(every_policy_is_planned)};
    for (int i = 0; i < NETS_N; i++) {
        cases[i] = (net_case){.net = &NETS[i], .file = file};
        snprintf(cases[i].name, sizeof cases[i].name, "%s_is_planned_as_before", NETS[i].name);
        tests[1 + i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = net_is_planned_as_before, .initial_state = &cases[i]};
    }
    tests[1 + NETS_N] = (struct CMUnitTest)cmocka_unit_test_prestate(every_row_of_the_file_is_planned, file);
    return cmocka_run_group_tests_name("golden plans", tests, NULL, NULL);
}

static mm_status read_golden(golden_file *golden_out) {
    FILE *file = fopen(FILE_NAME, "r");
    if (!file) return mm_fail(MM_ERR_IO, "cannot read %s", FILE_NAME);
    mm_status status = read_rows(file, &golden_out->rows);
    fclose(file);
    golden_out->is_known = calloc((size_t)golden_out->rows.n + 1, sizeof(bool));
    if (status == MM_OK && !golden_out->is_known) return mm_fail(MM_ERR_NOMEM, "out of memory");
    return status;
}

/* Returns the program's exit status. */
static int compare_all(void) {
    golden_file file = {0};
    const mm_status status = read_golden(&file);
    if (status != MM_OK) fprintf(stderr, "plans_test: %s; %s\n", mm_last_error(), REWRITE);
    const int failed = status == MM_OK ? run_cases(&file) : 1;
    free(file.rows.rows);
    free(file.is_known);
    return failed;
}

int main(int argc, char **argv) {
    const char *tree = getenv("BUILD_WORKSPACE_DIRECTORY");
    char path[4096];
    if (argc == 1) return compare_all();
    if (argc > 2 || strcmp(argv[1], "--rewrite") != 0 || !tree) {
        fprintf(stderr, "plans_test: its one option is --rewrite: %s\n", REWRITE);
        return 2;
    }
    snprintf(path, sizeof path, "%s/%s", tree, FILE_NAME);
    if (rewrite(path) == MM_OK) return 0;
    fprintf(stderr, "plans_test: %s\n", mm_last_error());
    return 1;
}
