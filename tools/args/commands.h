/* SPDX-License-Identifier: MIT */
/* The subcommands of mm. Each takes its own argc and argv, argv[0] being its name, and returns the exit status. */
#ifndef TOOLS_ARGS_COMMANDS_H
#define TOOLS_ARGS_COMMANDS_H

#include <signal.h>

#include "mm/core/status.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

int cmd_train(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_device(int argc, char **argv);
int cmd_nets(int argc, char **argv);
int cmd_policies(int argc, char **argv);
int cmd_codecs(int argc, char **argv);
int cmd_study(int argc, char **argv); /* mm codecs --study */

/* Prints "mm COMMAND: message" to stderr, and returns the exit status: EXIT_USAGE for MM_ERR_INVALID and
 * MM_ERR_NOT_FOUND, which are faults of the command line, else EXIT_FAILED. */
int command_failed(const char *command, mm_status status);
/* The exit status alone. */
int command_status(mm_status status);

/* From now on SIGINT and SIGTERM only set the variable that is returned; the command looks at it and ends by itself. */
const volatile sig_atomic_t *command_interruptible(void);
/* So does from now on the first byte that comes, or has come, by standard input, or its end. Input waits where a signal
 * would end a process that is not ready for it. */
void command_interruptible_by_input(void);
/* Set by SIGTERM alone. */
const volatile sig_atomic_t *command_terminated(void);

#endif
