/* SPDX-License-Identifier: MIT */
/* Failures inside the library: the function that detects one returns mm_fail, callers forward its status. Also logging
 * and the formatting of texts for messages. Thread-safe. */
#ifndef MM_CORE_STATUS_H
#define MM_CORE_STATUS_H

#include "mm/mm.h"

/* Capacity of a message, with its NUL. Chosen: messages lie in static thread-local storage, of which a library that is
 * loaded with dlopen gets little. */
enum { MM_MESSAGE_CAPACITY = 512 };

/* Sets the calling thread's message (mm_last_error; one that is too long is cut and ends in "...") and gives `status`.
 * A macro, so that compilers see which status is returned. */
#define mm_fail(status, ...) (mm_fail_set(__VA_ARGS__), (mm_status)(status))
void mm_fail_set(const char *format, ...) MM_PRINTF(1, 2);

/* Puts "prefix: " before the thread's message, and gives `status`. If there is no room for both, the prefix is cut. */
#define mm_fail_in(status, ...) (mm_fail_prefix(__VA_ARGS__), (mm_status)(status))
void mm_fail_prefix(const char *format, ...) MM_PRINTF(1, 2);

/* MM_ERR_INVALID if `pointer` is NULL. call: name of the function that was called; what: name of its argument. */
MM_CHECKED mm_status mm_check_given(const void *pointer, const char *call, const char *what);

/* A failure as a value, to keep, or to pass to another thread. */
typedef struct mm_failure {
    mm_status status; /* MM_OK: there is none */
    char message[MM_MESSAGE_CAPACITY];
} mm_failure;

/* Saves this thread's last failure, whose status is `status`. MM_OK: there is none. */
void mm_failure_save(mm_failure *failure, mm_status status);
/* Returns the status; unless that is MM_OK, also sets the calling thread's message. */
mm_status mm_failure_restore(const mm_failure *failure);

#define MM_TRY(expression)                                                                                             \
    do {                                                                                                               \
        mm_status try_status_ = (expression);                                                                          \
        if (try_status_ != MM_OK) return try_status_;                                                                  \
    } while (0)

/* Sends a message to a log, unless it has no function or a lower level. Thread-safe if the log's function is. */
void mm_log_send(const mm_log *log, mm_log_level level, const char *format, ...) MM_PRINTF(3, 4);

/* Formats a text of any length. The caller frees it. NULL: out of memory. */
char *mm_text_format(const char *format, ...) MM_PRINTF(1, 2);

/* Copies a name for a message, cut and with "..." if it is long. Returns buffer. MM_BRIEF(text): the same in a buffer
 * of its own, which lives as long as the enclosing block. */
enum { MM_BRIEF_CAPACITY = 104 };
const char *mm_brief(const char *text, char buffer[MM_BRIEF_CAPACITY]);
#define MM_BRIEF(text) mm_brief(text, (char[MM_BRIEF_CAPACITY]){0})

/* Writes a size as "12.5GiB", "640KiB" or "17B". A size that has such a form exactly is read back exactly; others have
 * three significant digits. Returns buffer. */
const char *mm_size_format(int64_t bytes, char *buffer, size_t capacity);

/* Writes a size for a message: "61349376 bytes (58.5MiB)", "17 bytes". Returns buffer. MM_SIZE_TEXT(bytes): the same
 * in a buffer of its own, which lives as long as the enclosing block. */
enum { MM_SIZE_TEXT_CAPACITY = 48 };
const char *mm_size_text(int64_t bytes, char buffer[MM_SIZE_TEXT_CAPACITY]);
#define MM_SIZE_TEXT(bytes) mm_size_text(bytes, (char[MM_SIZE_TEXT_CAPACITY]){0})

/* Reads a size such as "12GiB", "1.5GB", "300MiB", "4096", "64k". GiB and a bare G are powers of 1024, GB is one of
 * 1000. MM_ERR_INVALID: any other text, a negative number, overflow. */
MM_CHECKED mm_status mm_size_parse(const char *text, int64_t *bytes_out);

#endif
