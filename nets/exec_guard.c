#include "nets/exec_guard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/exec_internal.h"

static bool is_compared(const nets_exec *exec, int param) {
    const nets_param *of = nets_net_param(exec->net, param);
    return of->learned && of->rank > 1 && nets_net_layer(exec->net, of->layer)->op == NETS_CONV;
}

static float *room_for(const nets_exec *exec, int param) {
    return malloc((size_t)nets_net_param(exec->net, param)->elems * sizeof(float));
}

static mm_status no_memory(const nets_exec *exec) {
    return mm_fail(MM_ERR_NOMEM, "net %s: no memory to compare its gradients", nets_net_name(exec->net));
}

mm_status nets_guard_keep(nets_guard *guard, nets_exec *exec) {
    guard->n = nets_net_params(exec->net);
    guard->gradients = calloc((size_t)guard->n + 1, sizeof *guard->gradients);
    if (!guard->gradients) return no_memory(exec);
    for (int i = 0; i < guard->n; i++) {
        if (!is_compared(exec, i)) continue;
        guard->gradients[i] = room_for(exec, i);
        if (!guard->gradients[i]) return no_memory(exec);
        MM_TRY(nets_exec_param_get(exec, i, NETS_GRADIENT, guard->gradients[i]));
    }
    return MM_OK;
}

/* The root of the mean square of the differences. */
static double deviation(const float *a, const float *b, int64_t n) {
    double sum2 = 0;
    for (int64_t i = 0; i < n; i++) sum2 += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum2 / (double)n);
}

static mm_status tell_one(const nets_guard *guard, nets_exec *exec, int param) {
    float *exact = room_for(exec, param);
    if (!exact) return no_memory(exec);
    mm_status status = nets_exec_param_get(exec, param, NETS_GRADIENT, exact);
    if (status == MM_OK) {
        const double sigma = deviation(exact, guard->gradients[param], nets_net_param(exec->net, param)->elems);
        status = mm_sampling_tell(exec->manager, exec->lowered->graph, exec->lowered->params[param].value, sigma);
        if (status == MM_ERR_NOT_FOUND) status = MM_OK; /* a layer whose input has no code */
    }
    free(exact);
    return status;
}

mm_status nets_guard_tell(const nets_guard *guard, nets_exec *exec) {
    for (int i = 0; i < guard->n; i++)
        if (guard->gradients[i]) MM_TRY(tell_one(guard, exec, i));
    return MM_OK;
}

void nets_guard_fini(nets_guard *guard) {
    for (int i = 0; guard->gradients && i < guard->n; i++) free(guard->gradients[i]);
    free(guard->gradients);
    memset(guard, 0, sizeof *guard);
}
