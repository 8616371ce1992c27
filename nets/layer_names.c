/* SPDX-License-Identifier: MIT */
#include "nets/layer_names.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "mm/core/text.h"

bool nets_name_next(const char **at, nets_name *name_out) {
    if (!**at) return false;
    *name_out = (nets_name){*at, strcspn(*at, ",")};
    *at += name_out->length + ((*at)[name_out->length] == ',');
    return true;
}

bool nets_name_is(const nets_name *n, const char *word) {
    return strlen(word) == n->length && memcmp(word, n->text, n->length) == 0;
}

bool nets_name_ends(const nets_name *n, const char *layer) {
    for (; layer; layer = strchr(layer, '.') ? strchr(layer, '.') + 1 : NULL)
        if (mm_text_matches(n->text, n->length, layer)) return true;
    return false;
}

bool nets_name_begins(const nets_name *n, const char *layer) {
    char part[NETS_NAME_CAPACITY];
    if (mm_text_matches(n->text, n->length, layer)) return true;
    for (const char *dot = strchr(layer, '.'); dot; dot = strchr(dot + 1, '.')) {
        snprintf(part, sizeof part, "%.*s", (int)(dot - layer), layer);
        if (mm_text_matches(n->text, n->length, part)) return true;
    }
    return false;
}

static const char *last_part(const char *layer) {
    const char *dot = strrchr(layer, '.');
    return dot ? dot + 1 : layer;
}

mm_status nets_name_refuse(const nets_net *net, const char *option, const nets_name *n, const bool *is_one,
                           const char *what) {
    char list[160] = "";
    mm_nearest near = {.text = n->text, .length = n->length};
    for (int i = 0; i < nets_net_layers(net); i++) {
        const char *layer = nets_net_layer(net, i)->name, *last = last_part(layer);
        if (!is_one[i]) continue;
        mm_nearest_try(&near, last);
        mm_nearest_try(&near, layer);
        const size_t at = strlen(list);
        if (at + strlen(last) + 6 < sizeof list && !strstr(list, last))
            snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", last);
    }
    if (!*list) return mm_fail(MM_ERR_INVALID, "%s: net %s has no %s", option, nets_net_name(net), what);
    return mm_fail(MM_ERR_INVALID, "%s: no %s of net %s is called %.*s%s; it has %s", option, what, nets_net_name(net),
                   (int)n->length, n->text, MM_DID_YOU_MEAN(&near), list);
}
