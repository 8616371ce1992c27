/* SPDX-License-Identifier: MIT */
/* mm verify: proves plans from files, or says which rule one breaks, and shows an execution that goes wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_file.h"
#include "mm/core/size.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/json_file.h"
#include "tools/args/traces.h"
#include "tools/verify/verdict.h"

typedef struct request {
    arg_texts files;
    const char *json, *trace;
    bool quiet;
} request;

/* Adds the execution of a refused plan to the traces. */
static mm_status add_trace(traces *all, const char *path, const mm_plan_file *file, const verdict *v) {
    mm_timeline *timeline;
    int plan;
    char name[TRACES_NAME_CAPACITY];
    snprintf(name, sizeof name, "%s: breaks rule %s", path, mm_rule_number(v->violation.rule));
    MM_TRY(mm_timeline_create(name, 0, &timeline));
    mm_status status = mm_timeline_set_source(timeline, "an execution that the waits allow", true);
    if (status == MM_OK) status = mm_timeline_add_plan(timeline, file->program, &plan);
    if (status == MM_OK) {
        mm_period *spans = mm_timeline_add(timeline, plan, mm_timeline_begin(timeline), 0);
        for (int i = 0; spans && i < file->program->n; i++)
            spans[i] = (mm_period){v->example.periods[i].start_ns * VERDICT_UNIT_NS,
                                   v->example.periods[i].end_ns * VERDICT_UNIT_NS};
        return traces_add(all, timeline);
    }
    mm_timeline_destroy(timeline);
    return status;
}

/* Judges all plans of a file. */
static mm_status verify_file(const request *r, const char *path, json_t *rows, traces *all, bool *right) {
    mm_plan_file *files;
    size_t n;
    MM_TRY(mm_plan_files_read(path, &files, &n));
    mm_status status = MM_OK;
    for (size_t i = 0; status == MM_OK && i < n; i++) {
        verdict v;
        status = verdict_make(&files[i], &v);
        if (status != MM_OK) break;
        *right = *right && v.proved;
        if (!r->quiet) verdict_print(json_file_beside(r->json), path, &files[i], &v);
        if (r->json) json_array_append_new(rows, verdict_json(path, &files[i], &v));
        if (r->trace && v.example.periods) status = add_trace(all, path, &files[i], &v);
        verdict_fini(&v);
    }
    mm_plan_files_destroy(files, n);
    return status;
}

static mm_status verify(const request *r, bool *right) {
    if (r->files.n == 0) return mm_fail(MM_ERR_INVALID, "give a plan file ('mm plan --save-plan' writes one)");
    json_t *rows = r->json ? json_array() : NULL;
    traces all = {0};
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < r->files.n; i++)
        status = verify_file(r, r->files.text[i], rows, &all, right);
    if (status == MM_OK && all.n > 0) status = traces_save(&all, "verify", r->trace);
    if (status == MM_OK && r->trace && all.n == 0)
        fprintf(stderr, "mm verify: no execution goes wrong: --trace writes nothing\n");
    traces_fini(&all);
    if (status == MM_OK && r->json) return json_file_save(r->json, rows);
    json_decref(rows);
    return status;
}

int cmd_verify(int argc, char **argv) {
    request r = {0};
    bool help, right = true;
    const arg options[] = {{"FILE...", NULL,
                            "plan files, as 'mm plan --save-plan' and 'mm train --save-plan' write them", ARG_WORDS,
                            &r.files, 0, 0},
                           {"--trace", "FILE",
                            "for plans that are refused: the execution that goes wrong, for a timeline viewer "
                            "(ui.perfetto.dev); times are "
                            "units, not predictions",
                            ARG_TEXT, &r.trace, 0, 0},
                           {"--quiet", NULL, "print nothing; the exit status says it", ARG_FLAG, &r.quiet, 0, 0},
                           {"--json", "[FILE]", "the verdicts as an array of objects, to FILE or standard output",
                            ARG_MAYBE, &r.json, 0, 0},
                           {0}};
    mm_status status = args_parse(
        argc, argv, options, "mm verify FILE... [OPTIONS]",
        "Proves that a plan computes what the plain training loop computes, within its bytes, in every order that its\n"
        "waits allow; or names the rule that it breaks, where, and shows an execution that goes wrong. Nothing runs: "
        "a\n"
        "plan file has all that is needed. mm/core/check/SPECIFICATION.md has the rules and why they suffice.\n"
        "\n"
        "  mm plan --net resnet50 --batch 64 --policy auto --budget 4GiB --save-plan r50.plan && mm verify r50.plan\n"
        "  mm verify tools/verify/races/*.plan --trace wrong.json\n"
        "\n"
        "Exit status: 0 if all plans are proved, 1 if one is refused or a file cannot be read, 2 for a wrong option.",
        &help);
    if (r.json && !*r.json) r.json = "-";
    if (status == MM_OK && !help) status = verify(&r, &right);
    if (status != MM_OK) return command_failed("verify", status);
    return right ? EXIT_OK : EXIT_FAILED;
}
