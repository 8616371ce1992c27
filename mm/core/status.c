/* SPDX-License-Identifier: MIT */
#include "mm/core/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/number.h"

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

/* Ends a text that snprintf has cut in "...". length: snprintf's result. */
static void mark_cut(char *text, size_t capacity, int length) {
    if (length >= (int)capacity) memcpy(text + capacity - sizeof "...", "...", sizeof "...");
}

void mm_fail_set(const char *format, ...) {
    /* A second buffer, because the arguments may point into the last message. */
    char message[MM_MESSAGE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    mark_cut(message, sizeof message, vsnprintf(message, sizeof message, format, arguments));
    va_end(arguments);
    memcpy(last_message, message, sizeof message);
}

mm_status mm_check_given(const void *pointer, const char *call, const char *what) {
    return pointer ? MM_OK : mm_fail(MM_ERR_INVALID, "%s: %s is NULL", call, what);
}

void mm_fail_prefix(const char *format, ...) {
    char prefix[MM_MESSAGE_CAPACITY], message[MM_MESSAGE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    /* The prefix gets what the message leaves, and at least a quarter (chosen). */
    size_t reason = strlen(last_message) + sizeof ": ", room = sizeof message / 4;
    if (reason + room < sizeof message) room = sizeof message - reason + 1;
    mark_cut(prefix, room, length);
    mark_cut(message, sizeof message, snprintf(message, sizeof message, "%s: %s", prefix, last_message));
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

void mm_log_send(const mm_log *log, mm_log_level level, const char *format, ...) {
    if (!log || !log->fn || level > log->level) return;
    char message[MM_MESSAGE_CAPACITY];
    va_list arguments;
    va_start(arguments, format);
    mark_cut(message, sizeof message, vsnprintf(message, sizeof message, format, arguments));
    va_end(arguments);
    log->fn(log->ctx, level, message);
}

char *mm_text_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length >= 0 ? malloc((size_t)length + 1) : NULL;
    if (!text) return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

const char *mm_brief(const char *text, char buffer[MM_BRIEF_CAPACITY]) {
    mark_cut(buffer, MM_BRIEF_CAPACITY, snprintf(buffer, MM_BRIEF_CAPACITY, "%s", text));
    return buffer;
}

static const struct unit {
    const char *name;
    int64_t bytes;
} units[] = {{"TiB", INT64_C(1) << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}};

const char *mm_size_format(int64_t bytes, char *buffer, size_t capacity) {
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (bytes < units[i].bytes) continue;
        if (bytes % units[i].bytes == 0)
            snprintf(buffer, capacity, "%lld%s", (long long)(bytes / units[i].bytes), units[i].name);
        else {
            double value = (double)bytes / (double)units[i].bytes;
            snprintf(buffer, capacity, "%.*f%s", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[i].name);
        }
        return buffer;
    }
    snprintf(buffer, capacity, "%lldB", (long long)bytes);
    return buffer;
}

const char *mm_size_text(int64_t bytes, char buffer[MM_SIZE_TEXT_CAPACITY]) {
    char size[32];
    bool large = bytes >= 1 << 10;
    snprintf(buffer, MM_SIZE_TEXT_CAPACITY, "%lld bytes%s%s%s", (long long)bytes, large ? " (" : "",
             large ? mm_size_format(bytes, size, sizeof size) : "", large ? ")" : "");
    return buffer;
}

/* Factor of a unit such as "k", "KiB", "MB", "B" or ""; 0: it is none. */
static double unit_factor(const char *suffix) {
    static const char letters[] = "kmgt";
    if (*suffix == '\0' || strcmp(suffix, "B") == 0 || strcmp(suffix, "b") == 0) return 1;
    char lower = (char)(*suffix | 0x20);
    const char *letter = strchr(letters, lower);
    if (!letter || *letter == '\0') return 0;
    int power = (int)(letter - letters) + 1;
    const char *rest = suffix + 1;
    double base = 1024;
    if (strcmp(rest, "B") == 0 || strcmp(rest, "b") == 0)
        base = 1000;
    else if (*rest != '\0' && strcmp(rest, "iB") != 0 && strcmp(rest, "ib") != 0 && strcmp(rest, "i") != 0)
        return 0;
    double factor = 1;
    while (power--) factor *= base;
    return factor;
}

mm_status mm_size_parse(const char *text, int64_t *bytes_out) {
    static const char help[] = "use 12GiB, 1.5GB, 300MiB or a number of bytes";
    if (!text || *text < '0' || *text > '9')
        return mm_fail(MM_ERR_INVALID, "size '%s' is not understood: %s", text ? text : "", help);
    char *end;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (errno == 0 && (*end == '\0' || strcmp(end, "B") == 0)) {
        *bytes_out = whole;
        return MM_OK;
    }
    /* Plain decimals only: strtod would read 0x10 and 1e3 too. */
    size_t digits = strspn(text, "0123456789."), letters = strcspn(text + digits, "0123456789.");
    if (text[digits + letters] != '\0' || strspn(text + digits, "xXeE") > 0)
        return mm_fail(MM_ERR_INVALID, "size '%s' is not understood: %s", text, help);
    double value = mm_number_parse(text, &end);
    while (*end == ' ') end++;
    double factor = unit_factor(end);
    if (factor == 0) return mm_fail(MM_ERR_INVALID, "size '%s' is not understood: %s", text, help);
    value *= factor;
    if (!(value < 4.6e18)) return mm_fail(MM_ERR_INVALID, "size '%s' is too large: %s", text, help);
    *bytes_out = (int64_t)(value + 0.5);
    return MM_OK;
}
