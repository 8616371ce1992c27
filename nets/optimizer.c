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

#define ADAMW_OPTIONS                                                                                                  \
    {                                                                                                                  \
        {"weight-decay", AT(weight_decay), 1e-2, 0, 1, false}, {"beta1", AT(beta1), 0.9, 0, 1, true},                  \
            {"beta2", AT(beta2), 0.999, 0, 1, true}, {"eps", AT(eps), 1e-8, 1e-30, 1, false},                          \
            {"clip-norm", AT(clip_norm), 0, 0, 1e30, false}, {"states", AT(state_bits), 32, 8, 32, false, "bit"},      \
    }

/* Defaults are torch.optim's; SGD's momentum and decay are those of He et al. 2015 for CIFAR-10. */
static const nets_optimizer_traits TABLE[] = {
    [NETS_SGD] = {.name = "sgd", .layer = "sgd", .states = {"momentum"}, .rate = 0.1, .options = SGD_OPTIONS},
    [NETS_PLAIN_SGD] = {.name = "sgd", .layer = "sgd", .rate = 0.1, .options = SGD_OPTIONS},
    [NETS_ADAMW] = {.name = "adamw",
                    .layer = "adamw",
                    .states = {"exp_avg", "exp_avg_sq"},
                    .counts = true,
                    .rate = 1e-3,
                    .options = ADAMW_OPTIONS},
    [NETS_ADAMW_8BIT] = {.name = "adamw",
                         .layer = "adamw8bit",
                         .states = {"exp_avg", "exp_avg_sq"},
                         .coded = true,
                         .counts = true,
                         .rate = 1e-3,
                         .options = ADAMW_OPTIONS},
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

/* NULL: it has no such option. */
static const nets_optimizer_option *find_option(const nets_optimizer *optimizer, const char *name, size_t length) {
    const nets_optimizer_option *option;
    int i = 0;
    while ((option = option_at(optimizer, i)) &&
           (strlen(option->name) != length || memcmp(option->name, name, length) != 0))
        i++;
    return option;
}

/* The optimizer of this name that the option chooses, now that it is set. */
static nets_optimizer_id choose(const nets_optimizer *optimizer, const nets_optimizer_option *option) {
    if (option->offset == AT(state_bits)) return optimizer->state_bits == 8 ? NETS_ADAMW_8BIT : NETS_ADAMW;
    if (option->offset == AT(momentum)) return optimizer->momentum > 0 ? NETS_SGD : NETS_PLAIN_SGD;
    return optimizer->id;
}

static mm_status set(nets_optimizer *optimizer, const char *name, size_t length, double value) {
    const nets_optimizer_option *option = find_option(optimizer, name, length);
    if (!option) return no_option(optimizer, (int)length, name);
    if (option->unit && value != option->least && value != option->most)
        return mm_fail(MM_ERR_INVALID, "optimizer %s: %s is %g%s: must be %g%s or %g%s", TABLE[optimizer->id].name,
                       option->name, value, option->unit, option->least, option->unit, option->most, option->unit);
    if (!(value >= option->least && (option->below ? value < option->most : value <= option->most)))
        return mm_fail(MM_ERR_INVALID, "optimizer %s: %s is %g: must be from %g to %s%g", TABLE[optimizer->id].name,
                       option->name, value, option->least, option->below ? "below " : "", option->most);
    *place(optimizer, option) = value;
    optimizer->id = choose(optimizer, option);
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
    const char *equals = memchr(text, '=', length), *end_of_text = text + length;
    const size_t name = equals ? (size_t)(equals - text) : 0;
    const nets_optimizer_option *option = find_option(optimizer, text, name);
    const size_t unit = option && option->unit ? strlen(option->unit) : 0;
    char *end = NULL;
    if (equals && !option) return no_option(optimizer, (int)name, text);
    double value = equals ? mm_number_parse(equals + 1, &end) : 0;
    if (unit > 0 && end && (size_t)(end_of_text - end) == unit && memcmp(end, option->unit, unit) == 0)
        end_of_text = end;
    if (!equals || end == equals + 1 || end != end_of_text)
        return mm_fail(MM_ERR_INVALID, "optimizer %s: '%.*s': must be OPTION=NUMBER%s", TABLE[optimizer->id].name,
                       (int)length, text, unit > 0 ? option->unit : "");
    return set(optimizer, text, name, value);
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
        if (option->unit && *place(&copy, option) != option->least) continue; /* as before there was the option */
        n += (size_t)snprintf(text + n, NETS_OPTIMIZER_TEXT_CAPACITY - n, ",%s=%s%s", option->name,
                              mm_number_format(*place(&copy, option), number), option->unit ? option->unit : "");
    }
}
