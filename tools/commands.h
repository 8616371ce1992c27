/* The subcommands of mm. Each takes its own argc and argv, argv[0] being its name, and returns the exit status. */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

#include <signal.h>

#include "mm/core/status.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

int cmd_train(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_device(int argc, char **argv);
int cmd_nets(int argc, char **argv);
int cmd_policies(int argc, char **argv);
int cmd_codecs(int argc, char **argv);

/* Prints "mm COMMAND: message" to stderr; the exit status that goes with the failure: EXIT_USAGE if the command line
 * asks for what makes no sense or is not there, EXIT_FAILED otherwise. */
int command_failed(const char *command, mm_status status);

/* From now on SIGINT and SIGTERM only set what is returned, and the command ends when it is at a good place. */
const volatile sig_atomic_t *command_interruptible(void);

#endif
