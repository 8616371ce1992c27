/* SPDX-License-Identifier: MIT */
#include "tools/train/codec_log.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/json_text.h"
#include "mm/manager/figures.h"
#include "mm/manager/sampled.h"
#include "policies/comet.h"

/* The bytes of the plan's codes when they were last encoded with error bounds. */
typedef struct sizes {
    mm_code_size *code;
    int n;
    bool made; /* some were encoded */
} sizes;

static mm_status read_sizes(mm_manager *manager, const mm_graph *graph, sizes *sizes_out) {
    const int capacity = mm_graph_tensors(graph) + 1;
    sizes_out->code = malloc((size_t)capacity * sizeof *sizes_out->code);
    if (!sizes_out->code) return mm_fail(MM_ERR_NOMEM, "out of memory for the sizes of %d codes", capacity);
    MM_TRY(mm_code_sizes(manager, graph, sizes_out->code, capacity, &sizes_out->n));
    for (int i = 0; i < sizes_out->n; i++) sizes_out->made |= sizes_out->code[i].body_bytes > 0;
    return MM_OK;
}

/* Bytes of the tensor's code; 0: not yet encoded with a bound. */
static int64_t code_bytes(const sizes *all, mm_tensor tensor) {
    for (int i = 0; i < all->n && all->made; i++)
        if (all->code[i].tensor == tensor && strncmp(all->code[i].codec, "mask", 4) != 0) return all->code[i].bytes;
    return 0;
}

/* A JSON number; null if there is none, or it is not finite. */
static json_t *number(double value, bool is_there) {
    return is_there && isfinite(value) ? json_real(value) : json_null();
}

static const char *guard_word(const mm_sampled *sampled, int layer) {
    if (!sampled->config.guard || sampled->samples[layer].measured_sigma < 0) return "off";
    return sampled->verdicts[layer].tightened ? "tightened" : "kept";
}

/* The sigma that a rule predicts for the error bound that held until now. */
static json_t *predicted(const mm_sampled *sampled, int layer, mm_bound_rule rule) {
    mm_comet_config config = sampled->config;
    config.rule = rule;
    return number(mm_comet_sigma(&config, &sampled->samples[layer], sampled->verdicts[layer].before), true);
}

static json_t *layer_object(const mm_graph *graph, const mm_sampled *sampled, const sizes *all, int layer) {
    const mm_layer_sample *s = &sampled->samples[layer];
    const mm_layer_verdict *v = &sampled->verdicts[layer];
    const mm_tensor coded = sampled->coded[layer];
    const int64_t bytes = code_bytes(all, coded);
    const double ratio = bytes > 0 ? (double)mm_graph_tensor(graph, coded)->bytes / (double)bytes : 0;
    return json_pack("{ss ss so so so so so so so so so so so so so ss}", "layer",
                     mm_graph_layer(graph, sampled->watched[layer].layer)->name, "map",
                     mm_graph_tensor(graph, sampled->watched[layer].map)->name, "bound",
                     number(sampled->bounds[coded], true), "rule_bound", number(v->rule_bound, true), "ratio",
                     number(ratio, bytes > 0), "nonzero_share", number(s->nonzero_share, true), "gradient_mean",
                     number(s->gradient_mean, true), "gradient_max", number(s->gradient_max, true), "gradient_sum2",
                     number(s->gradient_sum2, true), "momentum_mean", number(s->momentum_mean, true), "target_sigma",
                     number(v->target_sigma, true), "predicted_sigma", number(v->predicted_sigma, true), "sum_sigma",
                     predicted(sampled, layer, MM_BOUND_SUM), "eq9_sigma", predicted(sampled, layer, MM_BOUND_EQ9),
                     "measured_sigma", number(s->measured_sigma, s->measured_sigma >= 0), "guard",
                     guard_word(sampled, layer));
}

/* The compression ratio of all maps together. A map that several layers read counts once. */
static double ratio_of_all(const mm_graph *graph, const mm_sampled *sampled, const sizes *all) {
    int64_t maps = 0, codes = 0;
    for (int i = 0; i < sampled->n; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again |= sampled->coded[k] == sampled->coded[i];
        const int64_t bytes = again ? 0 : code_bytes(all, sampled->coded[i]);
        if (bytes > 0) maps += mm_graph_tensor(graph, sampled->coded[i])->bytes;
        codes += bytes;
    }
    return codes > 0 ? (double)maps / (double)codes : 0;
}

static mm_status write_line(FILE *file, const mm_graph *graph, const mm_sampled *sampled, const sizes *all,
                            int64_t iteration) {
    json_t *layers = json_array();
    const double ratio = ratio_of_all(graph, sampled, all);
    bool whole = layers != NULL;
    for (int i = 0; whole && i < sampled->n; i++)
        whole = json_array_append_new(layers, layer_object(graph, sampled, all, i)) == 0;
    json_t *line = json_pack("{sI ss so so}", "iteration", (json_int_t)iteration, "graph", mm_graph_name(graph),
                             "ratio", number(ratio, ratio > 0), "layers", layers);
    char *text = whole && line ? mm_json_print(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text) fprintf(file, "%s\n", text);
    json_decref(line);
    free(text);
    return text ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a line of the codecs' log");
}

static mm_status write_pass(FILE *file, mm_manager *manager, const nets_lowered *pass, int64_t iteration) {
    const mm_graph *graph = pass->graph;
    int64_t age;
    mm_sampled sampled;
    sizes all = {0};
    MM_TRY(mm_sampling_age(manager, graph, &age));
    if (age != 1 || mm_sampled_get(manager, graph, &sampled) != MM_OK) return MM_OK;
    mm_status status = read_sizes(manager, graph, &all);
    if (status == MM_OK) status = write_line(file, graph, &sampled, &all, iteration);
    free(all.code);
    return status;
}

/* Writes the passes in the order in which an iteration runs them. */
mm_status codec_log_write(FILE *file, mm_manager *manager, const nets_exec *exec, int64_t iteration) {
    for (int i = 1; i <= NETS_PASSES; i++) {
        const nets_lowered *pass = nets_exec_lowered_pass(exec, i % NETS_PASSES);
        if (pass) MM_TRY(write_pass(file, manager, pass, iteration));
    }
    return MM_OK;
}
