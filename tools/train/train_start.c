/* SPDX-License-Identifier: MIT */
/* Starts the ranks of 'mm train --ranks': by mpirun, or, if each gets a GPU and NCCL connects them, by mm itself. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/args/commands.h"
#include "tools/train/train.h"

/* Copies the command line without --ranks and --comm, and ends it with --comm. Returns the number of arguments. */
static int copy_arguments(const train *t, char **line) {
    int n = 0;
    line[n++] = "train";
    for (int i = 1; i < t->argc; i++) {
        if (strcmp(t->argv[i], "--ranks") == 0 || strcmp(t->argv[i], "--comm") == 0 ||
            strcmp(t->argv[i], "--engine") == 0)
            i++;
        else if (strncmp(t->argv[i], "--ranks=", 8) != 0 && strncmp(t->argv[i], "--comm=", 7) != 0 &&
                 strncmp(t->argv[i], "--engine=", 9) != 0)
            line[n++] = t->argv[i];
    }
    line[n++] = "--comm";
    return n;
}

/* The command line that starts a rank; by_mpirun: that of mpirun, which ends with the ranks' command line. The caller
 * frees the array. NULL: out of memory. */
static char **command_line(const train *t, bool by_mpirun, char *program, char *number) {
    static char *const before[] = {"mpirun", "--bind-to", "none", "--oversubscribe", "-x", TRAIN_STARTED_VARIABLE,
                                   "-n"};
    enum { BEFORE = sizeof before / sizeof *before, MORE = 6 };
    char **line = calloc((size_t)t->argc + BEFORE + MORE, sizeof *line);
    if (!line) return NULL;
    int n = 0;
    for (int i = 0; by_mpirun && i < BEFORE; i++) line[n++] = before[i];
    if (by_mpirun) line[n++] = number;
    line[n++] = program;
    n += copy_arguments(t, line + n);
    line[n++] = by_mpirun ? "mpi" : "nccl";
    return line;
}

/* What to start, and the pipe that passes an interrupt on. */
typedef struct start {
    const train *t;
    char **line;
    int told[2]; /* pipe to the standard input of rank 0, or of mpirun, which forwards it. Both ends stay open here */
    bool passed_on;
    int heard[2];         /* pipe from mpirun's standard error; -1: none */
    char line_heard[256]; /* the line of it that is not yet complete */
    size_t n_heard;
    int lost_rank, lost_signal; /* what mpirun said of a rank that a signal killed; -1: nothing */
} start;

/* Turns a forked child into a rank or mpirun, in its own process group, so that the terminal's Ctrl-C reaches only the
 * parent. told: its standard input is the pipe. */
static _Noreturn void become(const start *s, bool told, const char *what) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (s->heard[1] >= 0 && dup2(s->heard[1], STDERR_FILENO) < 0) _exit(EXIT_FAILED);
    if (told ? dup2(s->told[0], STDIN_FILENO) < 0 : !freopen("/dev/null", "r", stdin)) _exit(EXIT_FAILED);
    execvp(s->line[0], s->line);
    fprintf(stderr, "mm train: --ranks: %s cannot be started: %s\n", what, strerror(errno));
    _exit(EXIT_FAILED);
}

/* Passes an interrupt on through the pipe. A signal would kill a rank that does not yet handle it. */
static void pass_on(start *s) {
    if (*s->t->interrupted && !s->passed_on) s->passed_on = write(s->told[1], "\n", 1) == 1;
}

static void nap(void) {
    const struct timespec time = {.tv_nsec = 20000000};
    nanosleep(&time, NULL);
}

/* ---------------------------------------------------------------- by mpirun */

/* Looks for Open MPI's "mpirun noticed that process rank 1 with PID 123 on node a exited on signal 9 (Killed)." */
static void read_line(start *s) {
    static const char rank[] = "process rank ", number[] = "exited on signal ";
    s->line_heard[s->n_heard] = 0;
    const char *who = strstr(s->line_heard, rank), *why = strstr(s->line_heard, number);
    s->n_heard = 0;
    if (!who || !why || s->lost_rank >= 0) return;
    s->lost_rank = atoi(who + sizeof rank - 1);
    s->lost_signal = atoi(why + sizeof number - 1);
}

/* Prints what mpirun and the ranks have printed on standard error. False: nothing was there. */
static bool hear(start *s) {
    char bytes[4096];
    const ssize_t n = read(s->heard[0], bytes, sizeof bytes);
    if (n <= 0) return false;
    fwrite(bytes, 1, (size_t)n, stderr);
    for (ssize_t i = 0; i < n; i++)
        if (bytes[i] == '\n')
            read_line(s);
        else if (s->n_heard < sizeof s->line_heard - 1)
            s->line_heard[s->n_heard++] = bytes[i];
    return true;
}

static int wait_for(pid_t child, start *s) {
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        pass_on(s);
        if (!hear(s)) nap();
    }
    while (hear(s)) continue;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (s->lost_rank >= 0)
        fprintf(stderr, "mm train: rank %d was killed by signal %d\n", s->lost_rank, s->lost_signal);
    else if (code > 128 && code != EXIT_INTERRUPTED)
        fprintf(stderr, "mm train: a rank, or mpirun, was killed by signal %d\n", code - 128);
    return code;
}

static mm_status start_by_mpirun(start *s, int *code_out) {
    if (pipe2(s->heard, O_CLOEXEC | O_NONBLOCK) != 0)
        return mm_fail(MM_ERR_NOMEM, "--ranks: no pipe can be made: %s", strerror(errno));
    fcntl(s->heard[1], F_SETFL, 0); /* mpirun's end blocks */
    const pid_t child = fork();
    if (child == 0) become(s, true, "mpirun (Debian's openmpi-bin has it)");
    close(s->heard[1]);
    if (child >= 0) *code_out = wait_for(child, s);
    close(s->heard[0]);
    return child >= 0 ? MM_OK : mm_fail(MM_ERR_NOMEM, "--ranks: no process can be started: %s", strerror(errno));
}

/* ---------------------------------------------------------------- by mm */

enum {
    PATIENCE_MS = 4000, /* once a rank has failed, the others have this long to end; then they are killed */
    NAP_MS = 20
};

static void become_rank(void *ctx, int rank) { become(ctx, rank == 0, "a rank"); }

static void signal_all(const pid_t *processes, int n, int number) {
    for (int r = 0; r < n; r++)
        if (processes[r] > 0) kill(processes[r], number);
}

/* Checks whether a rank has ended, and if so sets *process to -1. Returns its exit status, 0 while it runs. tells:
 * print a line if a signal killed it. */
static int reap(pid_t *process, int rank, bool tells) {
    int status = 0;
    if (*process <= 0 || waitpid(*process, &status, WNOHANG) == 0) return 0;
    *process = -1;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (tells) fprintf(stderr, "mm train: rank %d was killed by signal %d\n", rank, WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

/* Waits for all ranks. If one fails, the others are killed after PATIENCE_MS. Returns the first exit status that is not
 * 0, else 0. */
static int wait_for_all(pid_t *processes, int n, start *s) {
    int code = 0, failed_ms = -1;
    for (bool left = true; left;) {
        left = false;
        pass_on(s);
        for (int r = 0; r < n; r++) {
            const int one = reap(&processes[r], r, failed_ms < 0);
            left |= processes[r] > 0;
            if (one == 0) continue;
            if (code == 0) code = one;
            if (one != EXIT_INTERRUPTED && failed_ms < 0) failed_ms = 0;
        }
        if (failed_ms >= 0 && failed_ms < PATIENCE_MS)
            failed_ms += NAP_MS;
        else if (failed_ms >= 0)
            signal_all(processes, n, SIGKILL);
        if (left) nap();
    }
    return code;
}

static mm_status start_here(start *s, int *code_out) {
    const int ranks = (int)s->t->ranks_wanted;
    pid_t *processes = calloc((size_t)ranks, sizeof *processes);
    if (!processes) return mm_fail(MM_ERR_NOMEM, "out of memory for the ranks");
    mm_failure failure;
    mm_failure_save(&failure, comm_local_start(ranks, become_rank, s, processes));
    if (failure.status != MM_OK) signal_all(processes, ranks, SIGKILL);
    *code_out = wait_for_all(processes, ranks, s);
    free(processes);
    return mm_failure_restore(&failure);
}

mm_status train_start(const train *t, bool by_mpirun, int *code_out) {
    char program[4096], number[24];
    int code = -1;
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    snprintf(number, sizeof number, "%lld", (long long)t->ranks_wanted);
    start s = {.t = t, .line = command_line(t, by_mpirun, program, number), .heard = {-1, -1}, .lost_rank = -1};
    if (!s.line) return mm_fail(MM_ERR_NOMEM, "out of memory for the command line of ranks");
    mm_status status = pipe2(s.told, O_CLOEXEC) == 0
                           ? MM_OK
                           : mm_fail(MM_ERR_NOMEM, "--ranks: no pipe can be made: %s", strerror(errno));
    if (status == MM_OK) {
        fflush(NULL);
        signal(SIGCHLD, SIG_DFL); /* if the parent set SIG_IGN, waitpid would not see children end */
        setenv(TRAIN_STARTED_VARIABLE, "1", 1);
        status = (by_mpirun ? start_by_mpirun : start_here)(&s, &code);
        close(s.told[0]);
        close(s.told[1]);
    }
    free(s.line);
    if (status == MM_OK) *code_out = code;
    return status;
}
