/* SPDX-License-Identifier: MIT */
/* Options that several policies have, as entries for their tables: which storages share bytes (mm_sharing), and how
 * many images are computed at a time, and where weights and states are kept. */
#ifndef POLICIES_OPTION_TABLES_H
#define POLICIES_OPTION_TABLES_H

#include <stddef.h>

#include "policies/policy.h"

#define MM_OPTION_INPLACE                                                                                              \
    {                                                                                                                  \
        .key = "inplace", .fallback = "on", .type = MM_OPTION_CHOICE,                                                  \
        .field = offsetof(mm_engine_config, sharing.inplace), .choices = "on|off|gradients",                           \
        .values = {MM_INPLACE_ON, MM_INPLACE_OFF, MM_INPLACE_GRADIENTS},                                               \
        .help = "write in place, and let equal tensors share storage; off: neither (papers); or gradient maps only"    \
    }
#define MM_OPTION_LAYOUT                                                                                               \
    {                                                                                                                  \
        .key = "layout", .fallback = "best", .type = MM_OPTION_CHOICE,                                                 \
        .field = offsetof(mm_engine_config, sharing.layout), .choices = "best|groups",                                 \
        .values = {MM_PLACING_SEARCHED, MM_PLACING_GROUPS},                                                            \
        .help = "search for places, or do as CNTK's static allocator: by size, in groups never alive together"         \
    }
#define MM_OPTION_STASH                                                                                                \
    {                                                                                                                  \
        .key = "stash", .fallback = "shared", .type = MM_OPTION_CHOICE,                                                \
        .field = offsetof(mm_engine_config, sharing.stash), .choices = "shared|apart",                                 \
        .values = {MM_STASH_SHARED, MM_STASH_APART},                                                                   \
        .help = "whether maps that wait for the backward pass share bytes (apart: Gist's investigation baseline)"      \
    }

#define MM_OPTION_RESIDENT(otherwise)                                                                                  \
    {                                                                                                                  \
        .key = "resident", .fallback = otherwise, .type = MM_OPTION_CHOICE,                                            \
        .field = offsetof(mm_engine_config, resident), .choices = "all|needed|none",                                   \
        .values = {MM_RESIDENT_ALL, MM_RESIDENT_NEEDED, MM_RESIDENT_NONE},                                             \
        .help = "weights and states that stay on the device: all, as many as fit (auto: or fewer, if faster), or none" \
    }

#define MM_OPTION_SUB_BATCH(otherwise)                                                                                 \
    {                                                                                                                  \
        .key = "subbatch", .fallback = otherwise, .type = MM_OPTION_NUMBER,                                            \
        .field = offsetof(mm_engine_config, sub_batch), .choices = "auto|off",                                         \
        .values = {MM_SUB_BATCH_AUTO, MM_SUB_BATCH_OFF}, .min = 1, .max = 1 << 30,                                     \
        .help = "images computed at a time: as many as the budget bears (auto), the whole batch (off), or a number"    \
    }

#endif
