/* SPDX-License-Identifier: MIT */
#include "tests/nets/ref_exec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/graph/graph.h"
#include "mm/core/philox.h"
#include "nets/bf16.h"
#include "nets/init.h"

static void *allocate(int64_t bytes) {
    void *data = aligned_alloc(256, (size_t)(bytes + 511) / 256 * 256);
    assert_non_null(data);
    memset(data, 0, (size_t)bytes);
    return data;
}

static const mm_tensor_info *info(const ref_exec *ref, mm_tensor tensor) {
    return mm_graph_tensor(ref->lowered->graph, tensor);
}

static void *data_of(const ref_exec *ref, mm_tensor tensor) { return ref->storage[ref->root[tensor]]; }

/* Whether a step after `step` uses anything that lives in `root`. */
static bool used_later(const ref_exec *ref, mm_tensor root, int step) {
    for (int t = 0; t < mm_graph_tensors(ref->lowered->graph); t++)
        if (ref->root[t] == root && info(ref, t)->last_use > step) return true;
    return false;
}

/* Whether another tensor of the step lies in `root`, which is to be written. */
static bool used_beside(const ref_exec *ref, const mm_step_info *step, mm_tensor root, mm_tensor input) {
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor != input && ref->root[step->uses[u].tensor] == root) return true;
    return false;
}

static void share_storage(ref_exec *ref) {
    for (int s = 0; s < mm_graph_steps(ref->lowered->graph); s++) {
        const mm_step_info *step = mm_graph_step(ref->lowered->graph, s);
        for (int p = 0; p < step->n_pairs; p++) {
            mm_tensor output = step->pairs[p].output, input = step->pairs[p].input, root = ref->root[input];
            if (ref->root[output] != output) continue;
            if (!step->pairs[p].alias && (used_later(ref, root, s) || used_beside(ref, step, root, input))) continue;
            ref->root[output] = root;
            ref->shared++;
        }
    }
}

static void collect_params(ref_exec *ref) {
    int n = nets_net_params(ref->net);
    ref->params = calloc((size_t)n + 1, sizeof *ref->params);
    assert_non_null(ref->params);
    for (int i = 0; i < n; i++) {
        const nets_param_tensors *tensors = &ref->lowered->params[i];
        if (tensors->gradient < 0) continue;
        nets_update_param *param = &ref->params[ref->n_params++];
        *param = (nets_update_param){.weight = data_of(ref, tensors->value),
                                     .gradient = data_of(ref, tensors->gradient),
                                     .elems = nets_net_param(ref->net, i)->elems,
                                     .decayed = nets_net_param(ref->net, i)->decayed,
                                     .copy = tensors->copy < 0 ? NULL : data_of(ref, tensors->copy)};
        for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->state[k] >= 0; k++)
            param->state[k] = data_of(ref, tensors->state[k]);
    }
}

static void fill_copy(ref_exec *ref, int param) {
    const nets_param_tensors *tensors = &ref->lowered->params[param];
    const uint32_t *values = data_of(ref, tensors->value);
    for (int64_t i = 0; tensors->copy >= 0 && i < nets_net_param(ref->net, param)->elems; i++)
        ((uint16_t *)data_of(ref, tensors->copy))[i] = nets_bf16_of(values[i]);
}

static void fill_params(ref_exec *ref, uint64_t seed, const ref_exec *like) {
    for (int i = 0; i < nets_net_params(ref->net); i++) {
        float *values = data_of(ref, ref->lowered->params[i].value);
        if (like)
            memcpy(values, data_of(like, like->lowered->params[i].value),
                   (size_t)nets_net_param(ref->net, i)->elems * sizeof *values);
        else
            nets_init_param(ref->net, i, seed, 0, nets_net_param(ref->net, i)->elems, values);
        fill_copy(ref, i);
    }
    if (ref->lowered->rng >= 0) *(uint32_t *)data_of(ref, ref->lowered->rng) = (uint32_t)seed;
}

void ref_init(ref_exec *ref, const nets_net *net, int64_t batch, nets_mode mode, ref_options options, uint64_t seed,
              const ref_exec *like) {
    *ref = (ref_exec){.net = net, .options = options, .optimizer = {.momentum = 0.9f, .weight_decay = 1e-4f}};
    assert_int_equal(mm_device_create("host", NULL, &ref->device), MM_OK);
    assert_int_equal(mm_stream_create(ref->device, "ref", 0, &ref->stream), MM_OK);
    const nets_backend_config config = {.precision = options.precision};
    const nets_lowering how = {.mode = mode, .optimizer = options.optimizer, .no_fuse = options.no_fuse};
    assert_int_equal(nets_backend_open("host", &config, &ref->backend), MM_OK);
    if (nets_lower(net, ref->backend, batch, &how, &ref->lowered) != MM_OK) fail_msg("%s", mm_last_error());
    int n = mm_graph_tensors(ref->lowered->graph);
    ref->root = calloc((size_t)n, sizeof *ref->root);
    ref->storage = calloc((size_t)n, sizeof *ref->storage);
    assert_true(ref->root && ref->storage);
    for (int t = 0; t < n; t++) ref->root[t] = t;
    if (options.share) share_storage(ref);
    for (int t = 0; t < n; t++)
        if (ref->root[t] == t) ref->storage[t] = allocate(info(ref, t)->bytes);
    for (int s = 0; s < mm_graph_steps(ref->lowered->graph); s++) {
        int64_t bytes = mm_graph_step(ref->lowered->graph, s)->workspace_bytes;
        if (bytes > ref->workspace_bytes) ref->workspace_bytes = bytes;
    }
    ref->workspace = allocate(ref->workspace_bytes);
    collect_params(ref);
    fill_params(ref, seed, like);
}

void ref_fini(ref_exec *ref) {
    for (int t = 0; t < mm_graph_tensors(ref->lowered->graph); t++) free(ref->storage[t]);
    free(ref->storage);
    free(ref->root);
    free(ref->workspace);
    free(ref->params);
    nets_lowered_destroy(ref->lowered);
    nets_backend_close(ref->backend);
    mm_stream_destroy(ref->stream);
    mm_device_destroy(ref->device);
}

static uint32_t *make_mask(const void *values, const mm_tensor_info *tensor) {
    const bool wide = tensor->dtype == MM_F32;
    const int64_t n = tensor->bytes / (wide ? 4 : 2);
    uint32_t *mask = calloc((size_t)n / 32 + 1, sizeof *mask);
    assert_non_null(mask);
    for (int64_t i = 0; i < n; i++) /* as int16, positive bf16 values are above 0 */
        if (wide ? ((const float *)values)[i] > 0 : ((const int16_t *)values)[i] > 0)
            mask[i / 32] |= UINT32_C(1) << (i % 32);
    return mask;
}

static void run_op(ref_exec *ref, const nets_step *step) {
    nets_op_args args = {.layer = (uint32_t)step->layer};
    void *mask = NULL;
    if (ref->options.exact) args.exact_roles = UINT64_MAX;
    memset(ref->workspace, 0xff, (size_t)ref->workspace_bytes);
    args.at[NETS_WORKSPACE] = ref->workspace;
    args.workspace_bytes = ref->workspace_bytes;
    for (int r = 0; r < NETS_ROLES; r++) {
        if (step->tensors[r] < 0) continue;
        args.at[r] = data_of(ref, step->tensors[r]);
        if (ref->options.sign_mask && step->sign_roles & NETS_ROLE_BIT(r)) {
            args.at[r] = mask = make_mask(args.at[r], info(ref, step->tensors[r]));
            args.sign_roles |= NETS_ROLE_BIT(r);
        }
    }
    assert_int_equal(nets_op_enqueue(step->op, step->phase, &args, ref->stream), MM_OK);
    if (mm_stream_sync(ref->stream) != MM_OK) fail_msg("%s", mm_last_error());
    free(mask);
}

float ref_iteration(ref_exec *ref, const float *images, const int32_t *labels, float lr) {
    const nets_lowered *lowered = ref->lowered;
    for (int t = 0; t < mm_graph_tensors(lowered->graph); t++)
        if (info(ref, t)->ownership == MM_MANAGED) memset(data_of(ref, t), 0xff, (size_t)info(ref, t)->bytes);
    for (int i = 0; i < lowered->n_steps; i++) {
        const nets_step *step = &lowered->steps[i];
        if (step->phase == MM_UPDATE) {
            float *rate = data_of(ref, lowered->lr);
            *rate = lr;
            const nets_update_args args = {.params = ref->params,
                                           .n_params = ref->n_params,
                                           .lr = rate,
                                           .optimizer = ref->optimizer,
                                           .rng = data_of(ref, lowered->rng),
                                           .step = lowered->step < 0 ? NULL : data_of(ref, lowered->step)};
            assert_int_equal(ref->backend->ops->update(ref->backend, &args, ref->stream), MM_OK);
            assert_int_equal(mm_stream_sync(ref->stream), MM_OK);
        } else if (step->op) {
            run_op(ref, step);
        } else {
            memcpy(data_of(ref, lowered->images), images, (size_t)info(ref, lowered->images)->bytes);
            memcpy(data_of(ref, lowered->labels), labels, (size_t)info(ref, lowered->labels)->bytes);
        }
    }
    return *(float *)data_of(ref, lowered->loss);
}

void *ref_tensor(const ref_exec *ref, const char *name) {
    mm_tensor tensor;
    if (mm_graph_find_tensor(ref->lowered->graph, name, &tensor) != MM_OK) fail_msg("%s", mm_last_error());
    return data_of(ref, tensor);
}

static int conv(nets_net *net, const char *name, int input) {
    return nets_add1(net, name, NETS_CONV, &(nets_attrs){.out_channels = 7, .kernel = {3, 3}, .pad = {1, 1}}, input);
}
static int norm(nets_net *net, const char *name, int input) {
    return nets_add1(net, name, NETS_BATCH_NORM, NULL, input);
}
static int relu(nets_net *net, const char *name, int input) { return nets_add1(net, name, NETS_RELU, NULL, input); }
static int sum(nets_net *net, const char *name, int a, int b) {
    return nets_add(net, name, NETS_ADD, NULL, (const int[]){a, b}, 2);
}

nets_net *ref_repeated_net(float dropped) {
    nets_net *net;
    assert_int_equal(nets_net_create("repeated", &net), MM_OK);
    int data = nets_add_data(net, 7, 6, 3, 5);
    int stem = relu(net, "relu1", norm(net, "bn1", conv(net, "conv1", sum(net, "twice_images", data, data))));
    int doubled = sum(net, "twice", stem, stem);
    int thrice = nets_add(net, "cat", NETS_CONCAT, NULL, (const int[]){doubled, stem, doubled, doubled}, 4);
    int drop = nets_add1(net, "drop", NETS_DROPOUT, &(nets_attrs){.p = dropped}, thrice);
    int x = relu(net, "relu2", norm(net, "bn2", conv(net, "conv2", sum(net, "with_dropped", thrice, drop))));
    int own = relu(net, "relu3", sum(net, "with_normed", norm(net, "bn3", x), x));
    x = sum(net, "last", sum(net, "twice_own", own, own), x);
    x = nets_add1(net, "pool", NETS_GLOBAL_AVG_POOL, NULL, x);
    x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 5, .bias = true}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    if (nets_net_finish(net) != MM_OK) fail_msg("%s", mm_last_error());
    return net;
}

void ref_batch(const nets_net *net, int64_t n, uint32_t seed, float **images_out, int32_t **labels_out) {
    int64_t elems = n * nets_shape_elems(&nets_net_layer(net, 0)->shape);
    float *images = malloc((size_t)elems * sizeof *images);
    int64_t n_labels = n * nets_net_labels(net);
    int32_t *labels = malloc((size_t)n_labels * sizeof *labels);
    assert_true(images && labels);
    const uint32_t key[2] = {seed, 99};
    uint32_t words[4];
    for (int64_t i = 0; i < elems; i++) {
        mm_philox(key, (const uint32_t[4]){(uint32_t)i, 0, 0, 0}, words);
        images[i] = nets_net_tokens(net) ? (float)(words[0] % (uint32_t)nets_net_classes(net))
                                         : (float)((double)words[0] / 2147483648.0 - 1.0);
    }
    for (int64_t i = 0; i < n_labels; i++) {
        mm_philox(key, (const uint32_t[4]){(uint32_t)i, 1, 0, 0}, words);
        labels[i] = (int32_t)(words[0] % (uint32_t)nets_net_classes(net));
    }
    *images_out = images;
    *labels_out = labels;
}
