/* SPDX-License-Identifier: MIT */
#include "mm/core/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "mm/core/status.h"
#include "mm/core/text.h"

void mm_log_send(const mm_log *log, mm_log_level level, const char *format, ...) {
    if (!log || !log->fn || level > log->level) return;
    char message[MM_MESSAGE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    mm_text_mark_cut(message, sizeof message, vsnprintf(message, sizeof message, format, arguments));
    va_end(arguments);
    log->fn(log->ctx, level, message);
}
