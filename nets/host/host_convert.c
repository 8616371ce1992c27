/* SPDX-License-Identifier: MIT */
/* Converts elements from bf16 to f32, or back. */
#include "mm/device/host/device_host.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"

typedef struct conversion {
    mm_host_pool *pool;
    nets_range_fn fn;
    const void *from;
    void *to;
    int64_t elems;
} conversion;

static void widen(const void *ctx, int64_t from, int64_t to) {
    const conversion *c = ctx;
    nets_simd_map_best(MM_BF16)->widen((const uint16_t *)c->from + from, to - from, (float *)c->to + from);
}

static void narrow(const void *ctx, int64_t from, int64_t to) {
    const conversion *c = ctx;
    nets_simd_map_best(MM_BF16)->narrow((const float *)c->from + from, to - from, (uint16_t *)c->to + from);
}

static mm_status run(void *arg) {
    const conversion *c = arg;
    nets_ranges(c->pool, c->elems, 64, 1, c->fn, c);
    return MM_OK;
}

mm_status nets_host_convert(nets_backend *backend, mm_dtype from_type, const void *from, mm_dtype to_type, void *to,
                            int64_t elems, mm_stream *stream) {
    const bool widens = from_type == MM_BF16 && to_type == MM_F32;
    if (!widens && !(from_type == MM_F32 && to_type == MM_BF16))
        return mm_fail(MM_ERR_UNSUPPORTED, "there is no conversion to %s from %s", mm_dtype_name(to_type),
                       mm_dtype_name(from_type));
    const conversion c = {nets_host_pool(backend), widens ? widen : narrow, from, to, elems};
    return mm_host_launch(stream, run, &c, sizeof c);
}
