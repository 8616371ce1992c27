/* SPDX-License-Identifier: MIT */
/* Statistics, touched bytes, sizes of codes, and the lists of policies, codecs and devices. */
#include "mm/manager/figures.h"

#include <string.h>

#include "mm/manager/arena.h"
#include "mm/manager/install.h"

/* Size of mm_stats as it was before mm_stats_get became a macro, too; the function fills in these members. */
enum { FIRST_STATS_BYTES = offsetof(mm_stats, replans) };

void(mm_stats_get)(mm_manager *m, mm_stats *stats_out) { mm_stats_get_sized(m, stats_out, FIRST_STATS_BYTES); }

void mm_stats_get_sized(mm_manager *m, mm_stats *stats_out, size_t stats_bytes) {
    if (!m || !stats_out) return;
    mm_dispatch_stats d;
    mm_dispatch_stats_get(m->dispatch, &d);
    const int64_t outside_bytes = mm_device_outside_bytes(m->device);
    const mm_stream_stats *s = d.stream;
    pthread_mutex_lock(&m->lock);
    const mm_stats stats = {
        .iterations = m->iterations,
        .replays = m->replays,
        .predicted_peak_bytes = m->predicted_peak_bytes,
        .persistent_bytes = m->persistent_bytes,
        .stash_bytes = m->stash_bytes,
        .outside_bytes = outside_bytes,
        .pinned_bytes = mm_pool_bytes(m->pinned),
        .compute_busy_ns = s[MM_STREAM_COMPUTE].busy_ns,
        .compute_wait_ns = s[MM_STREAM_COMPUTE].wait_ns + d.data_wait_ns,
        .codec_busy_ns = s[MM_STREAM_ENCODE].busy_ns + s[MM_STREAM_DECODE].busy_ns,
        .codec_wait_ns = d.codec_wait_ns,
        .encodes = d.encodes,
        .decodes = d.decodes,
        .encoded_bytes = d.encoded_bytes,
        .coded_bytes = d.coded_bytes,
        .spilled_bytes = d.spilled_bytes,
        .out_bytes = d.out_bytes,
        .in_bytes = d.in_bytes,
        .nonfinite_blocks = d.nonfinite_blocks,
        .unplanned_allocs = d.unplanned_allocs,
        .host_waits = d.host_waits,
        .ladder_steps = m->ladder_steps,
        .replans = m->replans,
        .verified = d.verified,
        .store_bytes = d.store_bytes,
        .load_bytes = d.load_bytes,
    };
    pthread_mutex_unlock(&m->lock);
    memset(stats_out, 0, stats_bytes);
    memcpy(stats_out, &stats, stats_bytes < sizeof stats ? stats_bytes : sizeof stats);
}

mm_status mm_touched_get(mm_manager *m, mm_touched *touched_out) {
    MM_TRY(mm_manager_drain(m, "mm_touched_get"));
    MM_TRY(mm_check_given(touched_out, "mm_touched_get", "touched_out"));
    if (!m->options.measure_touched)
        return mm_fail(MM_ERR_ORDER, "mm_touched_get: the manager was created without measure_touched");
    return mm_arena_touched(m, touched_out);
}

mm_status mm_code_sizes(mm_manager *m, const mm_graph *graph, mm_code_size *sizes_out, int capacity, int *n_out) {
    MM_TRY(mm_manager_drain(m, "mm_code_sizes"));
    const mm_ready *r = mm_manager_find(m, graph);
    if (!r) return mm_fail(MM_ERR_ORDER, "mm_code_sizes: %s is not prepared", mm_graph_name(graph));
    *n_out = mm_execution_codes(r->execution, sizes_out, capacity);
    return MM_OK;
}

int64_t mm_host_wait_ns(mm_manager *m) {
    mm_dispatch_stats d;
    mm_dispatch_stats_get(m->dispatch, &d);
    return d.issue_wait_ns + d.data_wait_ns + d.end_wait_ns;
}

const char *mm_policy_list(size_t i, const char **summary_out) {
    const mm_policy_ops *ops = mm_policy_table(i);
    if (ops && summary_out) *summary_out = ops->summary;
    return ops ? ops->name : NULL;
}

const char *mm_codec_list(size_t i, const char **summary_out) {
    const mm_codec_ops *ops = mm_codec_table(i);
    if (ops && summary_out) *summary_out = ops->summary;
    return ops ? ops->name : NULL;
}

const char *mm_device_list(size_t i, const char **summary_out) {
    const mm_device_ops *ops = mm_device_table(i);
    if (ops && summary_out) *summary_out = ops->summary;
    return ops ? ops->name : NULL;
}
