/* SPDX-License-Identifier: MIT */
#include "tools/measure/subject.h"

/* A collect_run. */
static mm_status measure_policy(void *ctx, const char *policy, collector *c) {
    const subject *of = ctx;
    session_config config = {.net = of->net,
                             .data = "synthetic",
                             .batch = of->batch,
                             .target = *of->target,
                             .pinned_bytes = PINNED_OPEN,
                             .seed = 1,
                             .same_batches = true,
                             .measure_times = true};
    config.policies.text[config.policies.n++] = policy;
    session s;
    row r = {.batch = of->batch};
    const float rate = (float)nets_optimizer_traits_of(of->target->optimizer.id)->rate;
    session_run run = {.iterations = of->iterations, .schedule = {.rate = rate, .factor = 1}, .quiet = true};
    MM_TRY(session_init(&s, &config));
    mm_status status = session_train(&s, &run, &r);
    if (status == MM_OK) status = collector_add(c, &s, &r);
    session_fini(&s);
    return status;
}

mm_status subject_collect(const subject *of, const arg_texts *policies, collector *c) {
    subject own = *of;
    MM_TRY(collector_init(c, of->net, of->batch, of->target, policies));
    mm_status status = MM_OK;
    for (int p = 0; status == MM_OK && p < policies->n; p++) status = measure_policy(&own, policies->text[p], c);
    if (status == MM_OK) status = collector_measure_variants(c, measure_policy, &own);
    if (status == MM_OK) status = collector_measure_device(c, of->target);
    if (status != MM_OK) collector_fini(c);
    return status;
}
