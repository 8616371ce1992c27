/* SPDX-License-Identifier: MIT */
/* The command mm while memory runs out: runs 'mm ARGUMENT...' in child processes, first without a failure, then with
 * one allocation failing in each, a stride apart. Each run must end as the first did, or with exit status 1 and a line
 * on stderr that says that there was no memory; and leave FILE as it was, or as the first run leaves it, or, if that is
 * a state, as an earlier iteration left it.
 *
 *     mm_nomem STRIDE FILE [--same-output] ARGUMENT...        FILE "-": none
 *
 * Prints how many allocations failed, and how many runs ended well all the same. Children are forked, so the libraries
 * are loaded once. */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/core/alloc_fault.h"

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

enum { SECONDS = 120 }; /* after which a run counts as hanging */

/* Nothing fails in jansson's parser, which would crash (mm/core/json_text.h). */
json_t *__real_json_loadb(const char *text, size_t n, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *text, size_t n, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *text, size_t n, size_t flags, json_error_t *error) {
    alloc_fault_pause(true);
    json_t *root = __real_json_loadb(text, n, flags, error);
    alloc_fault_pause(false);
    return root;
}

/* Shared with the children: how many allocations a run had left until the one that fails. */
static int *left;

static void tell_left(void) { *left = alloc_fault_left(); }

/* A file's content. bytes NULL: there is none. */
typedef struct content {
    char *bytes;
    size_t n;
} content;

static _Noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    exit(1);
}

/* Ends with a zero that does not count. */
static content read_fd(int fd) {
    struct stat info;
    content c = {0};
    if (fstat(fd, &info) != 0 || !(c.bytes = malloc((size_t)info.st_size + 1))) fail("mm_nomem: cannot read\n");
    for (ssize_t n = 1; n > 0 && c.n < (size_t)info.st_size; c.n += (size_t)n) {
        n = pread(fd, c.bytes + c.n, (size_t)info.st_size - c.n, (off_t)c.n);
        if (n < 0) fail("mm_nomem: cannot read\n");
    }
    c.bytes[c.n] = '\0';
    return c;
}

static content read_file(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return (content){0};
    const content c = read_fd(fd);
    close(fd);
    return c;
}

static void restore(const char *path, const content *before) {
    unlink(path);
    if (!before->bytes) return;
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, before->bytes, before->n) != (ssize_t)before->n) fail("mm_nomem: cannot write %s\n", path);
    close(fd);
}

static bool is_same(const content *a, const content *b) {
    return !a->bytes == !b->bytes && a->n == b->n && (a->n == 0 || memcmp(a->bytes, b->bytes, a->n) == 0);
}

/* Whether the folder has a temporary file. */
static bool has_left_one(void) {
    DIR *folder = opendir(".");
    bool found = false;
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        const size_t n = strlen(e->d_name);
        found |= n > 4 && strcmp(e->d_name + n - 4, ".tmp") == 0;
    }
    if (folder) closedir(folder);
    return found;
}

/* What a run printed, and how it ended. */
typedef struct outcome {
    content out, err;
    int status, left;
} outcome;

static void outcome_fini(outcome *o) {
    free(o->out.bytes);
    free(o->err.bytes);
}

static outcome run(int nth, int argc, char **argv) {
    const int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
    outcome o = {0};
    *left = INT_MAX;
    const pid_t child = fork();
    if (child == 0) {
        dup2(out, 1);
        dup2(err, 2);
        alarm(SECONDS);
        atexit(tell_left);
        alloc_fault_set(nth);
        exit(__real_main(argc, argv));
    }
    if (child < 0 || waitpid(child, &o.status, 0) != child) fail("mm_nomem: no process\n");
    o.left = *left;
    o.out = read_fd(out);
    o.err = read_fd(err);
    close(out);
    close(err);
    return o;
}

/* Whether a line begins with the command's name, and says something of memory. */
static bool says_no_memory(content *err) {
    bool says = false;
    for (char *line = err->bytes, *end; !says && (end = strchr(line, '\n')); line = end + 1) {
        const char *said = strstr(line, "memory");
        says = strncmp(line, "mm", 2) == 0 && said && said < end;
    }
    return says;
}

static void check(int nth, outcome *o, const outcome *first, bool same_output) {
    const char *wrong = NULL;
    const bool ended = WIFEXITED(o->status);
    const int code = ended ? WEXITSTATUS(o->status) : -1;
    if (!ended)
        wrong = "a signal ended it";
    else if (code == 1 && !says_no_memory(&o->err))
        wrong = "no line says that there was no memory";
    else if (code > 1)
        wrong = "its exit status is neither 0 nor 1";
    else if (code == 0 && same_output && !is_same(&o->out, &first->out))
        wrong = "it printed something else";
    if (wrong)
        fail("allocation %d fails: %s; status %d, signal %d\nout: %s\nerr: %s\n", nth, wrong, code,
             ended ? 0 : WTERMSIG(o->status), code ? "" : o->out.bytes, o->err.bytes);
}

/* Whether the file is a state from which a training can go on. */
static bool loads(const char *path) {
    char *argv[] = {"mm", "train", "--load", (char *)path, "--iterations", "1", "--quiet", NULL};
    outcome o = run(INT_MAX, 7, argv);
    const bool good = o.status == 0;
    outcome_fini(&o);
    return good;
}

static void check_file(int nth, const outcome *o, const char *path, const content *before, const content *after) {
    const content now = read_file(path);
    const bool whole =
        is_same(&now, after) || (WEXITSTATUS(o->status) == 1 && (is_same(&now, before) || (now.bytes && loads(path))));
    if (!whole)
        fail("allocation %d fails: %s is neither as before nor as it should be; status %d\nout: %s\nerr: %s\n", nth,
             path, o->status, o->out.bytes, o->err.bytes);
    free(now.bytes);
    restore(path, before);
}

int __wrap_main(int argc, char **argv) {
    if (argc < 4) fail("usage: mm_nomem STRIDE FILE [--same-output] ARGUMENT...\n");
    const int stride = atoi(argv[1]);
    const char *path = argv[2];
    const bool same_output = strcmp(argv[3], "--same-output") == 0;
    argc -= 2 + same_output;
    argv += 2 + same_output;
    argv[0] = "mm";
    left = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (left == MAP_FAILED || stride < 1) fail("mm_nomem: STRIDE is %d\n", stride);
    const content before = read_file(path);
    outcome first = run(INT_MAX, argc, argv);
    if (first.status != 0) fail("without a failure: status %d\nerr: %s\n", first.status, first.err.bytes);
    const content after = read_file(path);
    const int allocations = INT_MAX - first.left;
    int well = 0, runs = 0;
    restore(path, &before);
    for (int nth = 1; nth <= allocations; nth += stride) {
        outcome o = run(nth, argc, argv);
        check(nth, &o, &first, same_output);
        check_file(nth, &o, path, &before, &after);
        if (has_left_one()) fail("allocation %d fails: a temporary file is left\n", nth);
        well += o.status == 0;
        runs++;
        outcome_fini(&o);
    }
    printf("%d of %d allocations failed, %d runs ended well\n", runs, allocations, well);
    outcome_fini(&first);
    free(before.bytes);
    free(after.bytes);
    return 0;
}
