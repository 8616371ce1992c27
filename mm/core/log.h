/* SPDX-License-Identifier: MIT */
/* Messages to the log that the user has set (mm_log). */
#ifndef MM_CORE_LOG_H
#define MM_CORE_LOG_H

#include "mm/mm.h"

/* Sends a message to a log, unless it has no function or a lower level. Thread-safe if the log's function is. */
void mm_log_send(const mm_log *log, mm_log_level level, const char *format, ...) MM_PRINTF(3, 4);

#endif
