/* SPDX-License-Identifier: MIT */
/* A GPU's rates, from its data sheet and the table of assumptions. */
#include <assert.h>
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

static void set_number(json_t *object, const char *key, double value) {
    json_object_set_new(object, key, json_real(value));
}

static void set_assumed(json_t *object, const char *key, const gpu *g) { set_number(object, key, assumed(g, key)); }

/* Sets the rates of products, shares of a peak. units: "fp32", "tf32" or "bf16". */
static void set_products(json_t *object, const gpu *g, const char *units, double peak_tflops) {
    static const char *const products[] = {"conv", "winograd", "linear"};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        char name[32], key[32];
        snprintf(name, sizeof name, "%s_%s", products[i], units);
        snprintf(key, sizeof key, "%s_flops_per_s", products[i]);
        set_number(object, key, assumed(g, name) * peak_tflops * 1e12);
    }
}

/* The codecs' rates for maps of a type: an object with an entry for each codec. prefix: what follows "encode" and
 * "decode" in the names of the assumptions, before the codec. */
static json_t *codecs_of(const gpu *g, const char *prefix, const char *other_prefix) {
    static const char *const ways[] = {"encode", "decode"};
    json_t *codecs = json_object();
    for (size_t i = 0; i < gpu_assumptions_n; i++)
        for (int way = 0; way < 2; way++) {
            const gpu_assumption *a = &gpu_assumptions[i];
            const size_t word = strlen(ways[way]), length = strlen(prefix);
            if (strncmp(a->name, ways[way], word) != 0 || strncmp(a->name + word, prefix, length) != 0) continue;
            if (other_prefix && strncmp(a->name + word, other_prefix, strlen(other_prefix)) == 0) continue;
            const char *spec = a->name + word + length;
            json_t *codec = json_object_get(codecs, spec);
            if (!codec) {
                codec = json_object();
                json_object_set_new(codecs, spec, codec);
            }
            char key[32];
            snprintf(key, sizeof key, "%s_bytes_per_s", ways[way]);
            set_number(codec, key, a->of[g->generation] * g->bandwidth_gb_per_s * 1e9);
        }
    return codecs;
}

static json_t *link_of(const gpu *g) {
    const double alone = assumed(g, "link") * g->link_gb_per_s * 1e9, both = alone * assumed(g, "link_both");
    return json_pack("{sf sf sf sf}", "out_bytes_per_s", alone, "in_bytes_per_s", alone, "out_both_bytes_per_s", both,
                     "in_both_bytes_per_s", both);
}

/* How much work slows other work, by kinds; NULL: this generation has no table. */
static json_t *contention_of(const gpu *g) {
    const double steps = assumed(g, "steps_beside_codec"), codec = assumed(g, "codec_beside_steps");
    const double link = assumed(g, "beside_link");
    if (steps == 0) return NULL;
    return json_pack("{s{sf sf sf} s{sf sf sf} s{sf sf sf sf} s{sf sf sf sf} s{si si si si}}", /* */
                     "dear", "encode", steps, "decode", steps, "link", link,                   /* */
                     "cheap", "encode", steps, "decode", steps, "link", link,                  /* */
                     "encode", "dear", codec, "cheap", codec, "decode", codec, "link", link,   /* */
                     "decode", "dear", codec, "cheap", codec, "encode", codec, "link", link,   /* */
                     "link", "dear", 0, "cheap", 0, "encode", 0, "decode", 0);
}

static json_t *bf16_of(const gpu *g) {
    json_t *rates = json_object();
    set_products(rates, g, "bf16", g->bf16_tflops);
    set_number(rates, "attention_flops_per_s", assumed(g, "attention_bf16") * g->bf16_tflops * 1e12);
    json_object_set_new(rates, "codecs", codecs_of(g, " bf16 ", NULL));
    return rates;
}

mm_status gpu_machine_json(const gpu *g, json_t **root_out) {
    char name[64];
    snprintf(name, sizeof name, "%s-est.", g->name);
    json_t *root = json_pack("{ss si ss sI}", "format", "mm machine", "version", 1, "name", name, "memory_bytes",
                             (json_int_t)gpu_memory_bytes(g));
    if (!root) return mm_fail(MM_ERR_NOMEM, "out of memory for the rates of %s", g->name);
    if (g->tf32_tflops > 0)
        set_products(root, g, "tf32", g->tf32_tflops);
    else
        set_products(root, g, "fp32", g->fp32_tflops);
    set_number(root, "memory_bytes_per_s", assumed(g, "bandwidth") * g->bandwidth_gb_per_s * 1e9);
    set_assumed(root, "launch_ns", g);
    json_object_set_new(root, "passes",
                        json_pack("{sf sf}", "bn", assumed(g, "passes_bn"), "lrn", assumed(g, "passes_lrn")));
    json_object_set_new(root, "link", link_of(g));
    set_assumed(root, "host_sum_bytes_per_s", g);
    set_assumed(root, "contention_permille", g);
    set_assumed(root, "link_contention_permille", g);
    json_t *contention = contention_of(g);
    if (contention) json_object_set_new(root, "contention", contention);
    set_assumed(root, "issue_ns", g);
    set_assumed(root, "alloc_ns", g);
    json_object_set_new(root, "codecs", codecs_of(g, " ", " bf16 "));
    if (gpu_has_bf16(g))
        json_object_set_new(root, "types", json_pack("{so}", "bf16", bf16_of(g)));
    else
        json_object_set_new(root, "lacks", json_pack("[s]", mm_dtype_name(MM_BF16)));
    *root_out = root;
    return MM_OK;
}
