/* SPDX-License-Identifier: MIT */
/* The control groups that limit this process: containers, services and batch systems are such groups.
 *
 * A group's limit holds for all groups below it, so a process has the least limit of its own group and of all groups
 * above. Version 1 has a hierarchy for each controller, version 2 has one for all; a machine may have both. */
#ifndef MM_DEVICE_SYSTEM_CONTROL_GROUP_H
#define MM_DEVICE_SYSTEM_CONTROL_GROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { MM_GROUP_PATH_CAPACITY = 1024 };

/* folder: of a group. v2: its files are version 2's. */
typedef void (*mm_group_fn)(void *ctx, const char *folder, bool v2);

/* Calls fn for each folder that a group of this process with the controller ("cpu", "memory") may have: the process's
 * own group first, then those above it. A folder may not exist: in a container the group's path may be the machine's,
 * and only the top folder is there, which is the container's group. root: replaces "/", for tests. */
void mm_groups_visit(const char *root, const char *controller, mm_group_fn fn, void *ctx);

/* Reads up to `wanted` numbers from the first line of folder/file that begins with `key`. Returns how many it read: 0
 * also if there is no such file or line. "max" in place of the first number is no number. */
int mm_group_numbers(const char *folder, const char *file, const char *key, int wanted, int64_t numbers[]);

#endif
