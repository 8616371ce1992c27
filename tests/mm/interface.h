/* SPDX-License-Identifier: MIT */
/* The table that interface.awk writes of what the public headers declare. */
#ifndef TESTS_MM_INTERFACE_H
#define TESTS_MM_INTERFACE_H

#include <stddef.h>

typedef struct interface_entry {
    const char *kind; /* function, constant, count (a constant without a number), struct, member, type */
    const char *name; /* a member's is STRUCT.MEMBER */
    const char *text; /* a function's type, or what a type stands for; else NULL */
    long long value;  /* a constant's value, or a member's offset */
    size_t bytes;     /* size of a struct or a member */
} interface_entry;

extern const interface_entry interface_entries[];
extern const size_t interface_n;

#endif
