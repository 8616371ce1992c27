/* SPDX-License-Identifier: MIT */
/* What the steps of random graphs compute, and what planners are told about them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "mm/core/graph/code_strips.h"
#include "mm/core/plan/plan.h"
#include "mm/core/status.h"
#include "tests/core/random_graph.h"

static uint64_t mix(uint64_t digest, uint64_t word) {
    digest = (digest ^ word) * UINT64_C(0x9fb21c651e98df25);
    return digest ^ (digest >> 29);
}

uint64_t random_graph_digest(uint64_t digest, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        digest = mix(digest, word);
    }
    uint64_t rest = 0;
    memcpy(&rest, p, bytes);
    return mix(digest, rest);
}

/* Whether element i, which is finite, is > 0. */
static bool is_positive(mm_dtype dtype, const unsigned char *data, size_t i) {
    if (dtype != MM_F32) return data[2 * i + 1] < 0x80 && (data[2 * i] | data[2 * i + 1]) != 0;
    float value;
    memcpy(&value, data + 4 * i, 4);
    return value > 0;
}

/* A digest of the elements' signs, the same for the elements and for their mask. */
static uint64_t digest_signs(uint64_t digest, const random_operand *operand, mm_dtype dtype, size_t n) {
    const unsigned char *p = operand->data;
    for (size_t i = 0; i < n; i += 32) {
        uint32_t bits = 0;
        size_t in_word = n - i < 32 ? n - i : 32;
        if (operand->form == MM_FORM_SIGN) {
            memcpy(&bits, p + i / 8, 4);
            if (in_word < 32) bits &= (UINT32_C(1) << in_word) - 1;
        } else {
            for (size_t j = 0; j < in_word; j++) bits |= (uint32_t)is_positive(dtype, p, i + j) << j;
        }
        digest = mix(digest, bits);
    }
    return digest;
}

/* Writes element i, finite, made of a hash. rectified: as of a ReLU, without negatives and with many zeros. */
static void put_element(const mm_tensor_info *tensor, bool rectified, size_t i, uint64_t hash, void *data) {
    if (tensor->dtype == MM_U8) {
        ((unsigned char *)data)[i] = (unsigned char)(hash >> 32);
        return;
    }
    float value = 1 + (float)(hash >> 48) / 65536;
    if (hash & 1) value = rectified ? 0 : -value;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (tensor->dtype == MM_I32) bits = (uint32_t)(hash >> 33);
    /* Of 1 <= |value| < 2, or 0: the exponent of binary16 is biased by 15. */
    uint16_t half = (uint16_t)(bits >> 16);
    if (tensor->dtype == MM_F16)
        half = (uint16_t)(value == 0 ? 0 : ((bits >> 16) & 0x8000) | (15 << 10) | ((bits >> 13) & 0x3ff));
    const size_t width = mm_dtype_bytes(tensor->dtype);
    memcpy((char *)data + width * i, width == 2 ? (void *)&half : (void *)&bits, width);
}

static void put_elements(const mm_tensor_info *tensor, bool rectified, bool over_old, uint64_t digest, void *data) {
    size_t width = mm_dtype_bytes(tensor->dtype), n = (size_t)tensor->bytes / width;
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = mix(digest, i);
        if (over_old) hash = random_graph_digest(hash, (char *)data + i * width, width);
        put_element(tensor, rectified, i, mix(hash, 1), data);
    }
}

static int find_use(const mm_step_info *step, mm_tensor tensor) {
    int u = 0;
    while (step->uses[u].tensor != tensor) u++;
    return u;
}

/* The use of the step's input that the output equals by an alias that the graph allows; -1: none. */
static int equal_input(const mm_step_info *step, mm_tensor output) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].alias && step->pairs[p].output == output) return find_use(step, step->pairs[p].input);
    return -1;
}

static uint64_t digest_inputs(const mm_graph *graph, const mm_step_info *step, uint64_t digest,
                              const random_operand *operands) {
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, step->uses[u].tensor);
        bool state = step->uses[u].access == MM_MODIFY && tensor->ownership != MM_MANAGED;
        if (step->uses[u].access == MM_WRITE || (state && step->phase == MM_FORWARD)) continue;
        if (step->uses[u].form == MM_FORM_SIGN)
            digest = digest_signs(digest, &operands[u], tensor->dtype,
                                  (size_t)tensor->bytes / mm_dtype_bytes(tensor->dtype));
        else
            digest = random_graph_digest(digest, operands[u].data, (size_t)tensor->bytes);
    }
    return digest;
}

static int64_t count_strips(const mm_strips *s) {
    return (s->elems + s->period_elems - 1) / s->period_elems * mm_strips_in_period(s);
}

/* The operands with elements in place of codes. The caller frees those of copies_out. */
static void decode_operands(const mm_graph *graph, const mm_step_info *step, const random_operand *operands,
                            random_operand *out, void **copies_out) {
    for (int u = 0; u < step->n_uses; u++) {
        const mm_coded *code = &operands[u].read;
        out[u] = operands[u];
        copies_out[u] = NULL;
        if (!code->strips) continue;
        copies_out[u] = malloc((size_t)mm_graph_tensor(graph, step->uses[u].tensor)->bytes);
        if (!copies_out[u]) abort();
        code->strips->decode(code->strips, code->code, 0, count_strips(code->strips), copies_out[u]);
        out[u].data = copies_out[u];
        out[u].form = MM_FORM_VALUE;
    }
}

static void encode_operands(const mm_step_info *step, const random_operand *operands) {
    for (int u = 0; u < step->n_uses; u++) {
        const mm_coded *code = &operands[u].write;
        if (code->strips)
            code->strips->encode(code->strips, operands[u].data, 0, count_strips(code->strips), code->code,
                                 code->counters);
    }
}

void random_graph_run_step(const mm_graph *graph, int s, const random_operand *given, void *workspace,
                           size_t workspace_bytes) {
    const mm_step_info *step = mm_graph_step(graph, s);
    random_operand operands[RANDOM_USES];
    void *copies[RANDOM_USES];
    decode_operands(graph, step, given, operands, copies);
    uint64_t digest = digest_inputs(graph, step, (uint64_t)s + 1, operands);
    if (workspace_bytes > 0) {
        for (size_t i = 0; i < workspace_bytes; i++)
            ((unsigned char *)workspace)[i] = (unsigned char)(digest >> (i % 57));
        digest = random_graph_digest(digest, workspace, workspace_bytes);
    }
    for (int u = 0; u < step->n_uses; u++) {
        int input = step->uses[u].access == MM_WRITE ? equal_input(step, step->uses[u].tensor) : -1;
        if (input >= 0 && operands[u].data != operands[input].data)
            memcpy(operands[u].data, operands[input].data, (size_t)mm_graph_tensor(graph, step->uses[u].tensor)->bytes);
    }
    bool rectified = mm_graph_layer(graph, step->layer)->kind == MM_LAYER_RELU && step->phase == MM_FORWARD;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (use->access == MM_READ || (use->access == MM_WRITE && equal_input(step, use->tensor) >= 0)) continue;
        put_elements(mm_graph_tensor(graph, use->tensor), rectified, use->access == MM_MODIFY, mix(digest, (uint64_t)u),
                     operands[u].data);
    }
    encode_operands(step, operands);
    for (int u = 0; u < step->n_uses; u++) free(copies[u]);
}

mm_status random_graph_run_task(void *arg) {
    const random_task *task = arg;
    if (task->ns > 0) nanosleep(&(struct timespec){.tv_nsec = (long)task->ns}, NULL);
    const size_t workspace_bytes = (size_t)mm_graph_step(task->graph, task->step)->workspace_bytes;
    random_graph_run_step(task->graph, task->step, task->operands, task->workspace, workspace_bytes);
    return MM_OK;
}

void random_graph_fill(const mm_graph *graph, mm_tensor tensor, uint64_t seed, void *data) {
    put_elements(mm_graph_tensor(graph, tensor), false, false, mix(seed, (uint64_t)tensor), data);
}

/* ---------------------------------------------------------------- plain */

void plain_init(plain *p, const mm_graph *graph, uint64_t seed) {
    int n = mm_graph_tensors(graph);
    size_t workspace = 1;
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if ((size_t)mm_graph_step(graph, s)->workspace_bytes > workspace)
            workspace = (size_t)mm_graph_step(graph, s)->workspace_bytes;
    *p = (plain){.graph = graph, .memory = calloc((size_t)n + 1, sizeof *p->memory)};
    assert_non_null(p->memory);
    for (int t = 0; t <= n; t++) {
        p->memory[t] = malloc(t < n ? (size_t)mm_graph_tensor(graph, t)->bytes : workspace);
        assert_non_null(p->memory[t]);
        if (t < n) random_graph_fill(graph, t, seed, p->memory[t]);
    }
}

void plain_fini(plain *p) {
    for (int t = 0; t <= mm_graph_tensors(p->graph); t++) free(p->memory[t]);
    free(p->memory);
}

void plain_steps(plain *p, int first, int count) {
    for (int s = first; s < first + count; s++) {
        const mm_step_info *step = mm_graph_step(p->graph, s);
        random_operand operands[RANDOM_USES] = {0};
        assert_true(step->n_uses <= RANDOM_USES);
        for (int u = 0; u < step->n_uses; u++)
            operands[u] = (random_operand){.data = p->memory[step->uses[u].tensor], .form = MM_FORM_VALUE};
        random_graph_run_step(p->graph, s, operands, p->memory[mm_graph_tensors(p->graph)],
                              (size_t)step->workspace_bytes);
    }
}

uint64_t plain_digest(const plain *p) {
    uint64_t digest = 0;
    for (int t = 0; t < mm_graph_tensors(p->graph); t++)
        if (mm_graph_tensor(p->graph, t)->ownership == MM_PERSISTENT)
            digest = random_graph_digest(digest, p->memory[t], (size_t)mm_graph_tensor(p->graph, t)->bytes);
    return digest;
}

uint64_t random_graph_reference(const mm_graph *graph, uint64_t seed, int iterations) {
    plain p;
    plain_init(&p, graph, seed);
    for (int i = 0; i < iterations; i++) plain_steps(&p, 0, mm_graph_steps(graph));
    const uint64_t digest = plain_digest(&p);
    plain_fini(&p);
    return digest;
}

/* ---------------------------------------------------------------- facts */

static const mm_codec_facts codecs[RANDOM_CODECS] = {
    [RANDOM_LOSSLESS] = {.spec = "test-lossless", .lossless = true, .fixed_size = true, .gives_value = true},
    [RANDOM_LOSSY] = {.spec = "test-lossy:rate=8", .fixed_size = true, .gives_value = true},
    [RANDOM_MASK] = {.spec = "test-mask", .lossless = true, .fixed_size = true, .gives_sign = true},
    [RANDOM_VARIABLE] = {.spec = "test-variable", .lossless = true, .gives_value = true},
};

/* Rows after which a code may be cut: codes have the size of their elements, so both are aligned there. 0: nowhere. */
static int64_t split_rows(const mm_tensor_info *tensor) {
    int64_t rows = 1, row_bytes = tensor->bytes / tensor->dims[0];
    while (rows * row_bytes % MM_ALIGN != 0) rows++;
    return rows < tensor->dims[0] ? rows : 0;
}

static mm_code_facts code_of(const mm_tensor_info *tensor, int codec, uint64_t *random) {
    mm_code_facts code = {.code_bytes = tensor->bytes,
                          .scratch_bytes = random_chance(random, 30) ? 1 + random_below(random, 2000) : 0,
                          .encode_ns = 1 + random_below(random, 2000),
                          .decode_ns = 1 + random_below(random, 2000)};
    if (codec != RANDOM_MASK && codec != RANDOM_VARIABLE) code.split_rows = split_rows(tensor);
    code.split_bytes = tensor->bytes / tensor->dims[0] * code.split_rows;
    if (tensor->dtype != MM_F32) code.code_bytes = codec == RANDOM_LOSSLESS ? tensor->bytes : -1;
    /* Most tensors have codes that steps can read and write themselves. */
    if (codec != RANDOM_VARIABLE && tensor->bytes / 4 % 5 != 0) code.strip_elems = 8;
    if (codec == RANDOM_MASK && tensor->dtype == MM_F32) code.code_bytes = (tensor->bytes / 4 + 31) / 32 * 4;
    if (codec != RANDOM_VARIABLE || tensor->dtype != MM_F32) return code;
    code.code_bytes = (tensor->bytes + MM_CHUNK_BYTES - 1) / MM_CHUNK_BYTES * 8;
    code.body_bound_bytes = tensor->bytes;
    code.body_reserve_bytes = 1 + random_below(random, (int)tensor->bytes);
    code.body_typical_bytes = random_below(random, (int)tensor->bytes);
    return code;
}

mm_status random_facts_create(const mm_graph *graph, uint64_t seed, mm_graph_facts **facts_out) {
    mm_graph_facts *facts;
    MM_TRY(mm_graph_facts_create(graph, RANDOM_CODECS, &facts));
    mm_variant *variants = realloc(facts->variants, 3 * (size_t)facts->n_steps * sizeof *variants);
    if (!variants) {
        mm_graph_facts_destroy(facts);
        return mm_fail(MM_ERR_NOMEM, "out of memory for facts");
    }
    facts->variants = variants;
    uint64_t random = seed;
    for (int s = 0, n = 0; s < facts->n_steps; s++) {
        const int64_t more_bytes = mm_graph_step(graph, s)->on_host ? 0 : 100;
        facts->variant_first[s] = n;
        for (int v = 0, more = random_below(&random, 3); v <= more; v++)
            variants[n++] = (mm_variant){.id = v,
                                         .deterministic = random_chance(&random, 80),
                                         .workspace_bytes = mm_graph_step(graph, s)->workspace_bytes + more_bytes * v,
                                         .ns = 1 + random_below(&random, 10000)};
        facts->variant_first[s + 1] = n;
    }
    for (int c = 0; c < RANDOM_CODECS; c++) {
        facts->codecs[c] = codecs[c];
        for (int t = 0; t < facts->n_tensors; t++)
            facts->codes[c * facts->n_tensors + t] = code_of(mm_graph_tensor(graph, t), c, &random);
    }
    facts->contention_permille = random_below(&random, 300);
    facts->contention.known = random_chance(&random, 50);
    for (mm_work of = 0; of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++)
            facts->contention.permille[of][beside] = random_chance(&random, 70) ? random_below(&random, 1500) : 0;
    *facts_out = facts;
    return MM_OK;
}
