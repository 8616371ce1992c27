/* SPDX-License-Identifier: MIT */
#include "tools/args/commands.h"

#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Globals, because a signal handler has no other way to pass on a signal. */
static volatile sig_atomic_t interrupted, terminated;
static struct timespec interrupted_at;

int command_status(mm_status status) {
    if (status == MM_ERR_ORDER && interrupted) return EXIT_INTERRUPTED;
    return status == MM_ERR_INVALID || status == MM_ERR_NOT_FOUND ? EXIT_USAGE : EXIT_FAILED;
}

int command_failed(const char *command, mm_status status) {
    fprintf(stderr, "mm %s: %s\n", command, mm_last_error());
    return command_status(status);
}

enum { TWICE_MS = 100 }; /* signals this close count as one: `timeout` signals the process, then its group */

/* The handler of input: standard input has a byte, or has ended. If `interrupted` is set already, it does nothing,
 * since the end of input calls it again after a byte did. */
static void on_input(int number) {
    (void)number;
    if (interrupted) return;
    clock_gettime(CLOCK_MONOTONIC, &interrupted_at);
    interrupted = 1;
}

/* The second signal ends the process, because the command may not look at `interrupted` for long while it plans. */
static void on_interrupt(int number) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (number == SIGTERM) terminated = 1;
    if (!interrupted) {
        on_input(number);
        return;
    }
    const int64_t ns =
        (int64_t)(now.tv_sec - interrupted_at.tv_sec) * 1000000000 + now.tv_nsec - interrupted_at.tv_nsec;
    if (ns < TWICE_MS * (int64_t)1000000) return;
    signal(number, SIG_DFL);
    raise(number);
}

const volatile sig_atomic_t *command_interruptible(void) {
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    return &interrupted;
}

void command_interruptible_by_input(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    signal(SIGIO, on_input);
    fcntl(STDIN_FILENO, F_SETOWN, getpid());
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_ASYNC);
    if (poll(&input, 1, 0) > 0) on_input(SIGIO);
}

const volatile sig_atomic_t *command_terminated(void) { return &terminated; }
