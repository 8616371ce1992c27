/* SPDX-License-Identifier: MIT */
#include "nets/optimizer.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "mm/core/number.h"

#define AT(member) offsetof(nets_optimizer, member)

#define SGD_OPTIONS                                                                                                    \
    {                                                                                                                  \
        {"momentum", AT(momentum), 0.9, 0, 1, false}, {"weight-decay", AT(weight_decay), 1e-4, 0, 1, false},           \
            {"clip-norm", AT(clip_norm), 0, 0, 1e30, false},                                                           \
    }

/* Defaults are torch.optim's; SGD's momentum and decay are those of He et al. 2015 for CIFAR-10. */
static const nets_optimizer_traits TABLE[] = {
    [NETS_SGD] = {.name = "sgd", .states = {"momentum"}, .rate = 0.1, .options = SGD_OPTIONS},
    [NETS_PLAIN_SGD] = {.name = "sgd", .rate = 0.1, .options = SGD_OPTIONS},
    [NETS_ADAMW] = {.name = "adamw",
                    .states = {"exp_avg", "exp_avg_sq"},
                    .counts = true,
                    .rate = 1e-3,
                    .options = {{"weight-decay", AT(weight_decay), 1e-2, 0, 1, false},
                                {"beta1", AT(beta1), 0.9, 0, 1, true},
                                {"beta2", AT(beta2), 0.999, 0, 1, true},
                                {"eps", AT(eps), 1e-8, 1e-30, 1, false},
                                {"clip-norm", AT(clip_norm), 0, 0, 1e30, false}}},
};
_Static_assert(sizeof TABLE / sizeof *TABLE == NETS_OPTIMIZERS, "an entry for each");

const nets_optimizer_traits *nets_optimizer_traits_of(nets_optimizer_id id) { return &TABLE[id]; }

static double *place(nets_optimizer *optimizer, const nets_optimizer_option *option) {
    return (double *)(void *)((char *)optimizer + option->offset);
}

/* The optimizer's i-th option; NULL past the last. */
static const nets_optimizer_option *option_at(const nets_optimizer *optimizer, int i) {
    const nets_optimizer_option *option = &TABLE[optimizer->id].options[i];
    return i < NETS_OPTIMIZER_OPTIONS && option->name ? option : NULL;
}

static mm_status no_option(const nets_optimizer *optimizer, int length, const char *name) {
    const nets_optimizer_option *option;
    char all[128] = "";
    mm_nearest near = {.text = name, .length = (size_t)length};
    for (int i = 0; (option = option_at(optimizer, i)); i++) {
        mm_nearest_try(&near, option->name);
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", i > 0 ? ", " : "", option->name);
    }
    mm_nearest_try(&near, "on");
    return mm_fail(MM_ERR_INVALID, "optimizer %s has no option '%.*s'%s; it has %s, on", TABLE[optimizer->id].name,
                   length, name, MM_DID_YOU_MEAN(&near), all);
}

static mm_status set(nets_optimizer *optimizer, const char *name, size_t length, double value) {
    const nets_optimizer_option *option;
    int i = 0;
    while ((option = option_at(optimizer, i)) &&
           (strlen(option->name) != length || memcmp(option->name, name, length) != 0))
        i++;
    if (!option) return no_option(optimizer, (int)length, name);
    if (!(value >= option->least && (option->below ? value < option->most : value <= option->most)))
        return mm_fail(MM_ERR_INVALID, "optimizer %s: %s is %g: must be from %g to %s%g", TABLE[optimizer->id].name,
                       option->name, value, option->least, option->below ? "below " : "", option->most);
    *place(optimizer, option) = value;
    if (optimizer->id != NETS_ADAMW) optimizer->id = optimizer->momentum > 0 ? NETS_SGD : NETS_PLAIN_SGD;
    return MM_OK;
}

mm_status nets_optimizer_set(nets_optimizer *optimizer, const char *name, double value) {
    return set(optimizer, name, strlen(name), value);
}

static mm_status find(const char *text, size_t length, nets_optimizer *out) {
    mm_nearest near = {.text = text, .length = length};
    for (int id = 0; id < NETS_OPTIMIZERS; id++) {
        mm_nearest_try(&near, TABLE[id].name);
        if (strlen(TABLE[id].name) != length || memcmp(TABLE[id].name, text, length) != 0) continue;
        *out = (nets_optimizer){.id = (nets_optimizer_id)id};
        return MM_OK;
    }
    return mm_fail(MM_ERR_INVALID, "no optimizer '%.*s'%s: there are %s and %s", (int)length, text,
                   MM_DID_YOU_MEAN(&near), TABLE[NETS_SGD].name, TABLE[NETS_ADAMW].name);
}

/* Reads "on=PLACE". Returns whether it was that option. */
static bool read_place(nets_optimizer *optimizer, const char *text, size_t length, mm_status *status_out) {
    if (length < 3 || memcmp(text, "on=", 3) != 0) return false;
    text += 3;
    length -= 3;
    const bool host = length == 4 && memcmp(text, "host", 4) == 0;
    optimizer->on_host = host;
    *status_out = MM_OK;
    if (!host && (length != 6 || memcmp(text, "device", 6) != 0))
        *status_out = mm_fail(MM_ERR_INVALID, "optimizer %s: on=%.*s: must be host or device",
                              TABLE[optimizer->id].name, (int)length, text);
    return true;
}

/* `text` is "OPTION=X", up to the next comma or the end. */
static mm_status read_option(nets_optimizer *optimizer, const char *text, size_t length) {
    mm_status placed;
    if (read_place(optimizer, text, length, &placed)) return placed;
    const char *equals = memchr(text, '=', length);
    char *end = NULL;
    double value = equals ? mm_number_parse(equals + 1, &end) : 0;
    if (!equals || end == equals + 1 || end != text + length)
        return mm_fail(MM_ERR_INVALID, "optimizer %s: '%.*s': must be OPTION=NUMBER", TABLE[optimizer->id].name,
                       (int)length, text);
    return set(optimizer, text, (size_t)(equals - text), value);
}

mm_status nets_optimizer_parse(const char *text, nets_optimizer *optimizer_out) {
    nets_optimizer optimizer = {0};
    const nets_optimizer_option *option;
    size_t length = strcspn(text, ",");
    MM_TRY(find(text, length, &optimizer));
    for (int i = 0; (option = option_at(&optimizer, i)); i++) *place(&optimizer, option) = option->usual;
    for (text += length; *text; text += length) {
        length = strcspn(++text, ",");
        MM_TRY(read_option(&optimizer, text, length));
    }
    *optimizer_out = optimizer;
    return MM_OK;
}

void nets_optimizer_text(const nets_optimizer *optimizer, char text[NETS_OPTIMIZER_TEXT_CAPACITY]) {
    nets_optimizer copy = *optimizer;
    const nets_optimizer_option *option;
    size_t n = (size_t)snprintf(text, NETS_OPTIMIZER_TEXT_CAPACITY, "%s", TABLE[copy.id].name);
    for (int i = 0; (option = option_at(&copy, i)); i++) {
        char number[MM_NUMBER_CAPACITY];
        n += (size_t)snprintf(text + n, NETS_OPTIMIZER_TEXT_CAPACITY - n, ",%s=%s", option->name,
                              mm_number_format(*place(&copy, option), number));
    }
}
