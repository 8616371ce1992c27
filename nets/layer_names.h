/* SPDX-License-Identifier: MIT */
/* Lists of layers by name, separated by commas; * stands for any text, ? for one character. */
#ifndef NETS_LAYER_NAMES_H
#define NETS_LAYER_NAMES_H

#include "nets/net.h"

typedef struct nets_name {
    const char *text; /* not terminated */
    size_t length;
} nets_name;

/* Gives the name at *at, up to a comma, and moves *at behind that. False: the list has ended. */
bool nets_name_next(const char **at, nets_name *name_out);

/* Whether it is this word. */
bool nets_name_is(const nets_name *n, const char *word);
/* Whether it is the name of the layer, or its end behind a dot. */
bool nets_name_ends(const nets_name *n, const char *layer);
/* Whether it is the name of the layer, or its beginning before a dot. */
bool nets_name_begins(const nets_name *n, const char *layer);

/* Fails with MM_ERR_INVALID: the name is that of no layer for which is_one is set. The message has the nearest name,
 * and some of all. what: what these layers are. */
MM_CHECKED mm_status nets_name_refuse(const nets_net *net, const char *option, const nets_name *n, const bool *is_one,
                                      const char *what);

#endif
