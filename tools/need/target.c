/* SPDX-License-Identifier: MIT */
#include "tools/need/target.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/plan/plan.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "mm/core/text.h"
#include "mm/device/contract/device.h"
#include "nets/adapt.h"
#include "nets/state_codes.h"

mm_status target_check_device(const char *device) {
    const mm_device_ops *kind;
    int ordinal;
    mm_status status = mm_device_find(device, &kind, &ordinal);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "--device");
}

static const mm_device_ops *kind_of(const target *t) {
    const mm_device_ops *kind;
    int ordinal;
    return mm_device_find(t->device, &kind, &ordinal) == MM_OK ? kind : NULL;
}

bool target_is_host(const char *device) {
    static const char host[] = "host";
    return strcspn(device, ":") == strlen(host) && strncmp(device, host, strlen(host)) == 0;
}

mm_status target_allows_link(const target *t) {
    if (target_is_host(t->device)) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--link: only device host has a link whose speed can be set, not %s", t->device);
}

mm_status target_read_disk(target *t) {
    t->disk_bytes = t->disk_bytes_per_s = 0;
    if (!t->disk_text || !*t->disk_text) return MM_OK;
    char text[sizeof t->disk];
    if (snprintf(text, sizeof text, "%s", t->disk_text) >= (int)sizeof text)
        return mm_fail(MM_ERR_INVALID, "--disk: longer than %zu characters", sizeof text - 1);
    char *last = strrchr(text, ':');
    int64_t numbers[2] = {0, 0}; /* the last, and the one before */
    for (int i = 0; i < 2 && last && last > text; i++) {
        if (i > 0 && mm_size_parse(last + 1, &numbers[i]) != MM_OK) break; /* belongs to the directory */
        if (i == 0) MM_TRY(args_size("--disk", last + 1, &numbers[0]));
        *last = '\0';
        last = strrchr(text, ':');
    }
    if (numbers[0] == 0)
        return mm_fail(MM_ERR_INVALID, "--disk %s: must be DIR:SIZE, as /mnt/nvme:200GiB, or DIR:SIZE:RATE",
                       MM_BRIEF(t->disk_text));
    t->disk_bytes = numbers[1] > 0 ? numbers[1] : numbers[0];
    t->disk_bytes_per_s = numbers[1] > 0 ? numbers[0] : MM_DISK_BYTES_PER_S;
    memcpy(t->disk, text, sizeof t->disk);
    return MM_OK;
}

/* Asks the device for its rates; all 0, unknown, if it does not answer. */
static void learn_rates(target *t) {
    const mm_device_config config = {.link_out_bytes_per_s = t->link_bytes_per_s,
                                     .link_in_bytes_per_s = t->link_bytes_per_s};
    mm_device *device;
    t->rates = (mm_rates){.disk_bytes_per_s = t->disk_bytes_per_s};
    if (mm_device_create(t->device, &config, &device) != MM_OK) return;
    mm_device_description description;
    mm_device_describe(device, &description);
    mm_device_destroy(device);
    t->rates = (mm_rates){description.memory_bytes_per_s, description.link_bytes_per_s, t->disk_bytes_per_s};
}

/* Refuses options of GPUs for the host device. */
static mm_status check_host(const target *t) {
    if (t->workspace_bytes > 0)
        return mm_fail(MM_ERR_INVALID, "--workspace: device host has no limit to set; use it with --device cuda");
    if (strcmp(t->precision, "tf32") == 0)
        return mm_fail(MM_ERR_INVALID, "--precision tf32: device host has no such units; use it with --device cuda");
    if (t->algorithms)
        return mm_fail(MM_ERR_INVALID, "--algorithms: device host has none to choose from; use it with --device cuda");
    return MM_OK;
}

/* Refuses options of CPUs for another device. */
static mm_status check_other(const target *t) {
    if (t->threads > 0 || t->codec_threads > 0)
        return mm_fail(MM_ERR_INVALID, "--%sthreads: device %s does not compute on CPUs; use it with --device host",
                       t->threads > 0 ? "" : "codec-", t->device);
    return MM_OK;
}

static mm_status parse_precision(const char *text, nets_precision *precision_out) {
    static const char *const names[] = {[NETS_FP32] = "fp32", [NETS_TF32] = "tf32", [NETS_BF16] = "bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *precision_out = (nets_precision)i;
        return MM_OK;
    }
    return mm_fail(MM_ERR_INVALID, "--precision %s: must be fp32, tf32 or bf16", text);
}

mm_status target_init(target *t) {
    MM_TRY(target_check_device(t->device));
    nets_precision precision;
    MM_TRY(parse_precision(t->precision, &precision));
    const bool fuse = strcmp(t->fuse, "off") != 0;
    if (fuse && strcmp(t->fuse, "on") != 0 && strcmp(t->fuse, "auto") != 0)
        return mm_fail(MM_ERR_INVALID, "--fuse %s: must be auto, on or off", t->fuse);
    const char *optimizer = t->optimizer_text ? t->optimizer_text : "sgd";
    if (nets_optimizer_parse(optimizer, &t->optimizer) != MM_OK)
        return mm_fail_in(MM_ERR_INVALID, "--optimizer %s", optimizer);
    MM_TRY(target_is_host(t->device) ? check_host(t) : check_other(t));
    const nets_backend_config config = {.precision = precision,
                                        .deterministic = t->deterministic,
                                        .workspace_limit_bytes = t->workspace_bytes,
                                        .threads = (int)t->threads,
                                        .plans_only = t->plans_only,
                                        .algorithms_path = t->algorithms,
                                        .stop = t->stop};
    if (t->link_bytes_per_s > 0) MM_TRY(target_allows_link(t));
    MM_TRY(target_read_disk(t));
    learn_rates(t);
    mm_host_memory memory;
    mm_host_memory_get(&memory);
    t->host_free_bytes = memory.free_bytes;
    t->apart = !fuse;
    return nets_backend_open(t->device, &config, &t->backend);
}

int64_t target_pinned_and_disk(const target *t, int64_t pinned_bytes) {
    int64_t both;
    return __builtin_add_overflow(pinned_bytes, t->disk_bytes, &both) ? INT64_MAX : both;
}

pinned_limit target_pinned(const target *t, int64_t option, bool elsewhere) {
    if (option != PINNED_OPEN) return (pinned_limit){option, PINNED_GIVEN, t->disk_bytes};
    if (elsewhere) return (pinned_limit){INT64_MAX, PINNED_ELSEWHERE, t->disk_bytes};
    const bool disk = t->disk_bytes > 0;
    return (pinned_limit){target_free_part(t->host_free_bytes, disk), disk ? PINNED_DISK : PINNED_HALF, t->disk_bytes};
}

pinned_limit target_pinned_beside(const target *t, int64_t option, int64_t budget_bytes) {
    const pinned_limit limit = target_pinned(t, option, false);
    int64_t rest = t->host_free_bytes - budget_bytes; /* negative: the budget will be refused */
    if (limit.from == PINNED_DISK) rest /= 2;
    const bool less = target_is_host(t->device) && 0 <= rest && rest < limit.bytes && limit.from != PINNED_GIVEN;
    return less ? (pinned_limit){rest, limit.from == PINNED_DISK ? PINNED_DISK : PINNED_REST, t->disk_bytes} : limit;
}

static bool is_given(const char *text) { return text && *text; }

mm_status target_adapt(const target *t, nets_net **net) {
    nets_lora lora;
    if (is_given(t->lora) && is_given(t->freeze))
        return mm_fail(MM_ERR_INVALID, "--lora and --freeze: give one of them; --lora freezes all but its adapters");
    if (is_given(t->freeze)) return nets_freeze_layers(*net, t->freeze);
    if (!is_given(t->lora)) return MM_OK;
    MM_TRY(nets_lora_parse(t->lora, &lora));
    return nets_lora_add(&lora, net);
}

/* False for bf16: fused layers round maps once, single ones twice, and results must not depend on the budget. */
bool target_may_unfuse(const target *t) {
    return strcmp(t->fuse, "auto") == 0 && !t->fuse_facts && strcmp(t->precision, "bf16") != 0;
}

nets_lowering target_lowering(const target *t, nets_mode mode) {
    return (nets_lowering){.mode = mode,
                           .optimizer = t->optimizer.id,
                           .update = t->update,
                           .no_fuse = t->apart,
                           .clips = t->optimizer.clip_norm > 0,
                           .on_host = t->optimizer.on_host,
                           .allreduce = t->allreduce};
}

void target_forget_facts(target *t) {
    t->fuse_facts = NULL;
    t->apart = strcmp(t->fuse, "off") == 0;
}

const char *target_fuse_text(const target *t) { return t->apart ? "off" : "on"; }

void target_set_link(target *t, int64_t bytes_per_s) {
    t->link_bytes_per_s = bytes_per_s;
    learn_rates(t);
}

int64_t target_staged_bytes(const target *t, const nets_net *net, int64_t batch) {
    const mm_device_ops *kind = kind_of(t);
    return kind && !kind->cpu_reaches_memory ? mm_align(nets_exec_stage_bytes(net, batch)) : 0;
}

void target_fini(target *t) {
    nets_backend_close(t->backend);
    t->backend = NULL;
}

void target_log_threads(const target *t, const char *facts, int threads) {
    if (threads > 0 && t->backend->threads > 0 && threads != t->backend->threads)
        fprintf(stderr, "mm: %s: was measured on %d thread%s, but this computes on %d: times and workspaces differ\n",
                facts, threads, threads > 1 ? "s" : "", t->backend->threads);
}

void target_log_lossy(const target *t) {
    const nets_optimizer_traits *optimizer = nets_optimizer_traits_of(t->optimizer.id);
    if (optimizer->coded)
        fprintf(stderr,
                "mm: --optimizer %s,states=8bit is lossy: parameters of %d elements or more, but embeddings, have "
                "states of 8 bits\n",
                optimizer->name, NETS_STATE_LEAST);
}

mm_status target_probe(const target *t) {
    mm_device *device;
    MM_TRY(mm_device_create(t->device, NULL, &device));
    mm_device_destroy(device);
    return MM_OK;
}

mm_status target_issue(const target *t, const char *text, mm_issue *issue_out) {
    bool automatic = strcmp(text, "auto") == 0, threads = automatic && target_is_host(t->device);
    if (!automatic && strcmp(text, "thread") != 0 && strcmp(text, "inline") != 0)
        return mm_fail(MM_ERR_INVALID, "--issue %s: must be auto, thread or inline", text);
    *issue_out = threads || strcmp(text, "thread") == 0 ? MM_ISSUE_THREAD : MM_ISSUE_INLINE;
    return MM_OK;
}
