/* SPDX-License-Identifier: MIT */
#include "tools/need/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/text.h"

/* The index of the word; -1: it is not among them. */
static int find_word(const char *const *words, int n, const char *word) {
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0) return i;
    return -1;
}

static mm_status read_number(const char *text, int *out) {
    char *end;
    const long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > MM_RANKS_MOST)
        return mm_fail(MM_ERR_INVALID, "--ranks %s: must be a whole number from 1 to %d", MM_BRIEF(text),
                       MM_RANKS_MOST);
    *out = (int)n;
    return MM_OK;
}

mm_status ranks_read_divide(const char *divide, const char *sum, nets_divide *divide_out) {
    static const char *const words[NETS_DIVIDES] = {"none", "states", "gradients"};
    const int found = divide ? find_word(words, NETS_DIVIDES, divide) : NETS_DIVIDE_NONE;
    if (found < 0) return mm_fail(MM_ERR_INVALID, "--divide %s: must be none, states or gradients", MM_BRIEF(divide));
    *divide_out = (nets_divide)found;
    if (found < NETS_DIVIDE_GRADIENTS || !sum || strcmp(sum, "end") != 0) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--sum end: gradients that are divided are added up during the backward pass; leave "
                                   "it out, or give --divide states");
}

mm_status ranks_read(const char *list, const char *sum, const char *sum_at, const char *divide, ranks *ranks_out) {
    static const char *const sums[] = {"overlap", "end"}, *const places[MM_SUM_PLACES] = {"ranks", "root", "device",
                                                                                          "nccl"};
    const int when = sum ? find_word(sums, 2, sum) : 0, at = sum_at ? find_word(places, MM_SUM_PLACES, sum_at) : 0;
    arg_texts texts;
    *ranks_out = (ranks){.n = {1}, .count = 1};
    if (when < 0) return mm_fail(MM_ERR_INVALID, "--sum %s: must be overlap or end", MM_BRIEF(sum));
    if (at < 0) return mm_fail(MM_ERR_INVALID, "--sum-at %s: must be ranks, root, device or nccl", MM_BRIEF(sum_at));
    if (!list && (sum || sum_at || divide))
        return mm_fail(MM_ERR_INVALID, "--%s: needs --ranks", sum ? "sum" : sum_at ? "sum-at" : "divide");
    MM_TRY(ranks_read_divide(divide, sum, &ranks_out->divide));
    ranks_out->sum_at = (mm_sum_at)at;
    ranks_out->when = when == 0 ? MM_ALLREDUCE_AT_ONCE : MM_ALLREDUCE_AT_END;
    if (ranks_out->sum_at == MM_SUM_IN_PLACE)
        ranks_out->when = when == 0 ? MM_ALLREDUCE_IN_PLACE_AT_ONCE : MM_ALLREDUCE_IN_PLACE_AT_END;
    if (!list) return MM_OK;
    MM_TRY(args_split("--ranks", list, &texts));
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < texts.n; i++) status = read_number(texts.text[i], &ranks_out->n[i]);
    ranks_out->count = texts.n;
    args_texts_fini(&texts);
    return status;
}

mm_status ranks_part(int64_t batch, int n, int64_t *part_out) {
    const int64_t below = batch - batch % n;
    *part_out = batch / n;
    if (batch == below) return MM_OK;
    if (below == 0)
        return mm_fail(MM_ERR_INVALID, "--batch %lld: is not a multiple of %d ranks; the smallest is %d",
                       (long long)batch, n, n);
    return mm_fail(MM_ERR_INVALID, "--batch %lld: is not a multiple of %d ranks; the nearest are %lld and %lld",
                   (long long)batch, n, (long long)below, (long long)(below + n));
}

void ranks_use(const ranks *ranks, int n, target *target, facts_source *source) {
    target->allreduce = (nets_allreduce){.n = n, .when = ranks->when, .divide = ranks->divide};
    target->allreduce.whole_gradients = source && source->gpu; /* the operations that plan may be the host's */
    if (source) {
        source->ranks = n;
        source->sum_at = ranks->sum_at;
    }
}
