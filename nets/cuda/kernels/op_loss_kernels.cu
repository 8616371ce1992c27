// SPDX-License-Identifier: MIT
/* Softmax cross-entropy: a warp takes a label's scores. Losses are summed in double: by warps over their rows, then
 * over a block's warps, then, in a second launch, over the blocks, always in the same order. */
#include "nets/cuda/kernels/vector.h"

enum { WARP = 32, WARPS = THREADS / WARP, LOSS_BLOCKS = 1024, NO_LABEL = 0x7fffffff };

struct part {
    double loss;
    int32_t correct, bad; /* bad: the first label that is no class, else NO_LABEL */
};

static int64_t loss_blocks(int64_t labels) { return lesser(ceil_div(labels, WARPS), LOSS_BLOCKS); }

int64_t nets_cuda_loss_bytes(int64_t labels) { return loss_blocks(labels) * (int64_t)sizeof(part); }

static __device__ inline void join(part *a, const part &b) {
    a->loss += b.loss;
    a->correct += b.correct;
    a->bad = min(a->bad, b.bad);
}

template <typename T> static __device__ inline float score_at(const T *row, int k) { return loaded<1>(row + k).at[0]; }

/* Returns the index of the first of the highest scores, in all lanes. */
template <typename T> static __device__ inline int highest(const T *row, int n, float *score_out) {
    int best = (int)threadIdx.x < n ? (int)threadIdx.x : 0;
    float score = score_at(row, best);
    for (int k = best + WARP; k < n; k += WARP)
        if (score_at(row, k) > score) {
            score = score_at(row, k);
            best = k;
        }
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, score, apart);
        const int place = __shfl_xor_sync(0xffffffffu, best, apart);
        if (other > score || (other == score && place < best)) {
            score = other;
            best = place;
        }
    }
    *score_out = score;
    return best;
}

/* Returns minus the logarithm of the label's probability, and writes the probabilities unless NULL. They may replace
 * scores of f32: every lane has read its own and the label's before any writes. */
template <typename T>
static __device__ inline double softmax(const T *row, int n, int label, float top, float *probabilities) {
    const float at_label = label < 0 ? nanf("") : score_at(row, label) - top;
    double total = 0;
    for (int k = (int)threadIdx.x; k < n; k += WARP) total += (double)expf(score_at(row, k) - top);
    for (int apart = WARP / 2; apart > 0; apart /= 2) total += __shfl_xor_sync(0xffffffffu, total, apart);
    __syncwarp();
    if (probabilities)
        for (int k = (int)threadIdx.x; k < n; k += WARP)
            probabilities[k] = (float)((double)expf(score_at(row, k) - top) / total);
    return log(total) - (double)at_label;
}

template <typename T>
static __global__ void loss_rows(const T *scores, const int32_t *labels, int64_t n_labels, int classes,
                                 float *probabilities, part *parts) {
    __shared__ part all[WARPS];
    part mine = {0, 0, NO_LABEL};
    for (int64_t row = my_row(); row < n_labels; row += row_step()) {
        const T *own = scores + row * classes;
        const int label = labels[row] >= 0 && labels[row] < classes ? labels[row] : -1;
        float top;
        const int best = highest(own, classes, &top);
        const double loss = softmax(own, classes, label, top, probabilities ? probabilities + row * classes : NULL);
        const part this_row = {loss, best == label, label < 0 ? (int32_t)row : NO_LABEL};
        join(&mine, this_row);
    }
    if (threadIdx.x == 0) all[threadIdx.y] = mine;
    __syncthreads();
    if (threadIdx.x || threadIdx.y) return;
    for (int warp = 1; warp < WARPS; warp++) join(&mine, all[warp]);
    parts[blockIdx.x] = mine;
}

/* Returns the new NETS_CORRECT. Once it reports a label that is no class, it does not change any more. */
static __device__ inline int32_t count_correct(const nets_cuda_labels &labels, const part &all, int32_t earlier) {
    if (earlier < 0) return earlier;
    if (all.bad == NO_LABEL) return earlier + all.correct;
    const int64_t first = labels.rng ? (int64_t)labels.rng[NETS_RNG_IMAGE] * labels.image : 0;
    return (int32_t)(-1 - (first + labels.first + all.bad));
}

static __global__ void loss_total(nets_cuda_labels labels, const part *parts, int n, float *loss, int32_t *correct) {
    __shared__ part all[THREADS];
    part mine = {0, 0, NO_LABEL};
    for (int i = (int)threadIdx.x; i < n; i += THREADS) join(&mine, parts[i]);
    all[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) join(&all[threadIdx.x], all[threadIdx.x + half]);
    }
    if (threadIdx.x) return;
    if (loss) *loss = (float)(all[0].loss / (double)labels.whole) + (labels.adds ? *loss : 0);
    if (correct) *correct = count_correct(labels, all[0], labels.adds ? *correct : 0);
}

template <typename T, int V> struct scored {
    int label;
    vec<V> p;
    held<T, V> earlier;
};

template <typename T, int V>
static __global__ void loss_backward(nets_cuda_labels labels, const float *probabilities, const T *earlier, T *dx) {
    const int c = my_channel<V>(), classes = labels.classes;
    if (c >= classes) return;
    write_rows<V, AT_ONCE>(
        rows_of_all(labels.n), classes, dx + c,
        [&](int row) {
            const int64_t at = (int64_t)row * classes + c;
            scored<T, V> i;
            i.label = labels.of[row];
            load(probabilities + at, &i.p);
            if (earlier) load(earlier + at, &i.earlier);
            return i;
        },
        [&](const scored<T, V> &i, int) {
            const bool is_class = i.label >= 0 && i.label < classes;
            vec<V> v;
            for (int k = 0; k < V; k++)
                v.at[k] = is_class ? (i.p.at[k] - (c + k == i.label ? 1.0f : 0.0f)) / (float)labels.whole : 0;
            return earlier ? sum_of(v, i.earlier.floats()) : v;
        });
}

template <typename T>
static void launch_rows(const nets_cuda_labels &labels, const void *scores, part *parts, float *probabilities,
                        cudaStream_t stream) {
    MM_LAUNCH(loss_rows<T>, (unsigned)loss_blocks(labels.n), dim3(WARP, WARPS), 0, stream,
              static_cast<const T *>(scores), labels.of, labels.n, labels.classes, probabilities, parts);
}

void nets_cuda_loss(mm_dtype maps, nets_cuda_labels labels, const void *scores, void *scratch, float *probabilities,
                    float *loss, int32_t *correct, cudaStream_t stream) {
    part *parts = static_cast<part *>(scratch);
    NETS_BY_STORAGE(maps, launch_rows, labels, scores, parts, probabilities, stream);
    MM_LAUNCH(loss_total, 1, THREADS, 0, stream, labels, parts, (int)loss_blocks(labels.n), loss, correct);
}

template <typename T>
static void launch_backward(const nets_cuda_labels &labels, const float *probabilities, const void *earlier, void *dx,
                            cudaStream_t stream) {
    LAUNCH_MAP(loss_backward, T, labels.n, labels.classes, AT_ONCE, labels, probabilities,
               static_cast<const T *>(earlier), static_cast<T *>(dx));
}

void nets_cuda_loss_backward(mm_dtype maps, nets_cuda_labels labels, const float *probabilities, const void *earlier,
                             void *dx, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_backward, labels, probabilities, earlier, dx, stream);
}

/* ---------------------------------------------------------------- rows of many scores */

/* Threads of a block; a block takes a row. Two such blocks on each multiprocessor have 53 MB of GPT-2's scores, so that
 * the second pass over a row mostly finds it in the level-2 cache. */
enum { ROW_THREADS = 512, ROW_BLOCKS = 2, SCORES_AT_ONCE = 4 };

/* The highest score and its first place, joined by a block's threads in a tree. */
struct peak {
    float score;
    int place;
};

static __device__ inline void join(peak *a, const peak &b) {
    if (b.score > a->score || (b.score == a->score && b.place < a->place)) *a = b;
}

static __device__ inline void join(double *a, const double &b) { *a += b; }

template <typename Part> static __device__ inline Part joined(Part mine, Part *all) {
    __syncthreads(); /* what was joined before has been read */
    all[threadIdx.x] = mine;
    for (int half = ROW_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) join(&all[threadIdx.x], all[threadIdx.x + half]);
    }
    __syncthreads();
    return all[0];
}

typedef vec<SCORES_AT_ONCE> some_scores;

/* Scores k to k + 3 of a row of n scores; minus infinity past the row's end. */
static __device__ inline some_scores scores_from(const float *row, int k, int n) {
    if (k + SCORES_AT_ONCE <= n) return loaded<SCORES_AT_ONCE>(row + k);
    some_scores s;
    for (int j = 0; j < SCORES_AT_ONCE; j++) s.at[j] = k + j < n ? row[k + j] : -INFINITY;
    return s;
}

/* e^(score - top). 0 for a score of minus infinity, even where all scores are; a NaN stays NaN. */
static __device__ inline float weight_of(float score, float top) { return score == -INFINITY ? 0 : expf(score - top); }

/* The sum of the row's weights, and its peak, in one pass: a thread's sum is rescaled when its peak rises. */
static __device__ inline double sum_of_row(const float *row, int n, peak *peaks, double *sums, peak *top_out) {
    peak mine = {-INFINITY, NO_LABEL};
    double total = 0;
    for (int k = (int)threadIdx.x * SCORES_AT_ONCE; k < n; k += ROW_THREADS * SCORES_AT_ONCE) {
        const some_scores s = scores_from(row, k, n);
        peak here = {s.at[0], k};
#pragma unroll
        for (int j = 1; j < SCORES_AT_ONCE; j++) join(&here, {s.at[j], k + j});
        if (here.score > mine.score) {
            total *= weight_of(mine.score, here.score);
            mine = here;
        }
        float sum = 0;
#pragma unroll
        for (int j = 0; j < SCORES_AT_ONCE; j++) sum += weight_of(s.at[j], mine.score);
        total += sum;
    }
    *top_out = joined(mine, peaks);
    if (mine.score > -INFINITY) total *= weight_of(mine.score, top_out->score);
    return joined(total, sums);
}

/* Writes the row's gradients, as T, which may lie over its scores. In each turn all threads read their scores before
 * any thread writes; a gradient is no longer than a score, so it lies over a score that was read in this turn or
 * before. */
template <typename T>
static __device__ inline void give_gradients(const float *row, int n, int label, float top, float by, float share,
                                             T *gradients) {
    for (int first = 0; first < n; first += ROW_THREADS * SCORES_AT_ONCE) {
        const int k = first + (int)threadIdx.x * SCORES_AT_ONCE;
        some_scores s = scores_from(row, k, n);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < SCORES_AT_ONCE; j++)
            s.at[j] = label < 0 ? 0 : (weight_of(s.at[j], top) * by - (k + j == label ? 1.0f : 0.0f)) * share;
        if (k < n) store(gradients + k, s);
    }
}

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS, ROW_BLOCKS)
    token_loss_rows(nets_cuda_labels labels, const float *scores, int64_t pitch, T *gradients, int64_t gradients_pitch,
                    part *parts) {
    __shared__ peak peaks[ROW_THREADS];
    __shared__ double sums[ROW_THREADS];
    const int n = labels.classes, given = labels.of[blockIdx.x], label = given >= 0 && given < n ? given : -1;
    const float *row = scores + (int64_t)blockIdx.x * pitch;
    const float of_label = label < 0 ? nanf("") : row[label];
    peak top;
    const double total = sum_of_row(row, n, peaks, sums, &top);
    if (gradients)
        give_gradients(row, n, label, top.score, (float)(1 / total), 1.0f / (float)labels.whole,
                       gradients + (int64_t)blockIdx.x * gradients_pitch);
    if (threadIdx.x) return;
    const part all = {log(total) - (double)(of_label - top.score), top.place == label,
                      label < 0 ? (int32_t)blockIdx.x : NO_LABEL};
    parts[blockIdx.x] = all;
}

int64_t nets_cuda_token_loss_bytes(int64_t labels) { return labels * (int64_t)sizeof(part); }

template <typename T>
static void launch_token_rows(const nets_cuda_labels &labels, const float *scores, int64_t pitch,
                              const nets_cuda_score_gradients &gradients, part *parts, cudaStream_t stream) {
    MM_LAUNCH(token_loss_rows<T>, (unsigned)labels.n, ROW_THREADS, 0, stream, labels, scores, pitch,
              static_cast<T *>(gradients.at), gradients.pitch, parts);
}

void nets_cuda_token_loss(mm_dtype maps, nets_cuda_labels labels, float *scores, int64_t pitch,
                          nets_cuda_score_gradients gradients, void *scratch, float *loss, int32_t *correct,
                          cudaStream_t stream) {
    part *parts = static_cast<part *>(scratch);
    NETS_BY_STORAGE(maps, launch_token_rows, labels, scores, pitch, gradients, parts, stream);
    MM_LAUNCH(loss_total, 1, THREADS, 0, stream, labels, parts, (int)labels.n, loss, correct);
}
