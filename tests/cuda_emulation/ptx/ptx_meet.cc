// SPDX-License-Identifier: MIT
#include <stdio.h>

#include "tests/cuda_emulation/ptx/ptx_code.h"

namespace ptx {
namespace {

enum class shuffle { UP, DOWN, XOR, INDEX };

/* Registers: result, predicate (whether the lane that is read is in range), by how much, clamp and segment. */
template <shuffle MODE> void shuffled(warp &w, const instruction &i) {
    const uint32_t *by = w.at<uint32_t>(i.reg[2]), *control = w.at<uint32_t>(i.reg[3]);
    uint32_t out[LANES], in_range = 0;
    for (int l = 0; l < LANES; l++) {
        const int b = (int)(by[l] & 31), segment = (int)(control[l] >> 8 & 31), clamp = (int)(control[l] & 31);
        const int first = l & segment, last = first | (clamp & ~segment);
        const int from = MODE == shuffle::UP     ? l - b
                         : MODE == shuffle::DOWN ? l + b
                         : MODE == shuffle::XOR  ? l ^ b
                                                 : first | (b & ~segment);
        const bool fits = MODE == shuffle::UP ? from >= last : from <= last;
        in_range |= (uint32_t)fits << l;
        out[l] = w.values[fits ? from : l];
    }
    put(w, i.reg[0], out);
    if (i.reg[1] != NO_REGISTER) put_predicate(w, i.reg[1], in_range);
}

void voted_all(warp &w, const instruction &i) { put_predicate(w, i.reg[0], (w.predicates & w.met) == w.met ? ALL : 0); }
void voted_any(warp &w, const instruction &i) { put_predicate(w, i.reg[0], w.predicates & w.met ? ALL : 0); }
void ballot(warp &w, const instruction &i) {
    uint32_t out[LANES];
    for (uint32_t &o : out) o = w.predicates & w.met;
    put(w, i.reg[0], out);
}

template <class T, class F> void reduced(warp &w, const instruction &i) {
    T sum = (T)w.values[__builtin_ctz(w.met)], out[LANES];
    for (int l = __builtin_ctz(w.met) + 1; l < LANES; l++)
        if (w.met >> l & 1) sum = F::of(sum, (T)w.values[l]);
    for (T &o : out) o = sum;
    put(w, i.reg[0], out);
}
#define REDUCE(name, expression)                                                                                       \
    struct name {                                                                                                      \
        template <class T> static T of(T a, T b) { return expression; }                                                \
    };
REDUCE(r_add, (T)((uint32_t)a + (uint32_t)b))
REDUCE(r_min, a < b ? a : b)
REDUCE(r_max, a > b ? a : b)
REDUCE(r_and, a &b)
REDUCE(r_or, a | b)
REDUCE(r_xor, a ^ b)

void matched_any(warp &w, const instruction &i) {
    uint32_t out[LANES];
    for (int l = 0; l < LANES; l++) {
        out[l] = 0;
        for (int m = 0; m < LANES; m++) out[l] |= (uint32_t)((w.met >> m & 1) && w.values[m] == w.values[l]) << m;
    }
    put(w, i.reg[0], out);
}

void nothing(warp &, const instruction &) {}

float of_bf16(uint32_t pair, int half) {
    const uint32_t u = half ? pair & 0xffff0000 : pair << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* D = A B + C: A 16 x 16, B 16 x 8. Registers: D 0-3, A 4-7, B 8-9, C 10-13. A lane's group is its row of A and
 * column of B. Sums are rounded once; a GPU's order of terms is not specified. */
void multiplied(warp &w, const instruction &i) {
    const uint32_t *a[4], *b[2];
    for (int n = 0; n < 4; n++) a[n] = w.at<uint32_t>(i.reg[4 + n]);
    for (int n = 0; n < 2; n++) b[n] = w.at<uint32_t>(i.reg[8 + n]);
    double A[16][16], B[16][8];
    for (int l = 0; l < LANES; l++)
        for (int half = 0; half < 2; half++) {
            const int group = l / 4, k = l % 4 * 2 + half;
            for (int n = 0; n < 4; n++) A[group + n % 2 * 8][k + n / 2 * 8] = of_bf16(a[n][l], half);
            for (int n = 0; n < 2; n++) B[k + n * 8][group] = of_bf16(b[n][l], half);
        }
    float out[4][LANES];
    for (int l = 0; l < LANES; l++)
        for (int n = 0; n < 4; n++) {
            const int row = l / 4 + n / 2 * 8, column = l % 4 * 2 + n % 2;
            double sum = w.at<float>(i.reg[10 + n])[l];
            for (int k = 0; k < 16; k++) sum += A[row][k] * B[k][column];
            out[n][l] = (float)sum;
        }
    for (int n = 0; n < 4; n++) put(w, i.reg[n], out[n]);
}

const struct {
    const char *name;
    executor run;
} meetings[] = {
    {"shfl.sync.up.b32", shuffled<shuffle::UP>},
    {"shfl.sync.down.b32", shuffled<shuffle::DOWN>},
    {"shfl.sync.bfly.b32", shuffled<shuffle::XOR>},
    {"shfl.sync.idx.b32", shuffled<shuffle::INDEX>},
    {"vote.sync.all.pred", voted_all},
    {"vote.sync.any.pred", voted_any},
    {"vote.sync.ballot.b32", ballot},
    {"redux.sync.add.u32", reduced<uint32_t, r_add>},
    {"redux.sync.add.s32", reduced<uint32_t, r_add>},
    {"redux.sync.min.u32", reduced<uint32_t, r_min>},
    {"redux.sync.max.u32", reduced<uint32_t, r_max>},
    {"redux.sync.min.s32", reduced<int32_t, r_min>},
    {"redux.sync.max.s32", reduced<int32_t, r_max>},
    {"redux.sync.and.b32", reduced<uint32_t, r_and>},
    {"redux.sync.or.b32", reduced<uint32_t, r_or>},
    {"redux.sync.xor.b32", reduced<uint32_t, r_xor>},
    {"match.any.sync.b32", matched_any},
    {"bar.warp.sync", nothing},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiplied},
};

} // namespace

executor meeting_of(const char *operation) {
    for (const auto &m : meetings)
        if (strcmp(m.name, operation) == 0) return m.run;
    return nullptr;
}

} // namespace ptx
