/* SPDX-License-Identifier: MIT */
/* mask on the host device: codec_impl.h has its format. */
#include "pipeline/codec/codec_impl.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "mm/device/host/device_host.h"

typedef struct mask_job {
    const void *src;
    uint8_t *dst;
    uint16_t infinity; /* mm_mask_infinity */
    mm_host_pool *pool;
    int64_t rows, row_elems, split; /* split: mm_codec_split of the codec */
} mask_job;

static uint32_t mask_word(const float *src, int64_t elems) {
    uint32_t word = 0;
    for (int64_t i = 0; i < elems; i++) word |= (uint32_t)(src[i] > 0) << i;
    return word;
}

#if defined(__SSE2__)
static uint32_t mask_half(const float *src) {
    const __m128 zero = _mm_setzero_ps();
    __m128i quads[4];
    for (int i = 0; i < 4; i++) quads[i] = _mm_castps_si128(_mm_cmpgt_ps(_mm_loadu_ps(src + 4 * i), zero));
    const __m128i low = _mm_packs_epi32(quads[0], quads[1]), high = _mm_packs_epi32(quads[2], quads[3]);
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high));
}

static uint32_t mask_full_word(const float *src) { return mask_half(src) | mask_half(src + 16) << 16; }
#else
static uint32_t mask_full_word(const float *src) { return mask_word(src, MM_MASK_WORD_BITS); }
#endif

static void store_le32(uint8_t *dst, uint32_t word) {
    for (int i = 0; i < 4; i++) dst[i] = (uint8_t)(word >> 8 * i);
}

static uint32_t mask_word_of_halves(const uint16_t *src, int64_t elems, uint16_t infinity) {
    uint32_t word = 0;
    for (int64_t i = 0; i < elems; i++) word |= (uint32_t)((uint16_t)(src[i] - 1) < infinity) << i;
    return word;
}

/* Encodes rows `from` to `to` - 1. Each begins at a word of the mask; only the tensor's last row may end within a
 * word. */
static void mask_rows(const void *arg, int64_t from, int64_t to) {
    const mask_job *job = arg;
    uint8_t *dst = job->dst + from * job->row_elems / MM_MASK_WORD_BITS * 4;
    const int64_t elems = (to - from) * job->row_elems;
    const int64_t words = elems / MM_MASK_WORD_BITS, rest = elems % MM_MASK_WORD_BITS;
    if (job->infinity) {
        const uint16_t *src = (const uint16_t *)job->src + from * job->row_elems;
        for (int64_t at = 0; at < elems; at += MM_MASK_WORD_BITS, dst += 4)
            store_le32(dst, mask_word_of_halves(src + at, elems - at < 32 ? elems - at : 32, job->infinity));
        return;
    }
    const float *src = (const float *)job->src + from * job->row_elems;
    for (int64_t w = 0; w < words; w++) store_le32(dst + 4 * w, mask_full_word(src + MM_MASK_WORD_BITS * w));
    if (rest) store_le32(dst + 4 * words, mask_word(src + MM_MASK_WORD_BITS * words, rest));
}

static mm_status mask_run(void *arg) {
    const mask_job *job = arg;
    mm_codec_run_rows(job->pool, job->rows, job->split, mask_rows, job);
    return MM_OK;
}

static mm_status mask_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs, (void)counters;
    int64_t elems;
    MM_TRY(mm_float_elems(codec->spec, shape, &elems));
    mask_job job = {.src = src,
                    .dst = dst,
                    .infinity = mm_mask_infinity(shape->dtype),
                    .rows = shape->dims[0],
                    .row_elems = elems / shape->dims[0],
                    .split = mm_mask_split(codec, shape)};
    if (stream->device->ops == &mm_device_host_ops) job.pool = mm_host_codec_pool(stream);
    return mm_host_launch(stream, mask_run, &job, sizeof job);
}

static void mask_encode_strips(const mm_strips *strips, const float *elems, int64_t first, int64_t n, void *code_out,
                               void *counters) {
    (void)counters;
    const mask_job job = {.src = elems,
                          .dst = (uint8_t *)code_out + first * strips->strip_bytes,
                          .row_elems = mm_strips_elems(strips, first, n)};
    mask_rows(&job, 0, 1);
}

static bool mask_strips(mm_codec_strips *s) {
    s->strips = mm_mask_strips(s->strips.elems);
    s->strips.encode = mask_encode_strips;
    return true;
}

const mm_codec_ops mm_codec_mask_host_ops = {
    .name = "mask",
    .summary = MM_MASK_SUMMARY,
    .device = "host",
    .flags = {.lossless = true, .fixed_size = true, .gives_sign = true},
    .create = mm_codec_new_plain,
    .destroy = mm_codec_free,
    .bound = mm_mask_bound,
    .scratch = mm_codec_no_scratch,
    .split = mm_mask_split,
    .encode = mask_encode,
    .strips = mask_strips,
};
