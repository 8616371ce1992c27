/* SPDX-License-Identifier: MIT */
/* A GPU's rates, from its data sheet and the table of assumptions. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/facts/gpu.h"

/* The assumption of that name for the GPU's generation; 0: there is none. */
static double assumed(const gpu *g, const char *name) {
    for (size_t i = 0; i < gpu_assumptions_n; i++)
        if (strcmp(gpu_assumptions[i].name, name) == 0) return gpu_assumptions[i].of[g->generation];
    assert(!"the table has an assumption of that name");
    return 0;
}

bool gpu_has_bf16(const gpu *g) { return g->bf16_tflops > 0; }

/* ---------------------------------------------------------------- memory */

int64_t gpu_memory_bytes(const gpu *g) {
    const double ecc = g->ecc_in_memory > 0 ? 1 - assumed(g, "memory_ecc") : 1;
    return (int64_t)(g->memory_gib * 0x1p30 * ecc * assumed(g, "memory_usable"));
}

int64_t gpu_context_bytes(const gpu *g) { return (int64_t)assumed(g, "context_bytes"); }

int64_t gpu_budget_bytes(const gpu *g) { return gpu_memory_bytes(g) - gpu_context_bytes(g); }

/* ---------------------------------------------------------------- rates */

/* Sets a key. A value NULL, or no memory for it, makes *whole false. */
static void put(json_t *object, const char *key, json_t *value, bool *whole) {
    *whole &= json_object_set_new(object, key, value) == 0;
}

static void put_number(json_t *object, const char *key, double value, bool *whole) {
    put(object, key, json_real(value), whole);
}

static void put_assumed(json_t *object, const char *key, const gpu *g, bool *whole) {
    put_number(object, key, assumed(g, key), whole);
}

/* A product's rate with these units ("fp32", "tf32" or "bf16"). */
static double rate_of(const gpu *g, const char *product, const char *units, double peak_tflops) {
    char name[32];
    snprintf(name, sizeof name, "%s_%s", product, units);
    return peak_tflops > 0 ? assumed(g, name) * peak_tflops * 1e12 : 0;
}

/* Sets the rates of products of f32 or bf16 maps. f32 maps have two units; the faster one counts, as libraries choose
 * it. */
static void put_products(json_t *object, const gpu *g, bool bf16, bool *whole) {
    static const char *const products[] = {"conv", "winograd", "linear"};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        char key[32];
        const double fp32 = rate_of(g, products[i], "fp32", g->fp32_tflops);
        const double tf32 = rate_of(g, products[i], "tf32", g->tf32_tflops);
        snprintf(key, sizeof key, "%s_flops_per_s", products[i]);
        put_number(object, key, bf16 ? rate_of(g, products[i], "bf16", g->bf16_tflops) : fmax(fp32, tf32), whole);
    }
}

/* Which maps an assumption "encode SPEC", "decode bf16 SPEC" is about. NULL: it is about no codec. */
static const char *spec_of(const gpu_assumption *a, const char *way, bool bf16) {
    static const char type[] = " bf16 ";
    const size_t length = strlen(way);
    if (strncmp(a->name, way, length) != 0) return NULL;
    const bool own = strncmp(a->name + length, type, strlen(type)) == 0;
    return own == bf16 ? a->name + length + (own ? strlen(type) : 1) : NULL;
}

/* The codecs' rates: an object with an entry for each codec. */
static json_t *codecs_of(const gpu *g, bool bf16, bool *whole) {
    static const char *const ways[] = {"encode", "decode"};
    json_t *codecs = json_object();
    for (size_t i = 0; i < 2 * gpu_assumptions_n; i++) {
        const gpu_assumption *a = &gpu_assumptions[i / 2];
        const char *way = ways[i % 2], *spec = spec_of(a, way, bf16);
        char key[32];
        if (!spec) continue;
        if (!json_object_get(codecs, spec)) put(codecs, spec, json_object(), whole);
        snprintf(key, sizeof key, "%s_bytes_per_s", way);
        put_number(json_object_get(codecs, spec), key, a->of[g->generation] * g->bandwidth_gb_per_s * 1e9, whole);
    }
    return codecs;
}

static json_t *link_of(const gpu *g) {
    const double alone = assumed(g, "link") * g->link_gb_per_s * 1e9, both = alone * assumed(g, "link_both");
    return json_pack("{sf sf sf sf}", "out_bytes_per_s", alone, "in_bytes_per_s", alone, "out_both_bytes_per_s", both,
                     "in_both_bytes_per_s", both);
}

/* How much work slows other work, by kinds (machine.h). */
static json_t *contention_of(const gpu *g) {
    const double steps = assumed(g, "steps_beside_codec"), codec = assumed(g, "codec_beside_steps");
    const double link = assumed(g, "beside_link");
    json_t *step = json_pack("{sf sf sf}", "encode", steps, "decode", steps, "link", link);
    return json_pack("{sO so s{sf sf sf sf} s{sf sf sf sf} s{si si si si}}", "dear", step, "cheap", step, "encode",
                     "dear", codec, "cheap", codec, "decode", codec, "link", link, "decode", "dear", codec, "cheap",
                     codec, "encode", codec, "link", link, "link", "dear", 0, "cheap", 0, "encode", 0, "decode", 0);
}

static json_t *bf16_of(const gpu *g, bool *whole) {
    json_t *rates = json_object();
    put_products(rates, g, true, whole);
    put_number(rates, "attention_flops_per_s", rate_of(g, "attention", "bf16", g->bf16_tflops), whole);
    put(rates, "codecs", codecs_of(g, true, whole), whole);
    return rates;
}

static void put_all(json_t *root, const gpu *g, bool *whole) {
    char name[64];
    snprintf(name, sizeof name, "%s-est.", g->name);
    put(root, "format", json_string("mm machine"), whole);
    put(root, "version", json_integer(1), whole);
    put(root, "name", json_string(name), whole);
    put(root, "memory_bytes", json_integer(gpu_memory_bytes(g)), whole);
    put_products(root, g, false, whole);
    put_number(root, "memory_bytes_per_s", assumed(g, "bandwidth") * g->bandwidth_gb_per_s * 1e9, whole);
    put_assumed(root, "launch_ns", g, whole);
    put(root, "passes", json_pack("{sf sf}", "bn", assumed(g, "passes_bn"), "lrn", assumed(g, "passes_lrn")), whole);
    put(root, "link", link_of(g), whole);
    put_assumed(root, "host_sum_bytes_per_s", g, whole);
    put_assumed(root, "contention_permille", g, whole);
    put_assumed(root, "link_contention_permille", g, whole);
    if (assumed(g, "steps_beside_codec") > 0) put(root, "contention", contention_of(g), whole);
    put_assumed(root, "issue_ns", g, whole);
    put_assumed(root, "alloc_ns", g, whole);
    put(root, "codecs", codecs_of(g, false, whole), whole);
    if (gpu_has_bf16(g))
        put(root, "types", json_pack("{so}", mm_dtype_name(MM_BF16), bf16_of(g, whole)), whole);
    else
        put(root, "lacks", json_pack("[s]", mm_dtype_name(MM_BF16)), whole);
}

mm_status gpu_machine_json(const gpu *g, json_t **root_out) {
    bool whole = true;
    json_t *root = json_object();
    put_all(root, g, &whole);
    if (!whole) {
        json_decref(root);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the rates of %s", g->name);
    }
    *root_out = root;
    return MM_OK;
}
