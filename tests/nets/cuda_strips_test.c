/* SPDX-License-Identifier: MIT */
/* The order of CUDA's sums (strips.h), on the emulation: kernels give the bits of plain loops in that order, however
 * the map is cut into tiles. Tiles are ZFP's blocks. Kernels that encode or decode tiles give what codecs give. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/device/cuda/device_cuda.h"
#include "nets/cuda/kernels/cuda_kernels.h"
#include "pipeline/codec/codec.h"
#include "pipeline/codec/zfp/zfp_layout.h"
#include "tests/nets/cuda_rig.h"

static const int64_t SHAPES[][4] = {
    {1, 1, 1, 1},   {2, 3, 5, 3},    {70, 1, 1, 8},  {3, 7, 7, 36},   {2, 14, 14, 64},
    {9, 5, 10, 20}, {8, 24, 28, 16}, {1, 13, 40, 4}, {2, 9, 16, 130}, {5, 31, 13, 5},
};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0], MOST_CHAINS = 32, MOST_BLOCKS = 256 };

static nets_strips strips_of(const int64_t x[4]) { return nets_strips_of(x[0], x[1], x[2], x[3]); }

/* ---------------------------------------------------------------- the cut */

static void tiles_are_the_blocks_of_zfp(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        const int64_t *x = SHAPES[i];
        const nets_strips s = strips_of(x);
        const mm_shape shape = {.dtype = MM_F32, .rank = 4, .dims = {x[0], x[1], x[2], x[3]}};
        mm_zfp_layout layout;
        int64_t rows = 0;
        assert_int_equal(mm_zfp_layout_make(&shape, 2, false, 64, &layout), MM_OK);
        assert_int_equal(s.columns, layout.columns);
        assert_int_equal(s.lines, layout.rows);
        assert_int_equal(s.tiles_across, layout.blocks_x);
        assert_int_equal((int64_t)s.tiles * s.channels, layout.blocks);
        for (int tile = 0; tile < s.tiles; tile++) {
            const nets_tile at = nets_tile_at(&s, tile);
            assert_int_equal(nets_strips_rows_before(&s, tile), rows);
            rows += (int64_t)at.width * at.height;
        }
        assert_int_equal(rows, s.rows);
        assert_int_equal(nets_strips_rows(&s, 0, s.blocks), s.rows);
    }
}

static void divisions_by_products_are_those_of_integers(void **state) {
    (void)state;
    for (unsigned by = 1; by < 1u << 31; by += 1 + by / 3) {
        const unsigned most = (1u << 31) - 1, multiple = most / by * by;
        const unsigned values[] = {0, by - 1, by, 3u * 1000 * 1000, most / 2, multiple - 1, multiple, most};
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
            assert_int_equal(nets_divided(nets_divisor_of((int)by), values[i]), values[i] / by);
    }
}

/* ResNet-50's maps at batch 128 make two to five waves, or fewer if each thread has one tile. A wave is what 132
 * multiprocessors of 1024 threads run at once. */
static void maps_of_a_large_network_are_cut_into_several_waves_of_short_blocks(void **state) {
    static const int64_t MAPS[][4] = {
        {128, 112, 112, 64}, {128, 56, 56, 64},  {128, 56, 56, 256},
        {128, 28, 28, 512},  {128, 14, 14, 256}, {128, 7, 7, 2048},
    };
    (void)state;
    for (size_t i = 0; i < sizeof MAPS / sizeof MAPS[0]; i++) {
        const nets_strips s = strips_of(MAPS[i]);
        const double waves = (double)s.blocks * s.chains * s.channels / 4 / (132 * 1024);
        if (!((waves > 2 || s.each == 1) && waves < 5)) fail_msg("map %zu: %.2f waves", i, waves);
        assert_true(s.each <= 6);
    }
}

/* ---------------------------------------------------------------- the order, in plain loops */

/* The partial sum of a chain, block or group (strips.h): of n pixels. q: their mean and sum of squared deviations, or
 * two plain sums. */
typedef struct part {
    double n, q[2];
} part;

typedef struct order {
    nets_strips strips;
    bool moments;
    const float *x, *dy; /* dy: the two sums are of dy and of dy * (x - mean); NULL for moments */
    float mean;
} order;

static void take(const order *o, int64_t at, part *p) {
    float a = (float)p->q[0], b = (float)p->q[1];
    p->n += 1;
    if (o->moments) {
        nets_moments_take(o->x[at], 1 / (float)p->n, &a, &b);
    } else {
        a += o->dy[at];
        b = fmaf(o->dy[at], o->x[at] - o->mean, b);
    }
    p->q[0] = a;
    p->q[1] = b;
}

static void take_tile(const order *o, int tile, int channel, part *p) {
    const nets_tile at = nets_tile_at(&o->strips, tile);
    for (int y = 0; y < at.height; y++)
        for (int x = 0; x < at.width; x++)
            take(o, (int64_t)(at.row + y * o->strips.columns + x) * o->strips.channels + channel, p);
}

static void join_chain(const order *o, part *a, const part *b) {
    float q[2] = {(float)a->q[0], (float)a->q[1]};
    if (b->n == 0) return;
    if (o->moments) {
        nets_moments_join(&q[0], &q[1], (float)a->n, (float)b->q[0], (float)b->q[1],
                          (float)b->n / (float)(a->n + b->n));
    } else {
        q[0] += (float)b->q[0];
        q[1] += (float)b->q[1];
    }
    *a = (part){a->n + b->n, {q[0], q[1]}};
}

static part sum_block(const order *o, int block, int channel) {
    const nets_strips *s = &o->strips;
    part chains[MOST_CHAINS] = {{0, {0, 0}}};
    for (int tile = block * s->each * s->chains; tile < (block + 1) * s->each * s->chains && tile < s->tiles; tile++)
        take_tile(o, tile, channel, &chains[tile % s->chains]);
    for (int half = s->chains / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) join_chain(o, &chains[i], &chains[i + half]);
    return chains[0];
}

static part join_parts(const order *o, const part *parts, int n) {
    part chains[MOST_CHAINS] = {{0, {0, 0}}};
    for (int i = 0; i < n; i++) {
        part *c = &chains[i % o->strips.chains];
        c->n += parts[i].n;
        if (o->moments)
            nets_parts_take(parts[i].q[0], parts[i].q[1], parts[0].q[0], parts[i].n, &c->q[0], &c->q[1]);
        else
            *c = (part){c->n, {c->q[0] + parts[i].q[0], c->q[1] + parts[i].q[1]}};
    }
    for (int half = o->strips.chains / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            chains[i] = (part){chains[i].n + chains[i + half].n,
                               {chains[i].q[0] + chains[i + half].q[0], chains[i].q[1] + chains[i + half].q[1]}};
    if (o->moments) nets_parts_close(parts[0].q[0], chains[0].n, &chains[0].q[0], &chains[0].q[1]);
    return chains[0];
}

static part sum_map(const order *o, int channel) {
    const nets_strips *s = &o->strips;
    part groups[MOST_BLOCKS], blocks[MOST_BLOCKS];
    assert_true(s->blocks <= MOST_BLOCKS);
    for (int b = 0; b < s->blocks; b++) blocks[b] = sum_block(o, b, channel);
    for (int g = 0; g < s->groups; g++) {
        const int rest = s->blocks - g * s->together;
        groups[g] = join_parts(o, blocks + (ptrdiff_t)g * s->together, rest < s->together ? rest : s->together);
    }
    return join_parts(o, groups, s->groups);
}

/* ---------------------------------------------------------------- kernels */

static void check_statistics(const op_rig *rig, const order *o) {
    for (int c = 0; c < o->strips.channels; c++) {
        const part all = sum_map(o, c);
        const float mean = (float)all.q[0], var = (float)(all.q[1] / all.n);
        assert_memory_equal(&op_rig_floats(rig, NETS_SAVED_MEAN)[c], &mean, sizeof mean);
        assert_memory_equal(&op_rig_floats(rig, NETS_SAVED_VAR)[c], &var, sizeof var);
    }
}

static void check_gradients(const op_rig *rig, const order *o, float eps) {
    for (int c = 0; c < o->strips.channels; c++) {
        order of_channel = *o;
        of_channel.mean = op_rig_floats(rig, NETS_SAVED_MEAN)[c];
        const part all = sum_map(&of_channel, c);
        const double inverse = 1 / sqrt((double)op_rig_floats(rig, NETS_SAVED_VAR)[c] + eps);
        const float dshift = (float)all.q[0], dscale = (float)(all.q[1] * inverse);
        assert_memory_equal(&op_rig_floats(rig, NETS_DB)[c], &dshift, sizeof dshift);
        assert_memory_equal(&op_rig_floats(rig, NETS_DW)[c], &dscale, sizeof dscale);
    }
}

/* Arguments of the backward for a map x; the others are the rig's tensors. */
static nets_cuda_batch_norm_gradients gradients_of(const op_rig *rig, const float *x) {
    float *const *at = (float *const *)rig->args.at;
    return (nets_cuda_batch_norm_gradients){.x = x,
                                            .mean = at[NETS_SAVED_MEAN],
                                            .var = at[NETS_SAVED_VAR],
                                            .scale = at[NETS_W],
                                            .shift = at[NETS_B],
                                            .dy = at[NETS_DY],
                                            .dx = at[NETS_DX],
                                            .dscale = at[NETS_DW],
                                            .dshift = at[NETS_DB]};
}

/* Checks the kernels' sums against the plain loops, with `each` tiles a thread. Runs twice, because kernels must reset
 * the counters. */
static void check_order(const int64_t x[4], int each) {
    op_rig rig;
    op_rig_init(&rig, NETS_BATCH_NORM, NULL, x, true, true);
    nets_cuda_batch_norm bn = {.over.strips = strips_of(x), .eps = 1e-5f};
    nets_strips *s = &bn.over.strips;
    nets_strips_divide(s, each);
    bn.over.counters = op_rig_alloc(&rig, nets_strips_counters(s) * (int64_t)sizeof(unsigned));
    float *sums = op_rig_alloc(&rig, s->channels * (int64_t)sizeof *sums);
    void *scratch = op_rig_alloc(&rig, nets_cuda_batch_norm_backward_bytes(bn));
    float *const *at = (float *const *)rig.args.at;
    const nets_cuda_batch_norm_gradients to = gradients_of(&rig, at[NETS_X]);
    for (uint32_t turn = 0; turn < 2; turn++) {
        cudaStream_t stream = mm_cuda_stream(rig.stream);
        op_rig_fill(&rig, NETS_X, 7 + turn);
        op_rig_fill(&rig, NETS_DY, 9 + turn);
        nets_cuda_batch_norm_statistics(MM_F32, bn, to.x, scratch, at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR], NULL, NULL,
                                        stream);
        nets_cuda_batch_norm_backward(MM_F32, bn, to, scratch, stream);
        nets_cuda_sum_rows(MM_F32, to.dy, &bn.over, scratch, sums, stream);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        assert_memory_equal(sums, to.dshift, (size_t)s->channels * sizeof *sums);
        check_statistics(&rig, &(order){.strips = *s, .moments = true, .x = to.x});
        check_gradients(&rig, &(order){.strips = *s, .x = to.x, .dy = to.dy}, bn.eps);
        for (int64_t i = 0; i < nets_strips_counters(s); i++) assert_int_equal(bn.over.counters[i], 0);
    }
    op_rig_fini(&rig);
}

/* ---------------------------------------------------------------- kernels that code */

/* The code of a map that kernels write and read in registers (code); and, to compare with, the codec's code of the same
 * map (expected), and that code decoded (decoded). */
typedef struct coded_map {
    mm_codec *codec;
    mm_shape shape;
    void *code, *expected;
    float *decoded;
} coded_map;

static coded_map code_of(op_rig *rig, const int64_t x[4]) {
    coded_map m = {.shape = {.dtype = MM_F32, .rank = 4, .dims = {x[0], x[1], x[2], x[3]}}};
    int64_t bytes;
    assert_int_equal(mm_codec_create("zfp:rate=8", "cuda", &m.codec), MM_OK);
    assert_int_equal(mm_codec_bound(m.codec, &m.shape, &bytes), MM_OK);
    m.code = op_rig_alloc(rig, bytes);
    m.expected = op_rig_alloc(rig, bytes);
    m.decoded = op_rig_alloc(rig, rig->bytes[NETS_X]);
    assert_int_equal(
        mm_codec_encode(m.codec, rig->stream, &m.shape, rig->args.at[NETS_X], m.expected, NULL, NULL, NULL), MM_OK);
    assert_int_equal(mm_codec_decode(m.codec, rig->stream, &m.shape, m.expected, m.decoded, NULL, NULL, NULL), MM_OK);
    assert_int_equal(mm_stream_sync(rig->stream), MM_OK);
    return m;
}

/* Checks kernels that encode or decode, with `each` tiles a thread: they write what the plain kernels and the codec
 * write, and their sums are those of plain loops over the decoded map. */
static void check_coded(const int64_t x[4], int each) {
    op_rig rig;
    op_rig_init_fused(&rig, NETS_BATCH_NORM, NULL, x, 1, true, true);
    nets_cuda_batch_norm bn = {.over.strips = strips_of(x), .eps = 1e-5f, .relu = true};
    nets_strips *s = &bn.over.strips;
    nets_strips_divide(s, each);
    bn.over.counters = op_rig_alloc(&rig, nets_strips_counters(s) * (int64_t)sizeof(unsigned));
    void *scratch = op_rig_alloc(&rig, nets_cuda_batch_norm_backward_bytes(bn));
    float *const *at = (float *const *)rig.args.at;
    const int64_t elems = op_rig_elems(&rig, NETS_X);
    const size_t bytes = (size_t)rig.bytes[NETS_X];
    float *y = op_rig_alloc(&rig, rig.bytes[NETS_Y]), *dx = op_rig_alloc(&rig, rig.bytes[NETS_DX]);
    uint32_t *mask = op_rig_alloc(&rig, (elems / 32 + 1) * (int64_t)sizeof *mask);
    cudaStream_t stream = mm_cuda_stream(rig.stream);
    coded_map m = code_of(&rig, x);
    const nets_cuda_code code = {.blocks = MM_BLOCKS_ZFP_8, .code = m.code};

    nets_cuda_batch_norm_statistics(MM_F32, bn, at[NETS_X], scratch, at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR], NULL,
                                    NULL, stream);
    nets_cuda_batch_norm_apply(MM_F32, bn, at[NETS_X], NULL, at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR], at[NETS_W],
                               at[NETS_B], at[NETS_Y], stream);
    nets_cuda_batch_norm_apply_and_encode(bn, at[NETS_X], NULL, at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR], at[NETS_W],
                                          at[NETS_B], y, code, mask, stream);
    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    int64_t code_bytes;
    assert_int_equal(mm_codec_bound(m.codec, &m.shape, &code_bytes), MM_OK);
    assert_memory_equal(y, at[NETS_Y], bytes);
    assert_memory_equal(m.code, m.expected, (size_t)code_bytes);
    const uint32_t *signs = op_rig_mask(&rig, y, elems);
    assert_memory_equal(mask, signs, (size_t)(elems + 31) / 32 * sizeof *mask);

    nets_cuda_batch_norm_gradients to = gradients_of(&rig, m.decoded);
    nets_cuda_batch_norm_backward(MM_F32, bn, to, scratch, stream);
    to.x = NULL;
    to.x_code = code;
    to.dx = dx;
    nets_cuda_batch_norm_backward_of_code(bn, to, scratch, stream);
    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    assert_memory_equal(dx, at[NETS_DX], bytes);
    check_gradients(&rig, &(order){.strips = *s, .x = m.decoded, .dy = to.dy}, bn.eps);
    for (int64_t i = 0; i < nets_strips_counters(s); i++) assert_int_equal(bn.over.counters[i], 0);
    mm_codec_destroy(m.codec);
    op_rig_fini(&rig);
}

static void codes_are_those_of_codecs_however_tiles_are_divided(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int each = 2; each < 6; each += 3) check_coded(SHAPES[i], each);
}

static void sums_are_those_of_plain_loops_in_the_same_order(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int each = 1; each < 6; each += 2) check_order(SHAPES[i], each);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, cuda_rig_setup, cuda_rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(tiles_are_the_blocks_of_zfp),
        CASE(divisions_by_products_are_those_of_integers),
        CASE(maps_of_a_large_network_are_cut_into_several_waves_of_short_blocks),
        CASE(sums_are_those_of_plain_loops_in_the_same_order),
        CASE(codes_are_those_of_codecs_however_tiles_are_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
