#include "tools/sub_batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/account.h"
#include "tools/requirement.h"

/* moDNN's share of the steps that are to fit together, in thousandths: its authors' choice. */
enum { WINDOW_PERMILLE = 150 };

mm_status sub_batch_parse(const char *text, int64_t batch, int64_t *sub_batch_out) {
    char *end;
    *sub_batch_out = batch;
    if (!text || !*text) return MM_OK; /* as a state of whole batches says it */
    *sub_batch_out = 0;
    if (strcmp(text, "auto") == 0) return MM_OK;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < 1 || n > batch)
        return mm_fail(MM_ERR_INVALID, "--sub-batch %s: must be from 1 to the batch, %lld, or auto", text,
                       (long long)batch);
    *sub_batch_out = n;
    return MM_OK;
}

/* Whether runs of steps fit together, in each pass. */
static mm_status windows_fit(const nets_net *net, int64_t batch, int64_t sub_batch, const target *target,
                             int64_t budget_bytes, bool *fit_out) {
    nets_exec_graph graphs[NETS_PASSES];
    *fit_out = true;
    for (int i = nets_exec_graphs(batch, sub_batch, graphs) - 1; *fit_out && i >= 0; i--) {
        nets_lowered *lowered;
        int64_t bytes;
        MM_TRY(nets_lower_pass(net, target->backend, graphs[i].batch, NETS_TRAIN, graphs[i].pass, target->optimizer.id,
                               &lowered));
        mm_status status = mm_window_bytes(lowered->graph, WINDOW_PERMILLE, &bytes);
        nets_lowered_destroy(lowered);
        MM_TRY(status);
        *fit_out = bytes <= budget_bytes;
    }
    return MM_OK;
}

/* The largest whose windows fit; 1 if none does. */
static mm_status find_by_windows(const nets_net *net, int64_t batch, const target *target, int64_t budget_bytes,
                                 int64_t *sub_batch_out) {
    int64_t fits = 1, over = batch + 1;
    while (over - fits > 1) {
        const int64_t middle = over > batch ? batch : fits + (over - fits) / 2;
        bool fit;
        MM_TRY(windows_fit(net, batch, middle, target, budget_bytes, &fit));
        *(fit ? &fits : &over) = middle;
    }
    *sub_batch_out = fits;
    return MM_OK;
}

/* As devices like it: a multiple of 64, or a power of two. */
static int64_t rounded(int64_t n) {
    int64_t power = 1;
    while (2 * power <= n && power < 64) power *= 2;
    return n / power * power;
}

/* What the plans of all passes need at least, and the step that holds it. */
static mm_status need_of(const nets_net *net, int64_t batch, int64_t sub_batch, const target *target,
                         const char *policy, int64_t pinned_bytes, int64_t *bytes_out, char holder[256]) {
    requirement_passes p;
    MM_TRY(requirement_passes_init(&p, net, batch, sub_batch, NETS_TRAIN, target, policy, 0, pinned_bytes, NULL));
    const mm_plan *plan = requirement_most(&p)->planned.plan;
    *bytes_out = requirement_most(&p)->minimum_bytes;
    mm_graph_step_name(plan->graph, plan->peak_step, holder, 256);
    requirement_passes_fini(&p);
    return MM_OK;
}

/* Larger ones are as good where all maps fit: then none has to leave. */
static mm_status climb(const nets_net *net, int64_t batch, const target *target, int64_t budget_bytes, int64_t *n) {
    char holder[256];
    while (*n < batch) {
        int64_t more = *n < 64 ? 2 * *n : *n + 64, bytes;
        if (more > batch) more = batch;
        MM_TRY(need_of(net, batch, more, target, "liveness", INT64_MAX, &bytes, holder));
        if (bytes > budget_bytes) return MM_OK;
        *n = more;
    }
    return MM_OK;
}

static mm_status choose(const nets_net *net, int64_t batch, const target *target, const char *policy,
                        int64_t budget_bytes, int64_t pinned_bytes, int64_t *sub_batch_out) {
    int64_t n, bytes;
    char holder[256] = "";
    MM_TRY(find_by_windows(net, batch, target, budget_bytes, &n));
    if (n < batch) n = rounded(n);
    MM_TRY(climb(net, batch, target, budget_bytes, &n));
    for (;; n = rounded(n / 2)) {
        MM_TRY(need_of(net, batch, n, target, policy, pinned_bytes, &bytes, holder));
        *sub_batch_out = n;
        if (bytes <= budget_bytes) return MM_OK;
        if (n == 1)
            return mm_fail(MM_ERR_INFEASIBLE, "infeasible: in sub-batches of one image needs at least %s, held by %s",
                           MM_SIZE_TOLD(bytes), holder);
    }
}

/* Where the device times algorithms, sizes are tried with as little workspace as timing may leave. */
mm_status sub_batch_choose(const nets_net *net, int64_t batch, const target *target, const char *policy,
                           int64_t budget_bytes, int64_t pinned_bytes, int64_t *sub_batch_out) {
    struct target untimed = *target;
    mm_status status = nets_backend_open_bound(target->backend, &untimed.backend);
    if (status == MM_ERR_UNSUPPORTED)
        return choose(net, batch, target, policy, budget_bytes, pinned_bytes, sub_batch_out);
    MM_TRY(status);
    status = choose(net, batch, &untimed, policy, budget_bytes, pinned_bytes, sub_batch_out);
    target_fini(&untimed);
    return status;
}
