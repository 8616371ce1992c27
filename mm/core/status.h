/* How failures travel inside the library: the first to detect one says so with mm_fail, callers forward. */
#ifndef MM_CORE_STATUS_H
#define MM_CORE_STATUS_H

#include "mm/mm.h"

/* Bytes of a message with its NUL. Of each thread's static storage, of which a library opened at run time gets little. */
enum { MM_MESSAGE_CAPACITY = 512 };

/* Keeps the message for this thread (mm_last_error; a longer one ends in "...") and gives `status`. A macro, so that
 * compilers see what is returned. */
#define mm_fail(status, ...) (mm_fail_set(__VA_ARGS__), (mm_status)(status))
void mm_fail_set(const char *format, ...) MM_PRINTF(1, 2);

/* Puts "prefix: " before this thread's message, and gives `status`. Where both have no room, the prefix is cut. */
#define mm_fail_in(status, ...) (mm_fail_prefix(__VA_ARGS__), (mm_status)(status))
void mm_fail_prefix(const char *format, ...) MM_PRINTF(1, 2);

/* MM_ERR_INVALID if the caller of `call`, a function's name, gave NULL for `what`. */
MM_CHECKED mm_status mm_check_given(const void *pointer, const char *call, const char *what);

/* A failure as a value: kept, or handed to another thread, and told there. */
typedef struct mm_failure {
    mm_status status; /* MM_OK: there is none */
    char message[MM_MESSAGE_CAPACITY];
} mm_failure;

/* Keeps this thread's last failure, which gave `status`. MM_OK: it keeps none. */
void mm_failure_keep(mm_failure *failure, mm_status status);
/* Makes it this thread's last failure and gives its status. Nothing if there is none. */
mm_status mm_failure_tell(const mm_failure *failure);

#define MM_TRY(expression)                                                                                             \
    do {                                                                                                               \
        mm_status try_status_ = (expression);                                                                          \
        if (try_status_ != MM_OK) return try_status_;                                                                  \
    } while (0)

/* Sends a message to a sink; nothing for a silent one. Thread-safe if the sink is. */
void mm_log_send(const mm_log *log, mm_log_level level, const char *format, ...) MM_PRINTF(3, 4);

/* A text of any length, which the caller frees. NULL: out of memory. */
char *mm_text_format(const char *format, ...) MM_PRINTF(1, 2);

/* A name of any length as messages have it: the beginning of a long one, and dots. Returns buffer. MM_BRIEF(text): the
 * same in a buffer of its own, which lives as long as the block. */
enum { MM_BRIEF_CAPACITY = 104 };
const char *mm_brief(const char *text, char buffer[MM_BRIEF_CAPACITY]);
#define MM_BRIEF(text) mm_brief(text, (char[MM_BRIEF_CAPACITY]){0})

/* "12.5GiB", "640KiB", "17B": exact values stay exact when read back, others have three significant digits.
 * Returns buffer. */
const char *mm_size_format(int64_t bytes, char *buffer, size_t capacity);

/* "61349376 bytes (58.5MiB)", "17 bytes": as messages have a size. Returns buffer. MM_SIZE_TOLD(bytes): the same in a
 * buffer of its own, which lives as long as the block. */
enum { MM_SIZE_TOLD_CAPACITY = 48 };
const char *mm_size_tell(int64_t bytes, char buffer[MM_SIZE_TOLD_CAPACITY]);
#define MM_SIZE_TOLD(bytes) mm_size_tell(bytes, (char[MM_SIZE_TOLD_CAPACITY]){0})

/* Reads "12GiB", "1.5GB", "300MiB", "4096", "64k": powers of 1024 with i or a bare letter, of 1000 with B alone.
 * MM_ERR_INVALID for anything else, negatives and overflow. */
MM_CHECKED mm_status mm_size_parse(const char *text, int64_t *bytes_out);

#endif
