/* Ranks of 'mm train': by mpirun, which finds them also on other machines; or, each with a GPU of this one, by mm itself. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/train.h"

/* Copies the command line, but for --ranks and --engine. NULL: no memory. */
static int copy_arguments(const train *t, char **line) {
    int n = 0;
    line[n++] = "train";
    for (int i = 1; i < t->argc; i++) {
        if (strcmp(t->argv[i], "--ranks") == 0 || strcmp(t->argv[i], "--engine") == 0)
            i++;
        else if (strncmp(t->argv[i], "--ranks=", 8) != 0 && strncmp(t->argv[i], "--engine=", 9) != 0)
            line[n++] = t->argv[i];
    }
    line[n++] = "--engine";
    return n;
}

/* Of a rank; under mpirun, behind its own. The caller frees the array. */
static char **command_line(const train *t, bool by_mpirun, char *program, char *number) {
    static char *const before[] = {"mpirun", "--bind-to", "none", "--oversubscribe", "-n"};
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

/* In a group of its own, lest a terminal interrupt it, too. */
static _Noreturn void become(char **line, const char *what) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (!freopen("/dev/null", "r", stdin)) _exit(EXIT_FAILED);
    execvp(line[0], line);
    fprintf(stderr, "mm train: --ranks: %s cannot be started: %s\n", what, strerror(errno));
    _exit(EXIT_FAILED);
}

static void nap(void) {
    const struct timespec time = {.tv_nsec = 20000000};
    nanosleep(&time, NULL);
}

/* ---------------------------------------------------------------- by mpirun */

/* Waits for mpirun. An interrupt goes to the ranks, through it: it itself would kill them. */
static int wait_for(pid_t child, const volatile sig_atomic_t *interrupted) {
    bool passed_on = false;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (*interrupted && !passed_on) passed_on = kill(child, SIGUSR1) == 0;
        nap();
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static mm_status start_by_mpirun(const train *t, char **line, int *code_out) {
    const pid_t child = fork();
    if (child == 0) become(line, "mpirun (Debian's openmpi-bin has it)");
    if (child < 0) return mm_fail(MM_ERR_NOMEM, "--ranks: no process can be started: %s", strerror(errno));
    *code_out = wait_for(child, t->interrupted);
    return MM_OK;
}

/* ---------------------------------------------------------------- by mm */

enum {
    PATIENCE_MS = 4000, /* in which ranks end by themselves once one has failed; then they are killed */
    NAP_MS = 20
};

static void become_rank(void *ctx, int rank) {
    (void)rank;
    become(ctx, "a rank");
}

static void signal_all(const pid_t *processes, int n, int number) {
    for (int r = 0; r < n; r++)
        if (processes[r] > 0) kill(processes[r], number);
}

/* Looks whether a rank has ended; then its process is -1. Returns its exit status, 0 while it runs. A rank that cannot tell why it
 * has ended is told of. */
static int reap(pid_t *process, int rank, bool tells) {
    int status;
    if (*process <= 0 || waitpid(*process, &status, WNOHANG) == 0) return 0;
    *process = -1;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (tells) fprintf(stderr, "mm train: rank %d was killed by signal %d\n", rank, WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

/* Waits for all ranks. One that has failed is the end of all. Returns the exit status of the first that failed, else of rank
 * 0. */
static int wait_for_all(pid_t *processes, int n, const volatile sig_atomic_t *interrupted) {
    bool passed_on = false;
    int code = 0, failed_ms = -1;
    for (bool left = true; left;) {
        left = false;
        if (*interrupted && !passed_on) {
            signal_all(processes, n, SIGUSR1);
            passed_on = true;
        }
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

static mm_status start_here(const train *t, char **line, int *code_out) {
    const int ranks = (int)t->ranks_wanted;
    pid_t *processes = calloc((size_t)ranks, sizeof *processes);
    if (!processes) return mm_fail(MM_ERR_NOMEM, "out of memory for the ranks");
    mm_failure failure;
    mm_failure_keep(&failure, multi_local_start(ranks, become_rank, line, processes));
    if (failure.status != MM_OK) signal_all(processes, ranks, SIGKILL);
    *code_out = wait_for_all(processes, ranks, t->interrupted);
    free(processes);
    return mm_failure_tell(&failure);
}

mm_status train_start(const train *t, bool by_mpirun, int *code_out) {
    char program[4096], number[24];
    int code = -1;
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    snprintf(number, sizeof number, "%lld", (long long)t->ranks_wanted);
    char **line = command_line(t, by_mpirun, program, number);
    if (!line) return mm_fail(MM_ERR_NOMEM, "out of memory for the command line of ranks");
    fflush(NULL);
    mm_status status = (by_mpirun ? start_by_mpirun : start_here)(t, line, &code);
    free(line);
    if (status == MM_OK) *code_out = code;
    return status;
}
