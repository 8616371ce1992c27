/* SPDX-License-Identifier: MIT */
#include "tools/measure/host_facts.h"

#include <stdlib.h>

#include "nets/io/net_file.h"
#include "tools/measure/host_fit.h"
#include "tools/measure/host_updates.h"
#include "tools/measure/subject.h"

/* Chosen: small images and few channels; large channels, kernels of one pixel; products and attention of tokens. */
static const struct {
    const char *net;
    int64_t batch;
} SUBJECTS[] = {{"resnet20", 32}, {"resnet50", 2}, {"gpt,layers=2", 8}};
enum { SUBJECTS_N = sizeof SUBJECTS / sizeof *SUBJECTS, ITERATIONS = 5, PAIR_ROUNDS = 5 };

static mm_status add_net(const target *target, const nets_net *net, int64_t batch, const arg_texts *policies,
                         host_fit *fit) {
    collector c;
    mm_graph_facts *facts;
    const subject of = {net, batch, ITERATIONS, target};
    MM_TRY(subject_collect(&of, policies, &c));
    mm_status status = mm_graph_facts_create(c.lowered->graph, 0, &facts);
    if (status == MM_OK) {
        status = collector_fill(&c, c.lowered->graph, facts);
        if (status == MM_OK) host_fit_add(fit, c.lowered->graph, facts);
        mm_graph_facts_destroy(facts);
    }
    collector_fini(&c);
    return status;
}

static mm_status add_subject(const target *target, int i, host_fit *fit) {
    nets_net *net;
    arg_texts policies;
    MM_TRY(args_split("--policies", SUBJECT_POLICIES, &policies));
    mm_status status = nets_open(SUBJECTS[i].net, &net);
    if (status == MM_OK) {
        status = add_net(target, net, SUBJECTS[i].batch, &policies, fit);
        nets_net_destroy(net);
    }
    args_texts_fini(&policies);
    return status;
}

static int by_value(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Sets each pair to the median of the rounds. */
static void take_medians(const device_pairs rounds[PAIR_ROUNDS], device_pairs *out) {
    for (mm_work of = 0; of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++) {
            int values[PAIR_ROUNDS];
            for (int r = 0; r < PAIR_ROUNDS; r++) values[r] = rounds[r].permille[of][beside];
            qsort(values, PAIR_ROUNDS, sizeof *values, by_value);
            out->permille[of][beside] = values[PAIR_ROUNDS / 2];
        }
}

/* Measures the pairs, with a codec whose values come back. */
static mm_status measure_pairs(const target *target, mm_device *device, device_pairs *pairs_out) {
    enum { IMAGES = 256 }; /* maps of 16 MiB: chosen, more than caches of one CPU hold, and quick */
    mm_codec *codec;
    device_pairs rounds[PAIR_ROUNDS];
    MM_TRY(mm_codec_create("zfp:rate=8", target->device, &codec));
    mm_status status = MM_OK;
    for (int r = 0; status == MM_OK && r < PAIR_ROUNDS; r++)
        status = device_pairs_measure(device, target->backend, codec, IMAGES, &rounds[r]);
    mm_codec_destroy(codec);
    if (status == MM_OK) take_medians(rounds, pairs_out);
    return status;
}

mm_status host_facts_measure(const target *target, json_t **machine_out) {
    mm_device *device;
    mm_memory_info memory;
    device_speed speed;
    device_pairs pairs;
    host_fit fit = {.n = 0};
    for (int i = 0; i < SUBJECTS_N; i++) MM_TRY(add_subject(target, i, &fit));
    const mm_device_config config = {.codec_threads = (int)target->codec_threads};
    MM_TRY(mm_device_create(target->device, &config, &device));
    mm_device_memory_info(device, &memory);
    mm_status status = device_speed_measure(device, &speed);
    if (status == MM_OK) status = measure_pairs(target, device, &pairs);
    mm_device_destroy(device);
    MM_TRY(status);
    double host;
    MM_TRY(host_updates_measure(target->backend, &host));
    MM_TRY(host_fit_machine(&fit, &speed, &pairs, memory.total_bytes, machine_out));
    json_object_set_new(*machine_out, "host_bytes_per_s", json_real(host));
    return MM_OK;
}
