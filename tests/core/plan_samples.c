/* SPDX-License-Identifier: MIT */
/* Writes random plans, right ones and such that are broken in one place, as plan files, for the two checkers to be
 * compared on (tests/verify):
 *
 *   plan_samples random DIR N FIRST   N plans with at most 40 nodes, of worlds from seed FIRST on, in files of 100;
 *                                     prints the seed that follows
 *   plan_samples rules DIR            for each rule some plans that break it: rule-6.2-0.plan, rule-6.2-1.plan, ...
 *
 * What no file can say is left out: the reader refuses it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/check/plan_rules.h"
#include "mm/core/status.h"
#include "tests/core/expect.h"
#include "tests/core/plan_files.h"
#include "tests/core/plan_mutate.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/plan_proof.h"

enum { A_FILE = 100, NODES_MOST = 40, WORLDS_FOR_RULES = 300, A_RULE = 6, PATH = 512 };

/* Ways to break a program and not its plan. */
enum { NO_PIECE, DROP_WAIT, WAIT_FOR_LATER, FEWER_ROWS, SHIFT_STORED, WRONG_NUMBER, PIECE_MUTATIONS };

/* A world with one mutation, or none. The world's plan stays. */
typedef struct sample {
    plan_world world;
    mutant m;
    mm_program program;
} sample;

static void sample_destroy(sample *s) {
    mm_program_fini(&s->program);
    mm_plan_destroy(s->m.plan);
    plan_world_destroy(&s->world);
}

static mm_plan_view sample_view(const sample *s) { return (mm_plan_view){&s->program, s->m.facts, &s->m.limits}; }

/* Whether all that a file names by a word or a name exists. */
static bool has_names(const mm_plan *plan, const mm_graph_facts *facts) {
    const int tensors = mm_graph_tensors(plan->graph);
    bool good = true;
    for (int i = 0; i < plan->n_segments; i++) good &= plan->segments[i].tensor < tensors;
    for (int i = 0; i < plan->n_segments; i++) good &= plan->segments[i].codec < facts->n_codecs;
    for (int i = 0; i < plan->n_nodes; i++) good &= plan->nodes[i].tensor < tensors;
    for (int t = 0; t < tensors; t++) good &= plan->alias[t] >= 0 && plan->alias[t] < tensors;
    return good;
}

/* Whether a file can say it: it is read back. Leaves the file at `path`. */
static bool is_readable(const sample *s, const char *path) {
    const mm_plan_view view = sample_view(s);
    mm_plan_file *files;
    size_t n;
    if (!has_names(s->m.plan, s->m.facts)) return false;
    if (mm_plan_file_write(&view, 1, path) != MM_OK) return false;
    if (mm_plan_files_read(path, &files, &n) != MM_OK) return false;
    mm_plan_files_destroy(files, n);
    return true;
}

/* Breaks a piece that can be broken in this way, from a random one on. False: there is none. */
static bool break_piece(mm_program *p, int how, uint64_t seed) {
    for (int k = 0; k < p->n; k++) {
        mm_piece *piece = &p->pieces[(int)((seed * 31 + (uint64_t)k) % (uint64_t)p->n)];
        for (int s = 0; s < MM_STREAM_COUNT; s++) {
            if (how == DROP_WAIT && piece->wait[s] >= 0) return piece->wait[s] = -1, true;
            if (how == WAIT_FOR_LATER && s != (int)piece->stream && piece->wait[s] + 1 < p->count[s])
                return piece->wait[s] = p->count[s] - 1, true;
        }
        if (how == WRONG_NUMBER) return piece->seq++, true;
        if (piece->rows < 2 || how < FEWER_ROWS) continue;
        if (how == FEWER_ROWS)
            piece->rows--;
        else
            piece->stored_offset += MM_ALIGN;
        return true;
    }
    return false;
}

/* Makes a sample: the world's own plan (mutation NULL, NO_PIECE), or a mutant. False: there is none. */
static bool make(uint64_t seed, int layers, const mutation *mutation, int piece, sample *s) {
    *s = (sample){.world = plan_world_create_of(seed, layers)};
    s->m =
        (mutant){.plan = plan_clone(s->world.plan), .limits = s->world.limits, .facts = s->world.facts, .random = seed};
    bool good = s->world.plan->n_nodes < NODES_MOST;
    if (good && mutation) {
        good = mutation->apply(&s->m) && plan_walkable(s->m.plan);
        if (good && !s->m.keep_sums) good = mm_plan_finish(s->m.plan) == MM_OK;
        if (s->m.limits.device_bytes == s->world.limits.device_bytes) s->m.limits.device_bytes = INT64_MAX;
        if (s->m.limits.pinned_bytes == s->world.limits.pinned_bytes) s->m.limits.pinned_bytes = INT64_MAX;
    }
    /* Only what is well-formed can be lowered; with any other plan go the pieces that the world's own has. */
    const bool formed = good && plan_is_formed(s->m.plan, s->m.facts, &s->m.limits);
    good = good && mm_program_init(formed ? s->m.plan : s->world.plan, s->m.facts, &s->program) == MM_OK;
    if (good) s->program.plan = s->m.plan;
    if (good && piece != NO_PIECE) good = break_piece(&s->program, piece, seed);
    if (!good) sample_destroy(s);
    return good;
}

static int n_mutations(void) {
    int n = 0;
    while (mutation_at(n)) n++;
    return n;
}

/* ---------------------------------------------------------------- random plans */

static void write_file(const char *dir, int number, sample *samples, int n) {
    char path[PATH];
    mm_plan_view views[A_FILE];
    for (int i = 0; i < n; i++) views[i] = sample_view(&samples[i]);
    snprintf(path, sizeof path, "%s/samples-%04d.plan", dir, number);
    expect_ok(mm_plan_file_write(views, (size_t)n, path));
    for (int i = 0; i < n; i++) sample_destroy(&samples[i]);
}

static void write_random(const char *dir, int wanted, uint64_t first) {
    static sample samples[A_FILE];
    char scratch[PATH];
    const int mutations = n_mutations();
    int n = 0, files = 0;
    uint64_t seed = first;
    if (mutations == 0) abort();
    snprintf(scratch, sizeof scratch, "%s/scratch", dir);
    for (; files * A_FILE + n < wanted; seed++) {
        /* Of six samples, four have a broken plan, one has broken pieces, and one is right. */
        const uint64_t kind = seed % 6;
        const mutation *mutation = kind < 4 ? mutation_at((int)(seed / 6 % (uint64_t)mutations)) : NULL;
        const int piece = kind == 4 ? 1 + (int)(seed / 6 % (PIECE_MUTATIONS - 1)) : NO_PIECE;
        if (!make(seed, 1 + (int)(seed / 6 % 5), mutation, piece, &samples[n])) continue;
        if (!is_readable(&samples[n], scratch)) {
            sample_destroy(&samples[n]);
            continue;
        }
        if (++n < A_FILE) continue;
        write_file(dir, files++, samples, n);
        n = 0;
    }
    if (n > 0) write_file(dir, files, samples, n);
    remove(scratch);
    printf("%" PRIu64 "\n", seed);
}

/* ---------------------------------------------------------------- a plan for each rule */

/* Prints the rules of which none was found. */
static void write_rules(const char *dir) {
    int found[MM_RULE_COUNT] = {0}, missing = MM_RULE_COUNT * A_RULE;
    char path[PATH];
    const int mutations = n_mutations();
    for (uint64_t seed = 0; seed < WORLDS_FOR_RULES && missing > 0; seed++)
        for (int i = 0; i < mutations + PIECE_MUTATIONS - 1; i++) {
            sample s;
            mm_violation v;
            const int piece = i < mutations ? NO_PIECE : 1 + i - mutations;
            if (!make(seed, 1 + (int)(seed % 3), i < mutations ? mutation_at(i) : NULL, piece, &s)) continue;
            const mm_status status = mm_program_prove_or_say(&s.program, s.m.facts, &s.m.limits, NULL, &v);
            if (status != MM_OK && found[v.rule] < A_RULE) {
                snprintf(path, sizeof path, "%s/rule-%s-%d.plan", dir, mm_rule_number(v.rule), found[v.rule]);
                if (is_readable(&s, path)) {
                    found[v.rule]++;
                    missing--;
                } else
                    remove(path);
            }
            sample_destroy(&s);
        }
    for (int r = 0; r < MM_RULE_COUNT; r++)
        if (found[r] == 0) printf("%s\n", mm_rule_number((mm_rule)r));
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "random") == 0)
        write_random(argv[2], atoi(argv[3]), (uint64_t)atoll(argv[4]));
    else if (argc == 3 && strcmp(argv[1], "rules") == 0)
        write_rules(argv[2]);
    else {
        fprintf(stderr, "usage: plan_samples random DIR N FIRST | rules DIR\n");
        return 2;
    }
    return 0;
}
