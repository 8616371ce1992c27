/* SPDX-License-Identifier: MIT */
/* Trains a small GPT on generated text, in plain C. Feature maps and their gradients lie in one allocation, each entry
 * with a part for each block; gradients are added up (+=) in memory that is zeroed before each step. README.md says how
 * embedded.c does the same inside a budget.
 *
 *     plain [STEPS]
 *     embedded [STEPS [POLICY [BUDGET_BYTES]]] */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCKS = 6,
    BATCH = 4,
    TOKENS = 32, /* of a row of the batch */
    CHANNELS = 48,
    HEADS = 4,
    WORDS = 40, /* of the vocabulary */
    HEAD = CHANNELS / HEADS,
    N = BATCH * TOKENS, /* positions */
    NC = N * CHANNELS,
};

static void check(int failed, const char *message) {
    if (!failed) return;
    fprintf(stderr, "%s\n", message);
    exit(1);
}

/* ---- parameters: one allocation each for values, gradients, and the optimizer's two moments */

#define PARAMETERS(X)                                                                                                  \
    X(words, WORDS *CHANNELS)                                                                                          \
    X(positions, TOKENS *CHANNELS)                                                                                     \
    X(ln1_w, BLOCKS *CHANNELS)                                                                                         \
    X(ln1_b, BLOCKS *CHANNELS)                                                                                         \
    X(qkv_w, BLOCKS * 3 * CHANNELS * CHANNELS)                                                                         \
    X(qkv_b, BLOCKS * 3 * CHANNELS)                                                                                    \
    X(proj_w, BLOCKS *CHANNELS *CHANNELS)                                                                              \
    X(proj_b, BLOCKS *CHANNELS)                                                                                        \
    X(ln2_w, BLOCKS *CHANNELS)                                                                                         \
    X(ln2_b, BLOCKS *CHANNELS)                                                                                         \
    X(up_w, BLOCKS * 4 * CHANNELS * CHANNELS)                                                                          \
    X(up_b, BLOCKS * 4 * CHANNELS)                                                                                     \
    X(down_w, BLOCKS * 4 * CHANNELS * CHANNELS)                                                                        \
    X(down_b, BLOCKS *CHANNELS)                                                                                        \
    X(lnf_w, CHANNELS)                                                                                                 \
    X(lnf_b, CHANNELS)

#define ELEMS(name, elems)   (elems),
#define FIELD(name, elems)   float *name;
#define SUM(name, elems)     +(size_t)(elems)
#define D_FIELD(name, elems) float *d_##name;

typedef struct parameters {
    PARAMETERS(FIELD)
} parameters;
static const size_t parameter_elems[] = {PARAMETERS(ELEMS)};
enum { PARAMETER_ENTRIES = sizeof parameter_elems / sizeof *parameter_elems };
static const size_t parameters_all = 0 PARAMETERS(SUM);

static parameters w, g;          /* values and gradients */
static float *moment1, *moment2; /* AdamW's */

/* ---- maps: the residual stream has a part before each block, and one behind the last */

#define MAPS(X)                                                                                                        \
    X(stream, (BLOCKS + 1) * NC)                                                                                       \
    X(ln1, BLOCKS *NC)                                                                                                 \
    X(mean1, BLOCKS *N)                                                                                                \
    X(rstd1, BLOCKS *N)                                                                                                \
    X(qkv, BLOCKS * 3 * NC)                                                                                            \
    X(att, BLOCKS *BATCH *HEADS *TOKENS *TOKENS)                                                                       \
    X(mix, BLOCKS *NC)                                                                                                 \
    X(mid, BLOCKS *NC)                                                                                                 \
    X(ln2, BLOCKS *NC)                                                                                                 \
    X(mean2, BLOCKS *N)                                                                                                \
    X(rstd2, BLOCKS *N)                                                                                                \
    X(up, BLOCKS * 4 * NC)                                                                                             \
    X(gelu, BLOCKS * 4 * NC)                                                                                           \
    X(lnf, NC)                                                                                                         \
    X(meanf, N)                                                                                                        \
    X(rstdf, N)                                                                                                        \
    X(probs, N *WORDS)
#define BYTES(name, elems) (elems) * sizeof(float),

/* Every map has a gradient, d_NAME; those of means and deviations stay zero. */
static struct {
    MAPS(FIELD)
    MAPS(D_FIELD)
} at;
static const size_t map_bytes[] = {MAPS(BYTES) MAPS(BYTES)};
enum { ENTRIES = sizeof map_bytes / sizeof *map_bytes };

static float *x, *y, *dx, *dy; /* the stream before and behind the layer that is computed, and its gradients */
static int tokens[BATCH * (TOKENS + 1)];
static float loss;

/* ---- kernels. Rows of matrices are positions; weights are output by input. */

static void norm(float *out, float *mean, float *rstd, const float *in, const float *weight, const float *bias) {
    for (int i = 0; i < N; i++, in += CHANNELS, out += CHANNELS) {
        float m = 0, v = 0;
        for (int c = 0; c < CHANNELS; c++) m += in[c];
        m /= CHANNELS;
        for (int c = 0; c < CHANNELS; c++) v += (in[c] - m) * (in[c] - m);
        const float s = 1 / sqrtf(v / CHANNELS + 1e-5F);
        for (int c = 0; c < CHANNELS; c++) out[c] = (in[c] - m) * s * weight[c] + bias[c];
        mean[i] = m;
        rstd[i] = s;
    }
}

static void norm_back(float *din, float *dweight, float *dbias, const float *dout, const float *in, const float *mean,
                      const float *rstd, const float *weight) {
    for (int i = 0; i < N; i++, in += CHANNELS, din += CHANNELS, dout += CHANNELS) {
        float sum = 0, dot = 0;
        for (int c = 0; c < CHANNELS; c++) {
            const float d = dout[c] * weight[c], n = (in[c] - mean[i]) * rstd[i];
            sum += d;
            dot += d * n;
        }
        for (int c = 0; c < CHANNELS; c++) {
            const float n = (in[c] - mean[i]) * rstd[i];
            dbias[c] += dout[c];
            dweight[c] += dout[c] * n;
            din[c] += (dout[c] * weight[c] - sum / CHANNELS - n * dot / CHANNELS) * rstd[i];
        }
    }
}

static void linear(float *out, const float *in, const float *weight, const float *bias, int ins, int outs) {
    for (int i = 0; i < N; i++)
        for (int o = 0; o < outs; o++) {
            float sum = bias ? bias[o] : 0;
            for (int c = 0; c < ins; c++) sum += in[i * ins + c] * weight[o * ins + c];
            out[i * outs + o] = sum;
        }
}

static void linear_back(float *din, float *dweight, float *dbias, const float *dout, const float *in,
                        const float *weight, int ins, int outs) {
    for (int i = 0; i < N; i++)
        for (int o = 0; o < outs; o++) {
            const float d = dout[i * outs + o];
            if (dbias) dbias[o] += d;
            for (int c = 0; c < ins; c++) {
                din[i * ins + c] += d * weight[o * ins + c];
                dweight[o * ins + c] += d * in[i * ins + c];
            }
        }
}

/* Queries, keys and values of all heads lie beside each other, in the 3 * CHANNELS columns of qkv. */
static void attend(float *mix, float *att, const float *qkv) {
    const float scale = 1 / sqrtf(HEAD);
    memset(mix, 0, NC * sizeof *mix);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int t = 0; t < TOKENS; t++, att += TOKENS) {
                const float *q = qkv + (b * TOKENS + t) * 3 * CHANNELS + h * HEAD;
                float *out = mix + (b * TOKENS + t) * CHANNELS + h * HEAD, most = -1e30F, sum = 0;
                for (int s = 0; s <= t; s++) {
                    const float *k = qkv + (b * TOKENS + s) * 3 * CHANNELS + CHANNELS + h * HEAD;
                    float dot = 0;
                    for (int c = 0; c < HEAD; c++) dot += q[c] * k[c];
                    att[s] = dot * scale;
                    if (att[s] > most) most = att[s];
                }
                for (int s = 0; s <= t; s++) sum += att[s] = expf(att[s] - most);
                for (int s = 0; s < TOKENS; s++) att[s] = s <= t ? att[s] / sum : 0;
                for (int s = 0; s <= t; s++) {
                    const float *v = qkv + (b * TOKENS + s) * 3 * CHANNELS + 2 * CHANNELS + h * HEAD;
                    for (int c = 0; c < HEAD; c++) out[c] += att[s] * v[c];
                }
            }
}

static void attend_back(float *dqkv, float *datt, const float *dmix, const float *qkv, const float *att) {
    const float scale = 1 / sqrtf(HEAD);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int t = 0; t < TOKENS; t++, att += TOKENS, datt += TOKENS) {
                const int row = (b * TOKENS + t) * 3 * CHANNELS + h * HEAD;
                const float *dout = dmix + (b * TOKENS + t) * CHANNELS + h * HEAD;
                float dot = 0;
                for (int s = 0; s <= t; s++) {
                    const int value = (b * TOKENS + s) * 3 * CHANNELS + 2 * CHANNELS + h * HEAD;
                    for (int c = 0; c < HEAD; c++) {
                        datt[s] += dout[c] * qkv[value + c];
                        dqkv[value + c] += dout[c] * att[s];
                    }
                    dot += datt[s] * att[s];
                }
                for (int s = 0; s <= t; s++) {
                    const int key = (b * TOKENS + s) * 3 * CHANNELS + CHANNELS + h * HEAD;
                    const float d = att[s] * (datt[s] - dot) * scale;
                    for (int c = 0; c < HEAD; c++) {
                        dqkv[row + c] += d * qkv[key + c];
                        dqkv[key + c] += d * qkv[row + c];
                    }
                }
            }
}

/* x * sigmoid(1.702 x), an approximation of GELU. */
static void gelu(float *out, const float *in, int n) {
    for (int i = 0; i < n; i++) out[i] = in[i] / (1 + expf(-1.702F * in[i]));
}

static void gelu_back(float *din, const float *dout, const float *in, int n) {
    for (int i = 0; i < n; i++) {
        const float s = 1 / (1 + expf(-1.702F * in[i]));
        din[i] += dout[i] * (s + 1.702F * in[i] * s * (1 - s));
    }
}

static void add(float *out, const float *a, const float *b) {
    for (int i = 0; i < NC; i++) out[i] = a[i] + b[i];
}

static void add_back(float *da, const float *dout) {
    for (int i = 0; i < NC; i++) da[i] += dout[i];
}

/* ---- layers: -1 embeds the tokens, 0 to BLOCKS - 1 are the blocks, BLOCKS predicts the next tokens */

static void embed(void) {
    for (int i = 0; i < N; i++)
        for (int c = 0; c < CHANNELS; c++)
            y[i * CHANNELS + c] = w.words[tokens[i / TOKENS * (TOKENS + 1) + i % TOKENS] * CHANNELS + c] +
                                  w.positions[i % TOKENS * CHANNELS + c];
}

static void embed_back(void) {
    for (int i = 0; i < N; i++)
        for (int c = 0; c < CHANNELS; c++) {
            g.words[tokens[i / TOKENS * (TOKENS + 1) + i % TOKENS] * CHANNELS + c] += dy[i * CHANNELS + c];
            g.positions[i % TOKENS * CHANNELS + c] += dy[i * CHANNELS + c];
        }
}

#define CC  (CHANNELS * CHANNELS)
#define ATT (BATCH * HEADS * TOKENS * TOKENS)

static void block(int l) {
    float *mid = at.mid + l * NC;
    norm(at.ln1 + l * NC, at.mean1 + l * N, at.rstd1 + l * N, x, w.ln1_w + l * CHANNELS, w.ln1_b + l * CHANNELS);
    linear(at.qkv + l * 3 * NC, at.ln1 + l * NC, w.qkv_w + l * 3 * CC, w.qkv_b + l * 3 * CHANNELS, CHANNELS,
           3 * CHANNELS);
    attend(at.mix + l * NC, at.att + l * ATT, at.qkv + l * 3 * NC);
    linear(y, at.mix + l * NC, w.proj_w + l * CC, w.proj_b + l * CHANNELS, CHANNELS, CHANNELS);
    add(mid, x, y);
    norm(at.ln2 + l * NC, at.mean2 + l * N, at.rstd2 + l * N, mid, w.ln2_w + l * CHANNELS, w.ln2_b + l * CHANNELS);
    linear(at.up + l * 4 * NC, at.ln2 + l * NC, w.up_w + l * 4 * CC, w.up_b + l * 4 * CHANNELS, CHANNELS, 4 * CHANNELS);
    gelu(at.gelu + l * 4 * NC, at.up + l * 4 * NC, 4 * NC);
    linear(y, at.gelu + l * 4 * NC, w.down_w + l * 4 * CC, w.down_b + l * CHANNELS, 4 * CHANNELS, CHANNELS);
    add(y, mid, y);
}

static void block_back(int l) {
    float *d_mid = at.d_mid + l * NC, *d_ln2 = at.d_ln2 + l * NC, *d_ln1 = at.d_ln1 + l * NC;
    float *d_up = at.d_up + l * 4 * NC, *d_gelu = at.d_gelu + l * 4 * NC, *d_qkv = at.d_qkv + l * 3 * NC;
    float *d_mix = at.d_mix + l * NC;
    add_back(d_mid, dy);
    linear_back(d_gelu, g.down_w + l * 4 * CC, g.down_b + l * CHANNELS, dy, at.gelu + l * 4 * NC, w.down_w + l * 4 * CC,
                4 * CHANNELS, CHANNELS);
    gelu_back(d_up, d_gelu, at.up + l * 4 * NC, 4 * NC);
    linear_back(d_ln2, g.up_w + l * 4 * CC, g.up_b + l * 4 * CHANNELS, d_up, at.ln2 + l * NC, w.up_w + l * 4 * CC,
                CHANNELS, 4 * CHANNELS);
    norm_back(d_mid, g.ln2_w + l * CHANNELS, g.ln2_b + l * CHANNELS, d_ln2, at.mid + l * NC, at.mean2 + l * N,
              at.rstd2 + l * N, w.ln2_w + l * CHANNELS);
    add_back(dx, d_mid);
    linear_back(d_mix, g.proj_w + l * CC, g.proj_b + l * CHANNELS, d_mid, at.mix + l * NC, w.proj_w + l * CC, CHANNELS,
                CHANNELS);
    attend_back(d_qkv, at.d_att + l * ATT, d_mix, at.qkv + l * 3 * NC, at.att + l * ATT);
    linear_back(d_ln1, g.qkv_w + l * 3 * CC, g.qkv_b + l * 3 * CHANNELS, d_qkv, at.ln1 + l * NC, w.qkv_w + l * 3 * CC,
                CHANNELS, 3 * CHANNELS);
    norm_back(dx, g.ln1_w + l * CHANNELS, g.ln1_b + l * CHANNELS, d_ln1, x, at.mean1 + l * N, at.rstd1 + l * N,
              w.ln1_w + l * CHANNELS);
}

/* Logits need no memory of their own: probabilities take their place, and so do the gradients. Words are embedded and
 * predicted by the same matrix. */
static void head(void) {
    float *p = at.probs;
    norm(at.lnf, at.meanf, at.rstdf, x, w.lnf_w, w.lnf_b);
    linear(p, at.lnf, w.words, NULL, CHANNELS, WORDS);
    loss = 0;
    for (int i = 0; i < N; i++, p += WORDS) {
        float most = -1e30F, sum = 0;
        for (int v = 0; v < WORDS; v++) most = p[v] > most ? p[v] : most;
        for (int v = 0; v < WORDS; v++) sum += p[v] = expf(p[v] - most);
        for (int v = 0; v < WORDS; v++) p[v] /= sum;
        loss -= logf(p[tokens[i / TOKENS * (TOKENS + 1) + i % TOKENS + 1]]) / N;
    }
}

static void head_back(void) {
    for (int i = 0; i < N; i++)
        for (int v = 0; v < WORDS; v++)
            at.d_probs[i * WORDS + v] +=
                (at.probs[i * WORDS + v] - (float)(v == tokens[i / TOKENS * (TOKENS + 1) + i % TOKENS + 1])) / N;
    linear_back(at.d_lnf, g.words, NULL, at.d_probs, at.lnf, w.words, CHANNELS, WORDS);
    norm_back(dx, g.lnf_w, g.lnf_b, at.d_lnf, x, at.meanf, at.rstdf, w.lnf_w);
}

static void forward(int l) {
    if (l < 0)
        embed();
    else if (l < BLOCKS)
        block(l);
    else
        head();
}

static void backward(int l) {
    if (l < 0)
        embed_back();
    else if (l < BLOCKS)
        block_back(l);
    else
        head_back();
}

static void layer(int l, bool back) {
    y = at.stream + (l + 1) * NC, x = l < 0 ? NULL : y - NC;
    dy = at.d_stream + (l + 1) * NC, dx = l < 0 ? NULL : dy - NC;
    back ? backward(l) : forward(l);
}

static void pass(void) {
    for (int l = -1; l <= BLOCKS; l++) layer(l, false);
    for (int l = BLOCKS; l >= -1; l--) layer(l, true);
}

/* ---- training */

static void update(int step) {
    const float rate = 3e-3F, keep1 = 0.9F, keep2 = 0.99F;
    const float part1 = 1 - powf(keep1, (float)step), part2 = 1 - powf(keep2, (float)step);
    float *values = w.words, *gradients = g.words;
    for (size_t i = 0; i < parameters_all; i++) {
        moment1[i] = keep1 * moment1[i] + (1 - keep1) * gradients[i];
        moment2[i] = keep2 * moment2[i] + (1 - keep2) * gradients[i] * gradients[i];
        values[i] -= rate * (moment1[i] / part1 / (sqrtf(moment2[i] / part2) + 1e-8F) + 0.01F * values[i]);
    }
}

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    return *state >> 16;
}

/* A text in which most words follow from the one before. */
static void next_batch(void) {
    static uint32_t state = 7;
    for (int b = 0; b < BATCH; b++)
        for (int t = 0, word = (int)(draw(&state) % WORDS); t <= TOKENS; t++) {
            tokens[b * (TOKENS + 1) + t] = word;
            word = draw(&state) % 8 ? (word * 7 + 3) % WORDS : (int)(draw(&state) % WORDS);
        }
}

/* Sets a table's pointers, one entry behind the other. */
static void point(void *table, const size_t *each, int entries, size_t unit, char *memory) {
    for (int e = 0; e < entries; memory += each[e++] * unit) memcpy((char **)table + e, &memory, sizeof memory);
}

static void set_up(void) {
    uint32_t state = 1;
    float *memory = calloc(4 * parameters_all, sizeof *memory);
    check(!memory, "no memory for the parameters");
    point(&w, parameter_elems, PARAMETER_ENTRIES, sizeof *memory, (char *)memory);
    point(&g, parameter_elems, PARAMETER_ENTRIES, sizeof *memory, (char *)(memory + parameters_all));
    moment1 = memory + 2 * parameters_all;
    moment2 = memory + 3 * parameters_all;
    for (size_t i = 0; i < parameters_all; i++) memory[i] = ((float)(draw(&state) % 2001) - 1000) / 12000;
    for (int i = 0; i < BLOCKS * CHANNELS; i++) w.ln1_w[i] = w.ln2_w[i] = 1;
    for (int i = 0; i < CHANNELS; i++) w.lnf_w[i] = 1;
}

static uint64_t digest(const float *values, size_t n) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        sum = (sum ^ bits) * UINT64_C(0x100000001b3);
    }
    return sum;
}

int main(int argc, char **argv) {
    const int steps = argc > 1 ? atoi(argv[1]) : 20;
    size_t maps = 0;
    for (int e = 0; e < ENTRIES; e++) maps += map_bytes[e];
    set_up();
    char *memory = malloc(maps);
    check(!memory, "no memory for the maps");
    point(&at, map_bytes, ENTRIES, 1, memory);
    for (int step = 1; step <= steps; step++) {
        next_batch();
        memset(g.words, 0, parameters_all * sizeof *g.words);
        memset(at.d_stream, 0, maps / 2);
        pass();
        update(step);
        if (step == 1 || step == steps) printf("step %d: loss %.9g\n", step, loss);
    }
    printf("maps %zu bytes, weights %016llx\n", maps, (unsigned long long)digest(w.words, parameters_all));
    free(memory);
    free(w.words);
}
