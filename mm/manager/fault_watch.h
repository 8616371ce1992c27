/* SPDX-License-Identifier: MIT */
/* Names faults in memory that a manager has closed (mm_options.fault_fn); then whatever the program's own handler does
 * happens, or a core dump. The handler of SIGSEGV is a thing of the process, so
 * managers share one: it is installed for the first watch, and given back after the last one, unless the program has
 * set another meanwhile. */
#ifndef MM_MANAGER_FAULT_WATCH_H
#define MM_MANAGER_FAULT_WATCH_H

#include "mm/core/status.h"

typedef struct mm_fault_watch mm_fault_watch;

/* Writes what is wrong with the address. False: nothing is known. It must be safe in a signal handler. */
typedef bool (*mm_fault_explain)(const mm_manager *manager, const void *address, char *text, size_t capacity);

/* MM_ERR_UNSUPPORTED: too many watches at a time; MM_ERR_DEVICE: the system refuses. */
MM_CHECKED mm_status mm_fault_watch_start(const mm_manager *manager, mm_fault_explain explain,
                                          void (*fault_fn)(const char *message), mm_fault_watch **watch_out);
/* NULL is legal. */
void mm_fault_watch_stop(mm_fault_watch *watch);

#endif
