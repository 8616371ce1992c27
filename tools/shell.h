/* SPDX-License-Identifier: MIT */
/* mm completion and mm man: what a shell and man need, made from the commands' tables of options. */
#ifndef TOOLS_SHELL_H
#define TOOLS_SHELL_H

/* A command of mm. A name of two words, "codecs --study", is a command whose first word alone is another one; that one
 * runs it. */
typedef struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

/* "completion bash|zsh": prints a script that completes commands, options and names of networks and policies. Returns
 * the exit status. */
int shell_completion(int argc, char **argv, const command *commands, int n);

/* "man [COMMAND]": prints the page of mm, or of a command, in man's language. Returns the exit status. */
int shell_man(int argc, char **argv, const command *commands, int n);

#endif
