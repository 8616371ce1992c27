/* SPDX-License-Identifier: MIT */
/* The logs of 'mm train'. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "mm/core/atomic_file.h"
#include "tools/train/train.h"

/* What a log has to do with the state that the run continues. */
typedef struct log_found {
    bool any;     /* it is a file with something in it */
    off_t end;    /* where the line of the state's iteration ends; 0: it has none, or is no log */
    int64_t last; /* the iteration of its last whole line */
} log_found;

/* The first line of this run's log. */
static const char *head_of(const train *t) {
    return t->eval ? SESSION_LOG_HEAD SESSION_LOG_HEAD_TESTS "\n" : SESSION_LOG_HEAD "\n";
}

/* Reads the lines of a log that begins with `head`. A line that has no end is not counted: the run was killed while it
 * wrote that. */
static mm_status read_log(FILE *file, const char *head, int64_t iteration, log_found *found) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    errno = 0;
    bool is_log = false;
    while ((n = getline(&line, &capacity, file)) > 0) {
        const bool first = !found->any;
        found->any = true;
        if (first) is_log = strcmp(line, head) == 0;
        if (!is_log || line[n - 1] != '\n') break;
        if (first) continue;
        found->last = strtoll(line, NULL, 10);
        if (found->last == iteration) found->end = ftello(file);
    }
    const bool whole = errno != ENOMEM;
    free(line);
    return whole ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory to read a log");
}

static mm_status find_log(const char *path, const char *head, int64_t iteration, log_found *found_out) {
    struct stat about;
    *found_out = (log_found){.any = false};
    FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "r") : NULL;
    if (!file) return MM_OK;
    const mm_status status = read_log(file, head, iteration, found_out);
    fclose(file);
    return status;
}

static mm_status open_log(const char *path, FILE **log_out) {
    if (!path) return MM_OK;
    *log_out = fopen(path, "w");
    if (!*log_out) return mm_fail(MM_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    setvbuf(*log_out, NULL, _IOLBF, BUFSIZ); /* write each line at once, for `tail -f` */
    return MM_OK;
}

static mm_status append_log(const char *path, off_t end, FILE **log_out) {
    if (truncate(path, end) != 0 || !(*log_out = fopen(path, "a")))
        return mm_fail(MM_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    setvbuf(*log_out, NULL, _IOLBF, BUFSIZ);
    return MM_OK;
}

mm_status train_open_logs(train *t, const session *s) {
    log_found found = {.any = false};
    if (t->log_path) MM_TRY(find_log(t->log_path, head_of(t), s->iteration, &found));
    const bool goes_on = t->load && s->iteration > 0 && found.end > 0;
    if (goes_on && found.last > s->iteration)
        fprintf(stderr,
                "mm train: --log %s: goes on after iteration %lld; its lines of later ones, which run again, are cut\n",
                t->log_path, (long long)s->iteration);
    else if (goes_on)
        fprintf(stderr, "mm train: --log %s: goes on after iteration %lld\n", t->log_path, (long long)s->iteration);
    else if (t->load && found.any)
        fprintf(stderr, "mm train: --log %s: is overwritten: it does not have the lines up to iteration %lld\n",
                t->log_path, (long long)s->iteration);
    else if (found.any)
        fprintf(stderr, "mm train: --log %s: is overwritten\n", t->log_path);
    MM_TRY(goes_on ? append_log(t->log_path, found.end, &t->log) : open_log(t->log_path, &t->log));
    if (t->log && !goes_on) fputs(head_of(t), t->log);
    return open_log(t->codec_log_path, &t->codec_log);
}

static mm_status check_log(const char *path, FILE *log) {
    if (!log || (!ferror(log) && fflush(log) == 0)) return MM_OK;
    return mm_fail(MM_ERR_IO, "cannot write %s: %s", path, strerror(mm_stream_errno(log)));
}

mm_status train_check_logs(const train *t) {
    MM_TRY(check_log(t->log_path, t->log));
    return check_log(t->codec_log_path, t->codec_log);
}
