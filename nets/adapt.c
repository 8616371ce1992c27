/* SPDX-License-Identifier: MIT */
/* Freezes layers, and reads the options of adapters. */
#include "nets/adapt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "mm/core/number.h"
#include "nets/layer_names.h"

/* ---------------------------------------------------------------- freezing */

static mm_status mark_frozen(const nets_net *net, const char *layers, const bool *has, bool *frozen) {
    nets_name n;
    while (nets_name_next(&layers, &n)) {
        const bool freezes = n.length == 0 || *n.text != '!';
        int found = 0;
        if (!freezes) n = (nets_name){n.text + 1, n.length - 1};
        for (int i = 0; i < nets_net_layers(net); i++) {
            if (!has[i] || !nets_name_begins(&n, nets_net_layer(net, i)->name)) continue;
            frozen[i] = freezes;
            found++;
        }
        if (!found) return nets_name_refuse(net, "--freeze", &n, has, "layer with parameters");
    }
    return MM_OK;
}

mm_status nets_freeze_layers(nets_net *net, const char *layers) {
    const int n = nets_net_layers(net);
    int left = 0;
    bool *has = calloc(2 * (size_t)n, sizeof *has), *frozen = has + n;
    if (!has) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to freeze layers", nets_net_name(net));
    for (int i = 0; i < n; i++)
        has[i] = nets_net_layer(net, i)->n_params > 0 || nets_net_layer(net, i)->tied_param >= 0;
    mm_status status = mark_frozen(net, layers, has, frozen);
    for (int i = 0; status == MM_OK && i < n; i++)
        if (frozen[i]) nets_freeze(net, i);
    for (int i = 0; i < nets_net_params(net); i++) left += nets_param_trains(nets_net_param(net, i));
    if (status == MM_OK && left == 0)
        status = mm_fail(MM_ERR_INVALID, "--freeze %s: freezes all parameters of net %s: nothing is left to train",
                         layers, nets_net_name(net));
    free(has);
    return status;
}

/* ---------------------------------------------------------------- options of LoRA */

enum { RANK_MOST = 1 << 16 };

static mm_status read_number(const char *text, size_t length, const char *key, double most, double *number_out) {
    char *end = NULL;
    const double number = mm_number_parse(text, &end);
    if (end == text || end != text + length || !(number > 0 && number <= most))
        return mm_fail(MM_ERR_INVALID, "--lora: %s=%.*s: must be a number above 0, at most %g", key, (int)length, text,
                       most);
    *number_out = number;
    return MM_OK;
}

static mm_status add_layers(nets_lora *lora, const char *text, size_t length) {
    const size_t at = strlen(lora->layers);
    if (at + length + 2 > sizeof lora->layers)
        return mm_fail(MM_ERR_INVALID, "--lora: layers= has more than %zu letters; use * and ?", sizeof lora->layers);
    snprintf(lora->layers + at, sizeof lora->layers - at, "%s%.*s", at ? "," : "", (int)length, text);
    return MM_OK;
}

static mm_status read_rank(nets_lora *lora, const char *text, size_t length) {
    double rank;
    MM_TRY(read_number(text, length, "rank", RANK_MOST, &rank));
    if (rank != floor(rank)) return mm_fail(MM_ERR_INVALID, "--lora: rank=%g: must be a whole number", rank);
    lora->rank = (int64_t)rank;
    return MM_OK;
}

/* Reads KEY=VALUE; a piece without = is one more of the layers. */
static mm_status read_piece(nets_lora *lora, const nets_name *piece) {
    static const char *const keys[] = {"rank", "alpha", "layers"};
    const char *equals = memchr(piece->text, '=', piece->length);
    if (!equals && *lora->layers) return add_layers(lora, piece->text, piece->length);
    const nets_name key = {piece->text, equals ? (size_t)(equals - piece->text) : piece->length};
    const char *value = equals ? equals + 1 : piece->text + piece->length;
    const size_t length = piece->length - (size_t)(value - piece->text);
    if (equals && nets_name_is(&key, "rank")) return read_rank(lora, value, length);
    if (equals && nets_name_is(&key, "alpha")) return read_number(value, length, "alpha", RANK_MOST, &lora->alpha);
    if (equals && nets_name_is(&key, "layers") && length > 0) return add_layers(lora, value, length);
    mm_nearest near = {.text = key.text, .length = key.length};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) mm_nearest_try(&near, keys[i]);
    return mm_fail(MM_ERR_INVALID, "--lora: '%.*s'%s: must be rank=R, alpha=A or layers=NAME,..", (int)piece->length,
                   piece->text, MM_DID_YOU_MEAN(&near));
}

mm_status nets_lora_parse(const char *text, nets_lora *lora_out) {
    nets_lora lora = {0};
    nets_name piece;
    while (nets_name_next(&text, &piece)) MM_TRY(read_piece(&lora, &piece));
    if (lora.rank == 0) return mm_fail(MM_ERR_INVALID, "--lora: rank=R is missing, as in rank=16");
    if (lora.alpha == 0) lora.alpha = (double)lora.rank;
    if (!*lora.layers) strcpy(lora.layers, "attention");
    *lora_out = lora;
    return MM_OK;
}
