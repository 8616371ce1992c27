/* SPDX-License-Identifier: MIT */
#include "nets/exec/exec_rehearsal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/exec/exec_internal.h"

static bool is_compared(const nets_exec *exec, int param) {
    const nets_param *of = nets_net_param(exec->net, param);
    return nets_param_trains(of) && of->rank > 1 && nets_net_layer(exec->net, of->layer)->op == NETS_CONV;
}

static float *room_for(const nets_exec *exec, int param) {
    return malloc((size_t)nets_net_param(exec->net, param)->elems * sizeof(float));
}

static mm_status no_memory(const nets_exec *exec) {
    return mm_fail(MM_ERR_NOMEM, "net %s: no memory to compare its gradients", nets_net_name(exec->net));
}

/* Copies the gradients of all learned parameters (`all`), or only of the parameters whose gradients are compared. */
static mm_status get_gradients(nets_exec *exec, bool all, float ***gradients_out) {
    const int n = nets_net_params(exec->net);
    float **gradients = *gradients_out = calloc((size_t)n + 1, sizeof *gradients);
    if (!gradients) return no_memory(exec);
    for (int i = 0; i < n; i++) {
        if (all ? !nets_param_trains(nets_net_param(exec->net, i)) : !is_compared(exec, i)) continue;
        gradients[i] = room_for(exec, i);
        if (!gradients[i]) return no_memory(exec);
        MM_TRY(nets_exec_param_get(exec, i, NETS_GRADIENT, gradients[i]));
    }
    return MM_OK;
}

mm_status nets_rehearsal_save(nets_rehearsal *guard, nets_exec *exec) {
    guard->n = nets_net_params(exec->net);
    return get_gradients(exec, true, &guard->before);
}

mm_status nets_rehearsal_restore(const nets_rehearsal *guard, nets_exec *exec) {
    for (int i = 0; i < guard->n; i++)
        if (guard->before[i]) MM_TRY(nets_exec_param_set(exec, i, NETS_GRADIENT, guard->before[i]));
    return MM_OK;
}

mm_status nets_rehearsal_record(nets_rehearsal *guard, nets_exec *exec) {
    guard->n = nets_net_params(exec->net);
    return get_gradients(exec, false, &guard->gradients);
}

/* The root of the mean square of the differences between a and b. */
static double deviation(const float *a, const float *b, int64_t n) {
    double sum2 = 0;
    for (int64_t i = 0; i < n; i++) sum2 += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum2 / (double)n);
}

static mm_status report_one(const nets_rehearsal *guard, nets_exec *exec, const nets_lowered *pass, int param) {
    float *exact = room_for(exec, param);
    if (!exact) return no_memory(exec);
    mm_status status = nets_exec_param_get(exec, param, NETS_GRADIENT, exact);
    if (status == MM_OK) {
        const double sigma = deviation(exact, guard->gradients[param], nets_net_param(exec->net, param)->elems);
        status = mm_sampling_report(exec->manager, pass->graph, pass->params[param].value, sigma);
        if (status == MM_ERR_NOT_FOUND) status = MM_OK; /* the layer's input has no code */
    }
    free(exact);
    return status;
}

mm_status nets_rehearsal_report(const nets_rehearsal *guard, nets_exec *exec, const nets_lowered *pass) {
    for (int i = 0; i < guard->n; i++)
        if (guard->gradients[i]) MM_TRY(report_one(guard, exec, pass, i));
    return MM_OK;
}

static void free_all(float **gradients, int n) {
    for (int i = 0; gradients && i < n; i++) free(gradients[i]);
    free(gradients);
}

void nets_rehearsal_fini(nets_rehearsal *guard) {
    free_all(guard->gradients, guard->n);
    free_all(guard->before, guard->n);
    memset(guard, 0, sizeof *guard);
}
