/* SPDX-License-Identifier: MIT */
/* Failures inside the library: the function that detects one returns mm_fail, callers forward its status.
 * Thread-safe. */
#ifndef MM_CORE_STATUS_H
#define MM_CORE_STATUS_H

#include "mm/mm.h"

/* Capacity of a message, with its NUL. Chosen: messages lie in static thread-local storage, and there is little of it
 * for a library that is loaded with dlopen. */
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

/* Converts an options struct of the caller's header, `bytes` long, into that of this library, `known` long. Members
 * that the caller's header lacks become 0. MM_ERR_UNSUPPORTED if one that this library lacks is not 0.
 * call: name of the function that was called. */
MM_CHECKED mm_status mm_take_options(const void *given, size_t bytes, void *taken, size_t known, const char *call);

/* A failure as a value, to keep, or to pass to another thread. */
typedef struct mm_failure {
    mm_status status; /* MM_OK: there is none */
    char message[MM_MESSAGE_CAPACITY];
} mm_failure;

/* Saves this thread's last failure, whose status is `status`. If that is MM_OK, saves that there is no failure. */
void mm_failure_save(mm_failure *failure, mm_status status);
/* Returns the saved status; unless it is MM_OK, also sets the calling thread's message to the saved one. */
mm_status mm_failure_restore(const mm_failure *failure);

#define MM_TRY(expression)                                                                                             \
    do {                                                                                                               \
        mm_status try_status_ = (expression);                                                                          \
        if (try_status_ != MM_OK) return try_status_;                                                                  \
    } while (0)

#endif
