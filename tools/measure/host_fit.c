/* SPDX-License-Identifier: MIT */
#include "tools/measure/host_fit.h"

#include <string.h>

#include "mm/core/status.h"
#include "tools/facts/machine_work.h"

/* ---------------------------------------------------------------- sums */

static enum host_fit_product kind_of(const machine_product *p) {
    if (p->attention) return HOST_FIT_ATTENTION;
    if (p->linear) return HOST_FIT_LINEAR;
    return p->winograd ? HOST_FIT_WINOGRAD : HOST_FIT_CONV;
}

static void add_step(host_fit *fit, const mm_graph *graph, const mm_step_info *step, int64_t ns) {
    const machine_product p = machine_product_of(graph, step->layer);
    const double operations = step->phase == MM_UPDATE ? 0 : 2 * p.multiply_adds * machine_times(graph, step);
    const double bytes = machine_traffic_bytes(graph, step);
    host_fit_sum *sum =
        operations > 0 ? &fit->product[kind_of(&p)] : &fit->layer[mm_graph_layer(graph, step->layer)->kind];
    if (mm_graph_layer(graph, step->layer)->kind == MM_LAYER_DATA || ns <= 0 || operations + bytes <= 0) return;
    sum->work += operations > 0 ? operations : bytes;
    sum->ns += (double)ns;
    if (fit->launch_ns == 0 || ns < fit->launch_ns) fit->launch_ns = ns;
}

void host_fit_add(host_fit *fit, const mm_graph *graph, const mm_graph_facts *facts) {
    for (int s = 0; s < facts->n_steps; s++)
        add_step(fit, graph, mm_graph_step(graph, s), facts->variants[facts->variant_first[s]].ns);
    fit->n++;
    fit->out += (double)facts->out_bytes_per_s;
    fit->in += (double)facts->in_bytes_per_s;
    fit->out_both += (double)facts->out_both_bytes_per_s;
    fit->in_both += (double)facts->in_both_bytes_per_s;
    fit->issue_ns += (double)facts->issue_ns;
    fit->contention += facts->contention_permille;
    fit->link_contention += facts->link_contention_permille;
}

/* ---------------------------------------------------------------- rates */

static double rate_of(const host_fit_sum *sum) { return sum->ns > 0 ? sum->work * 1e9 / sum->ns : 0; }

static host_fit_sum all_layers(const host_fit *fit) {
    host_fit_sum all = {0, 0};
    for (int kind = 0; kind < MM_LAYER_KINDS; kind++) {
        all.work += fit->layer[kind].work;
        all.ns += fit->layer[kind].ns;
    }
    return all;
}

/* How many times each kind's bytes go through memory, for its times to come out. */
static json_t *passes_of(const host_fit *fit, double memory) {
    static const double MOST = 100; /* what a machine file may have */
    json_t *passes = json_object();
    for (int kind = 0; kind < MM_LAYER_KINDS; kind++) {
        const double rate = rate_of(&fit->layer[kind]), times = rate > 0 ? memory / rate : 0;
        if (times > 0) json_object_set_new(passes, mm_layer_kind_name(kind), json_real(times < MOST ? times : MOST));
    }
    return passes;
}

/* A code that is only read as signs is never decoded: its decoding counts as fast as its encoding. */
static json_t *codecs_of(const device_speed *speed) {
    json_t *codecs = json_object();
    for (int i = 0; i < speed->n_codecs; i++) {
        const device_codec_speed *c = &speed->codec[i];
        char name[sizeof c->spec];
        strcpy(name, c->spec);
        name[strcspn(name, ":")] = '\0';
        if (c->encode > 0 && !json_object_get(codecs, name))
            json_object_set_new(codecs, name,
                                json_pack("{sf sf}", "encode_bytes_per_s", (double)c->encode, "decode_bytes_per_s",
                                          (double)(c->decode > 0 ? c->decode : c->encode)));
    }
    return codecs;
}

/* Two kinds of work that take turns take twice as long each. What is measured as more was disturbed. */
enum { TURNS = 1000 };

/* A pair that was not measured does not slow down. */
static json_t *contention_of(const device_pairs *pairs) {
    json_t *table = json_object();
    for (mm_work of = 0; of < MM_WORK_KINDS; of++) {
        json_t *row = json_object();
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++) {
            const int permille = pairs->permille[of][beside];
            if (mm_work_can_run_beside(of, beside))
                json_object_set_new(row, mm_work_name(beside),
                                    json_integer(permille < 0       ? 0
                                                 : permille < TURNS ? permille
                                                                    : TURNS));
        }
        json_object_set_new(table, mm_work_name(of), row);
    }
    return table;
}

mm_status host_fit_machine(const host_fit *fit, const device_speed *speed, const device_pairs *pairs,
                           int64_t memory_bytes, json_t **machine_out) {
    const host_fit_sum all = all_layers(fit);
    const double memory = rate_of(&all), n = fit->n;
    for (int kind = 0; kind < HOST_FIT_PRODUCTS; kind++)
        if (rate_of(&fit->product[kind]) <= 0 || memory <= 0)
            return mm_fail(MM_ERR_INVALID, "the rates of this host do not follow: no step of a kind was measured");
    json_t *machine = json_pack(
        "{ss si ss sI sf sf sf sf sf sI so s{sf sf sf sf} si si so sI si so}", "format", "mm machine", "version", 1,
        "name", "host", "memory_bytes", (json_int_t)memory_bytes, "conv_flops_per_s",
        rate_of(&fit->product[HOST_FIT_CONV]), "winograd_flops_per_s", rate_of(&fit->product[HOST_FIT_WINOGRAD]),
        "linear_flops_per_s", rate_of(&fit->product[HOST_FIT_LINEAR]), "attention_flops_per_s",
        rate_of(&fit->product[HOST_FIT_ATTENTION]), "memory_bytes_per_s", memory, "launch_ns",
        (json_int_t)fit->launch_ns, "passes", passes_of(fit, memory), "link", "out_bytes_per_s", fit->out / n,
        "in_bytes_per_s", fit->in / n, "out_both_bytes_per_s", fit->out_both / n, "in_both_bytes_per_s",
        fit->in_both / n, "contention_permille", (int)(fit->contention / n), "link_contention_permille",
        (int)(fit->link_contention / n), "contention", contention_of(pairs), "issue_ns",
        (json_int_t)(fit->issue_ns / n), "alloc_ns", 0, "codecs", codecs_of(speed));
    if (!machine) return mm_fail(MM_ERR_NOMEM, "out of memory for the rates of this host");
    *machine_out = machine;
    return MM_OK;
}
