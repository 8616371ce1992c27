/* SPDX-License-Identifier: MIT */
#include "tools/measure/host_facts.h"

#include "nets/io/net_file.h"
#include "tools/measure/host_fit.h"
#include "tools/measure/subject.h"

/* Chosen: small images and few channels; large channels, kernels of one pixel; products and attention of tokens. */
static const struct {
    const char *net;
    int64_t batch;
} SUBJECTS[] = {{"resnet20", 32}, {"resnet50", 2}, {"gpt,layers=2", 8}};
enum { SUBJECTS_N = sizeof SUBJECTS / sizeof *SUBJECTS, ITERATIONS = 5 };

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

mm_status host_facts_measure(const target *target, json_t **machine_out) {
    mm_device *device;
    mm_memory_info memory;
    device_speed speed;
    host_fit fit = {.n = 0};
    for (int i = 0; i < SUBJECTS_N; i++) MM_TRY(add_subject(target, i, &fit));
    const mm_device_config config = {.codec_threads = (int)target->codec_threads};
    MM_TRY(mm_device_create(target->device, &config, &device));
    mm_device_memory_info(device, &memory);
    mm_status status = device_speed_measure(device, &speed);
    mm_device_destroy(device);
    MM_TRY(status);
    return host_fit_machine(&fit, &speed, memory.total_bytes, machine_out);
}
