/* SPDX-License-Identifier: MIT */
#include "mm/core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/text.h"

static _Thread_local char last_message[MM_MESSAGE_CAPACITY];

const char *mm_version(void) { return MM_VERSION; }

const char *mm_status_name(mm_status status) {
    switch (status) {
    case MM_OK:
        return "MM_OK";
    case MM_ERR_INVALID:
        return "MM_ERR_INVALID";
    case MM_ERR_ORDER:
        return "MM_ERR_ORDER";
    case MM_ERR_NOMEM:
        return "MM_ERR_NOMEM";
    case MM_ERR_INFEASIBLE:
        return "MM_ERR_INFEASIBLE";
    case MM_ERR_PLAN:
        return "MM_ERR_PLAN";
    case MM_ERR_DEVICE:
        return "MM_ERR_DEVICE";
    case MM_ERR_IO:
        return "MM_ERR_IO";
    case MM_ERR_FORMAT:
        return "MM_ERR_FORMAT";
    case MM_ERR_NOT_FOUND:
        return "MM_ERR_NOT_FOUND";
    case MM_ERR_UNSUPPORTED:
        return "MM_ERR_UNSUPPORTED";
    }
    return "unknown status";
}

const char *mm_last_error(void) { return last_message; }

void mm_fail_set(const char *format, ...) {
    /* A second buffer, because the arguments may point into the last message. */
    char message[MM_MESSAGE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    mm_text_mark_cut(message, sizeof message, vsnprintf(message, sizeof message, format, arguments));
    va_end(arguments);
    memcpy(last_message, message, sizeof message);
}

mm_status mm_check_given(const void *pointer, const char *call, const char *what) {
    return pointer ? MM_OK : mm_fail(MM_ERR_INVALID, "%s: %s is NULL", call, what);
}

mm_status mm_take_options(const void *given, size_t bytes, void *taken, size_t known, const char *call) {
    for (size_t i = known; i < bytes; i++)
        if (((const uint8_t *)given)[i])
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "%s: the options have %zu bytes, of which mm %s knows %zu, and byte %zu is not 0: they are "
                           "of a newer mm.h; run with its library, or leave out what is newer",
                           call, bytes, MM_VERSION, known, i);
    memset(taken, 0, known);
    memcpy(taken, given, bytes < known ? bytes : known);
    return MM_OK;
}

void mm_fail_prefix(const char *format, ...) {
    char prefix[MM_MESSAGE_CAPACITY], message[MM_MESSAGE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    /* The prefix gets the room that the message leaves, but at least a quarter of the buffer (chosen). */
    size_t reason = strlen(last_message) + sizeof ": ", room = sizeof message / 4;
    if (reason + room < sizeof message) room = sizeof message - reason + 1;
    mm_text_mark_cut(prefix, room, length);
    mm_text_mark_cut(message, sizeof message, snprintf(message, sizeof message, "%s: %s", prefix, last_message));
    memcpy(last_message, message, sizeof message);
}

void mm_failure_save(mm_failure *failure, mm_status status) {
    failure->status = status;
    if (status != MM_OK) memcpy(failure->message, last_message, sizeof last_message);
}

mm_status mm_failure_restore(const mm_failure *failure) {
    if (failure->status != MM_OK) memmove(last_message, failure->message, sizeof last_message);
    return failure->status;
}
