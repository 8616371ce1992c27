/* SPDX-License-Identifier: MIT */
#include "tests/codec/codec_data.h"

#include <float.h>
#include <math.h>
#include <string.h>

uint64_t codec_seed(uint64_t seed) { return seed * UINT64_C(0x9e3779b97f4a7c15) + 1; }

static float uniform(uint64_t *state) { return (float)(random_next(state) >> 40) * 0x1p-23f - 1; }

static float finite_bits(uint64_t *state) {
    for (;;) {
        const uint32_t bits = (uint32_t)random_next(state);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) return value;
    }
}

void codec_data_fill(float *values, int64_t n, codec_family family, uint64_t seed) {
    uint64_t state = codec_seed(seed * FAMILIES + family);
    float level = 0;
    int exponent = 0, chosen = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % 16 == 0) {
            level = uniform(&state);
            exponent = (int)(random_next(&state) % 277) - 149;
            chosen = (int)(random_next(&state) % 16);
        }
        const float u = uniform(&state);
        const uint64_t dice = random_next(&state);
        switch (family) {
        case FAMILY_UNIFORM:
            values[i] = u;
            break;
        case FAMILY_SMOOTH:
            values[i] = level + 0.1f * (float)(i % 4) - 0.03f * (float)(i / 4 % 4) + 0.01f * u;
            break;
        case FAMILY_CONSTANT:
            values[i] = level;
            break;
        case FAMILY_RELU:
            values[i] = u > 0 ? u : 0;
            break;
        case FAMILY_SPARSE:
            values[i] = dice % 8 == 0 ? u : 0;
            break;
        case FAMILY_SINGLE:
            values[i] = i % 16 == chosen ? u : 0;
            break;
        case FAMILY_TINY:
            values[i] = u * 1e-29f;
            break;
        case FAMILY_SUBNORMAL:
            values[i] = u * FLT_MIN;
            break;
        case FAMILY_HUGE:
            values[i] = u * FLT_MAX;
            break;
        case FAMILY_LARGEST:
            values[i] = dice % 2 ? FLT_MAX : -FLT_MAX;
            break;
        case FAMILY_MIXED:
            values[i] = ldexpf(u, (int)(dice % 60) - 30);
            break;
        case FAMILY_SHIFTED:
            values[i] = ldexpf(u, exponent);
            break;
        case FAMILY_ZEROS:
            values[i] = dice % 2 ? 0.0f : -0.0f;
            break;
        case FAMILY_MINUS_ZEROS:
            values[i] = dice % 3 ? u : -0.0f;
            break;
        default:
            values[i] = finite_bits(&state);
            break;
        }
    }
}
