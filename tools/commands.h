/* The subcommands of mm. Each takes its own argc and argv, argv[0] being its name, and returns the exit status. */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

#include "mm/core/status.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

int cmd_train(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_nets(int argc, char **argv);
int cmd_policies(int argc, char **argv);
int cmd_codecs(int argc, char **argv);

/* Prints "mm COMMAND: message" to stderr; the exit status that goes with the failure. */
int command_failed(const char *command, mm_status status);
/* The same for options that make no sense, with a pointer to --help. */
int command_usage(const char *command);

#endif
