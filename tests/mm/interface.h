/* SPDX-License-Identifier: MIT */
/* What mm.h declares, as interface.awk finds it. */
#ifndef TESTS_MM_INTERFACE_H
#define TESTS_MM_INTERFACE_H

#include <stddef.h>

typedef struct interface_entry {
    const char *kind; /* function, constant, count (a constant without a number), struct, member, type */
    const char *name; /* of a member: STRUCT.MEMBER */
    const char *text; /* the type of a function, what a type is; else NULL */
    long long value;  /* of a constant; a member's offset */
    size_t bytes;     /* of a struct or a member */
} interface_entry;

extern const interface_entry interface_entries[];
extern const size_t interface_n;

#endif
