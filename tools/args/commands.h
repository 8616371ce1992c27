/* SPDX-License-Identifier: MIT */
/* The subcommands of mm. Each gets its arguments, with its name as argv[0], and returns the exit status. */
#ifndef TOOLS_ARGS_COMMANDS_H
#define TOOLS_ARGS_COMMANDS_H

#include <signal.h>

#include "mm/core/status.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

int cmd_train(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_device(int argc, char **argv);
int cmd_gpus(int argc, char **argv);
int cmd_nets(int argc, char **argv);
int cmd_policies(int argc, char **argv);
int cmd_codecs(int argc, char **argv);
int cmd_study(int argc, char **argv); /* mm codecs --study */

/* Prints "mm COMMAND: message" to stderr, and returns the exit status: EXIT_USAGE for MM_ERR_INVALID and
 * MM_ERR_NOT_FOUND, which are faults of the command line; EXIT_INTERRUPTED for MM_ERR_ORDER after a signal, with which
 * work that was told to stop fails; else EXIT_FAILED. */
int command_failed(const char *command, mm_status status);
/* The same exit status, without the message. */
int command_status(mm_status status);

/* From now on, the first SIGINT or SIGTERM only sets the variable returned; the command polls it and ends by itself. */
const volatile sig_atomic_t *command_interruptible(void);
/* From now on, a byte on standard input, or its end, also sets the variable that command_interruptible returns, even if
 * the byte came before this call. So a parent process can stop a child that is still starting; a signal would kill the
 * child then. */
void command_interruptible_by_input(void);
/* The variable that is set by SIGTERM only: neither SIGINT nor input sets it. */
const volatile sig_atomic_t *command_terminated(void);

#endif
