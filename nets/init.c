/* SPDX-License-Identifier: MIT */
#include "nets/init.h"

#include <math.h>
#include <string.h>

#include "mm/core/hash.h"
#include "mm/core/philox.h"
#include "nets/net_ops.h"

typedef struct source {
    uint32_t key[2], stream[2];
} source;

static void draw(const source *s, uint64_t block, double uniform_out[4]) {
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), s->stream[0], s->stream[1]};
    uint32_t words[4];
    mm_philox(s->key, counter, words);
    for (int i = 0; i < 4; i++) uniform_out[i] = ((double)words[i] + 0.5) / 4294967296.0;
}

/* Elements first .. first + n - 1 of a parameter. Each block of random bits gives four elements. */
typedef struct part {
    int64_t first, n;
    float *out;
} part;

static void fill_uniform(const source *s, double bound, const part *p) {
    for (int64_t i = 0; i < p->n; i += 4) {
        double u[4];
        draw(s, (uint64_t)(p->first + i) / 4, u);
        for (int64_t k = 0; k < 4 && i + k < p->n; k++) p->out[i + k] = (float)((2 * u[k] - 1) * bound);
    }
}

/* Box and Muller's transform: two uniform numbers give two normal ones. */
static void fill_normal(const source *s, double deviation, const part *p) {
    const double two_pi = 6.283185307179586;
    for (int64_t i = 0; i < p->n; i += 4) {
        double u[4], z[4];
        draw(s, (uint64_t)(p->first + i) / 4, u);
        for (int k = 0; k < 4; k += 2) {
            double radius = deviation * sqrt(-2 * log(u[k]));
            z[k] = radius * cos(two_pi * u[k + 1]);
            z[k + 1] = radius * sin(two_pi * u[k + 1]);
        }
        for (int64_t k = 0; k < 4 && i + k < p->n; k++) p->out[i + k] = (float)z[k];
    }
}

static void fill_constant(float value, const part *p) {
    for (int64_t i = 0; i < p->n; i++) p->out[i] = value;
}

void nets_init_param(const nets_net *net, int index, uint64_t seed, int64_t first, int64_t n, float *values_out) {
    const part wanted = {first, n, values_out};
    const nets_param *param = nets_net_param(net, index);
    if (param->given) {
        memcpy(values_out, param->given + first, (size_t)n * sizeof *values_out);
        return;
    }
    const nets_layer *layer = nets_net_layer(net, param->layer);
    const nets_param *weight = nets_net_param(net, layer->first_param);
    /* Each parameter has random numbers of its own: they depend on the hash of its name. */
    uint64_t name = mm_hash_bytes(MM_HASH_BEGIN, param->name, strlen(param->name));
    const source s = {{(uint32_t)seed, (uint32_t)(seed >> 32)}, {(uint32_t)name, (uint32_t)(name >> 32)}};
    const nets_init init = nets_param_spec_of(layer->op, param->place)->init;
    switch (init.kind) {
    case NETS_INIT_CONSTANT:
        fill_constant((float)init.value, &wanted);
        break;
    case NETS_INIT_NORMAL_FAN_OUT:
        fill_normal(&s, sqrt(init.value / (double)(param->elems / param->dims[1])), &wanted);
        break;
    case NETS_INIT_NORMAL:
        if (layer->attrs.zero)
            fill_constant(0, &wanted);
        else
            fill_normal(&s, (double)layer->attrs.deviation, &wanted);
        break;
    case NETS_INIT_UNIFORM_FAN_IN:
        fill_uniform(&s, init.value / sqrt((double)(weight->elems / weight->dims[0])), &wanted);
        break;
    }
}
