/* SPDX-License-Identifier: MIT */
#include "tools/train/weights.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"
#include "pipeline/codec/block/half_value.h"

/* What wrappers put before names: DataParallel, torch.compile, Lightning, Llama and GPT-2 with their heads, peft. At
 * most DEPTH of them are nested. */
static const char *const WORDS[] = {"", "module.", "_orig_mod.", "model.", "transformer.", "base_model."};
enum { N_WORDS = sizeof WORDS / sizeof *WORDS, DEPTH = 3, CANDIDATES = N_WORDS * N_WORDS * N_WORDS };
enum { NAME_CAPACITY = NETS_PARAM_NAME_CAPACITY + WEIGHTS_PREFIX_CAPACITY };
_Static_assert(WEIGHTS_PREFIX_CAPACITY > DEPTH * sizeof "transformer.", "holds DEPTH of the longest word");

/* Finds a parameter under its name with the prefix, or with fewer of the prefix's words: a head lies outside of the
 * model that it was put on ("model.norm.weight" beside "lm_head.weight"). */
static const nets_safetensors_tensor *find_named(const nets_safetensors_file *file, const char *prefix,
                                                 const nets_param *param) {
    char name[NAME_CAPACITY];
    for (size_t length = strlen(prefix);; length--) {
        if (length > 0 && prefix[length - 1] != '.') continue;
        snprintf(name, sizeof name, "%.*s%s", (int)length, prefix, param->name);
        const nets_safetensors_tensor *found = nets_safetensors_find(file, name);
        if (found || length == 0) return found;
    }
}

/* Number of the network's parameters that the file has under names with the prefix. */
static int count_named(const nets_safetensors_file *file, const nets_net *net, const char *prefix) {
    int found = 0;
    for (int i = 0; i < nets_net_params(net); i++) found += find_named(file, prefix, nets_net_param(net, i)) != NULL;
    return found;
}

weights_prefix weights_find_prefix(const nets_safetensors_file *file, const nets_net *net) {
    weights_prefix best = {""};
    int most = 0;
    for (int c = 0; c < CANDIDATES && most < nets_net_params(net); c++) {
        weights_prefix next;
        snprintf(next.text, sizeof next.text, "%s%s%s", WORDS[c / N_WORDS / N_WORDS], WORDS[c / N_WORDS % N_WORDS],
                 WORDS[c % N_WORDS]);
        const int found = count_named(file, net, next.text);
        if (found <= most) continue;
        most = found;
        best = next;
    }
    return best;
}

/* Whether elements of this type are widened, or rounded, to floats. */
static bool is_read(nets_safetensors_dtype dtype) {
    return dtype == NETS_SAFETENSORS_F32 || dtype == NETS_SAFETENSORS_F16 || dtype == NETS_SAFETENSORS_BF16 ||
           dtype == NETS_SAFETENSORS_F64;
}

static bool matches(const nets_safetensors_tensor *tensor, const nets_param *param) {
    return is_read(tensor->dtype) && tensor->rank == param->rank &&
           memcmp(tensor->dims, param->dims, (size_t)param->rank * sizeof *param->dims) == 0;
}

const nets_safetensors_tensor *weights_find(const nets_safetensors_file *file, const weights_prefix *prefix,
                                            const nets_param *param) {
    const nets_safetensors_tensor *tensor = find_named(file, prefix->text, param);
    return tensor && matches(tensor, param) ? tensor : NULL;
}

/* Fails, and says how the parameter's tensor differs. */
static mm_status refuse(const nets_safetensors_file *file, const weights_prefix *prefix, const nets_param *param) {
    char name[NAME_CAPACITY];
    const void *data;
    snprintf(name, sizeof name, "%s%s", prefix->text, param->name);
    const nets_safetensors_tensor *there = nets_safetensors_find(file, name);
    nets_safetensors_tensor want = {.name = name, .rank = param->rank};
    want.dtype = there && is_read(there->dtype) ? there->dtype : NETS_SAFETENSORS_F32;
    memcpy(want.dims, param->dims, sizeof param->dims);
    return nets_safetensors_get(file, &want, &data);
}

static bool state_has(const nets_param *param) { return !param->frozen; }
static bool base_has(const nets_param *param) { return param->frozen; }
static bool any_has(const nets_param *param) { return param != NULL; }

/* Lists as text the parameters that the file does not have though it must (`must`): the first ones by name, from the
 * `skipped`-th on, and the number of the others. Returns how many there are in all; *first_out: the first one. */
static int list_others(const nets_safetensors_file *file, const nets_net *net, const weights_prefix *prefix,
                       bool (*must)(const nets_param *), int skipped, char *text, size_t capacity,
                       const nets_param **first_out) {
    enum { NAMED = 6 }; /* chosen: a line */
    int n = 0;
    size_t at = 0;
    *text = 0;
    for (int i = 0; i < nets_net_params(net); i++) {
        const nets_param *param = nets_net_param(net, i);
        if (!must(param) || weights_find(file, prefix, param)) continue;
        if (n == 0) *first_out = param;
        if (n >= skipped && n < skipped + NAMED && at < capacity)
            at += (size_t)snprintf(text + at, capacity - at, "%s%.100s", n > skipped ? ", " : "", param->name);
        n++;
    }
    if (n > skipped + NAMED && at < capacity) snprintf(text + at, capacity - at, " and %d more", n - skipped - NAMED);
    return n;
}

static bool has_frozen(const nets_net *net) {
    int n = 0;
    for (int i = 0; i < nets_net_params(net); i++) n += nets_net_param(net, i)->frozen;
    return n > 0;
}

mm_status weights_check(const nets_safetensors_file *file, const nets_net *net, weights_need need) {
    const weights_prefix prefix = weights_find_prefix(file, net);
    const nets_param *first = NULL;
    char others[800], message[MM_MESSAGE_CAPACITY];
    const int n =
        list_others(file, net, &prefix, need == WEIGHTS_BASE ? base_has : state_has, 1, others, sizeof others, &first);
    if (n == 0) return MM_OK;
    const mm_status status = refuse(file, &prefix, first);
    const char *hint = has_frozen(net)            ? "; --base takes a file of frozen weights"
                       : n < nets_net_params(net) ? "; --load-matching takes the tensors that match"
                                                  : "";
    snprintf(message, sizeof message, "%s", mm_last_error());
    return mm_fail(status, "%s%s%s%s", message, n > 1 ? "; nor has it " : "", others, need == WEIGHTS_BASE ? "" : hint);
}

mm_status weights_report(const nets_safetensors_file *file, const nets_net *net, const char *option, const char *path) {
    const weights_prefix prefix = weights_find_prefix(file, net);
    const nets_param *first = NULL;
    char others[800];
    const int n = list_others(file, net, &prefix, any_has, 0, others, sizeof others, &first),
              all = nets_net_params(net);
    if (n == all && all > 0)
        return mm_fail(MM_ERR_FORMAT, "%s: %s has none of the tensors of %s", option, path, nets_net_name(net));
    fprintf(stderr, "mm train: %d of %d tensors of %s are taken from %s%s%s\n", all - n, all, nets_net_name(net), path,
            n > 0 ? "; started anew: " : "", others);
    return MM_OK;
}

static float element(nets_safetensors_dtype dtype, const char *raw, int64_t i) {
    uint16_t half;
    uint32_t bits;
    float value;
    double wide;
    switch (dtype) {
    case NETS_SAFETENSORS_F16:
    case NETS_SAFETENSORS_BF16:
        memcpy(&half, raw + 2 * i, sizeof half);
        bits = mm_half_widen(half, dtype == NETS_SAFETENSORS_BF16 ? MM_BF16 : MM_F16);
        memcpy(&value, &bits, sizeof value);
        return value;
    case NETS_SAFETENSORS_F64:
        memcpy(&wide, raw + 8 * i, sizeof wide);
        return (float)wide;
    default:
        memcpy(&value, raw + 4 * i, sizeof value);
        return value;
    }
}

mm_status weights_read(const nets_safetensors_file *file, const nets_safetensors_tensor *tensor, int64_t first,
                       int64_t n, void *raw, float *values_out) {
    const int64_t bytes = nets_safetensors_dtype_bytes(tensor->dtype);
    MM_TRY(nets_safetensors_read(file, tensor->data, first * bytes, raw, n * bytes));
    for (int64_t i = 0; i < n; i++) values_out[i] = element(tensor->dtype, raw, i);
    return MM_OK;
}
