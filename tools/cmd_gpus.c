/* SPDX-License-Identifier: MIT */
/* mm gpus: lists the GPUs that can be planned for by name, and what is assumed of them. */
#include <stdio.h>

#include "mm/core/size.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/json_file.h"
#include "tools/args/table.h"
#include "tools/facts/gpu.h"

/* A number of the table; "-" if it is not known. */
static void add_number(table *t, double value) {
    if (value > 0)
        table_cell(t, "%g", value);
    else
        table_cell(t, "-");
}

static mm_status print_gpus(void) {
    static const table_column columns[] = {{"GPU", true, 0},   {"GiB", false, 0},  {"GB/s", false, 0},
                                           {"link", false, 0}, {"fp32", false, 0}, {"tf32", false, 0},
                                           {"bf16", false, 0}, {"source", true, 0}};
    table *t;
    MM_TRY(table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t));
    for (size_t i = 0; i < gpu_table_n; i++) {
        const gpu *g = &gpu_table[i];
        table_row(t);
        table_cell(t, "%s", g->name);
        add_number(t, g->memory_gib);
        add_number(t, g->bandwidth_gb_per_s);
        add_number(t, g->link_gb_per_s);
        add_number(t, g->fp32_tflops);
        add_number(t, g->tf32_tflops);
        add_number(t, g->bf16_tflops);
        table_cell(t, "%s", g->source);
    }
    const mm_status status = table_print(stdout, t);
    table_destroy(t);
    return status;
}

/* Prints one GPU: its memory, and what is assumed of its generation. */
static mm_status print_gpu(const gpu *g) {
    static const table_column columns[] = {{"assumption", true, 0}, {"value", false, 0}, {"where from", true, 0}};
    char memory[32], budget[32];
    table *t;
    printf("%s (%s)\n", g->name, gpu_generation_name(g->generation));
    printf("  %-16s %g GiB as sold; %s for programs; budget of 'mm plan' %s\n", "memory", g->memory_gib,
           mm_size_format(gpu_memory_bytes(g), memory, sizeof memory),
           mm_size_format(gpu_budget_bytes(g), budget, sizeof budget));
    printf("  %-16s %g GB/s; to the host %g GB/s each way\n", "bandwidth", g->bandwidth_gb_per_s, g->link_gb_per_s);
    printf("  %-16s", "peak, TFLOP/s");
    const struct {
        const char *name;
        double tflops;
    } peaks[] = {
        {"fp32", g->fp32_tflops}, {"tf32", g->tf32_tflops}, {"bf16", g->bf16_tflops}, {"fp16", g->fp16_tflops}};
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
        if (peaks[i].tflops > 0) printf(" %s %g;", peaks[i].name, peaks[i].tflops);
    printf(" f32 maps: %s\n", g->tf32_tflops > 0 ? "the faster of fp32 and tf32" : "fp32");
    if (g->l2_mib > 0) printf("  %-16s %g MiB\n", "L2 cache", g->l2_mib);
    if (g->multiprocessors > 0) printf("  %-16s %g\n", "multiprocessors", g->multiprocessors);
    printf("  %-16s %s\n\n", "source", g->source);
    MM_TRY(table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t));
    for (size_t i = 0; i < gpu_assumptions_n; i++) {
        if (gpu_assumptions[i].of[g->generation] == 0) continue;
        table_row(t);
        table_cell(t, "%s", gpu_assumptions[i].name);
        table_cell(t, "%.10g", gpu_assumptions[i].of[g->generation]);
        table_cell(t, "%s", gpu_assumptions[i].source);
    }
    const mm_status status = table_print(stdout, t);
    table_destroy(t);
    return status;
}

static json_t *number_or_null(double value) { return value > 0 ? json_real(value) : json_null(); }

static json_t *gpus_json(void) {
    json_t *all = json_array();
    for (size_t i = 0; i < gpu_table_n; i++) {
        const gpu *g = &gpu_table[i];
        json_array_append_new(
            all,
            json_pack("{ss ss ss sf sI sI so so so so so so so so ss}", "gpu", g->name, "aliases", g->aliases,
                      "generation", gpu_generation_name(g->generation), "memory_gib", g->memory_gib, "memory_bytes",
                      (json_int_t)gpu_memory_bytes(g), "budget_bytes", (json_int_t)gpu_budget_bytes(g),
                      "bandwidth_gb_per_s", number_or_null(g->bandwidth_gb_per_s), "link_gb_per_s",
                      number_or_null(g->link_gb_per_s), "fp32_tflops", number_or_null(g->fp32_tflops), "tf32_tflops",
                      number_or_null(g->tf32_tflops), "bf16_tflops", number_or_null(g->bf16_tflops), "fp16_tflops",
                      number_or_null(g->fp16_tflops), "l2_mib", number_or_null(g->l2_mib), "multiprocessors",
                      number_or_null(g->multiprocessors), "source", g->source));
    }
    return all;
}

/* Prints the list, or one GPU, or writes the list, or one GPU's machine file. */
static mm_status list(const arg_texts *names, const char *json) {
    const gpu *g = NULL;
    json_t *written = NULL;
    if (names->n > 1) return mm_fail(MM_ERR_INVALID, "give one name, or none for the list");
    if (names->n == 1) MM_TRY(gpu_find(names->text[0], &g));
    if (!json) return g ? print_gpu(g) : print_gpus();
    if (g)
        MM_TRY(gpu_machine_json(g, &written));
    else
        written = gpus_json();
    return json_file_save(*json ? json : "-", written);
}

int cmd_gpus(int argc, char **argv) {
    const char *json = NULL;
    arg_texts names = {0};
    bool help;
    const arg options[] = {{"[GPU]", NULL, "a GPU: what is assumed of it", ARG_WORDS, &names, 0, 0},
                           {"--json", "[FILE]",
                            "the list as an array of objects, or with GPU its machine file, to FILE or standard output",
                            ARG_MAYBE, &json, 0, 0},
                           {0}};
    mm_status status = args_parse(
        argc, argv, options, "mm gpus [GPU] [OPTIONS]",
        "Lists the GPUs that 'mm plan --gpu' and 'mm bench --gpu' take by name, as --facts and --simulate do. Case,\n"
        "spaces and dashes in names do not count, and names that nvidia-smi prints are known, too. Columns:\n"
        "\n"
        "  GiB               memory as sold\n"
        "  GB/s              peak bandwidth of the memory\n"
        "  link              GB/s to the host, each way, in theory\n"
        "  fp32, tf32, bf16  peaks in TFLOP/s, without sparsity; f32 maps take the faster of fp32 and tf32\n"
        "  source            the vendor's paper; 'unchecked': written from memory alone\n"
        "\n"
        "Speeds of a GPU by name are estimated from data sheet and assumptions: what share of each peak training\n"
        "reaches, by generation. 'mm gpus GPU' prints them, with where each is from. They were compared with measured\n"
        "GPUs: README.md in tools/facts. Better are measured facts ('mm bench --facts'), or a machine file with rates\n"
        "of your own: write the GPU's with --json, change it, and give it to --facts.\n"
        "\n"
        "  mm gpus a100-40\n"
        "  mm gpus rtx4090 --json my-4090.json && mm plan --facts my-4090.json --net resnet50 --batch 64\n"
        "  mm plan --net gpt2 --batch 16 --which-gpu",
        &help);
    if (status == MM_OK && !help) status = list(&names, json);
    return status == MM_OK ? EXIT_OK : command_failed("gpus", status);
}
