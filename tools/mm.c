/* SPDX-License-Identifier: MIT */
/* The command mm: runs the subcommand named first. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "mm/core/nearest.h"
#include "tools/args/commands.h"
#include "tools/args/json_file.h"
#include "tools/shell.h"

static int cmd_completion(int argc, char **argv);
static int cmd_man(int argc, char **argv);

static const command commands[] = {
    {"train", "train a network inside a byte budget", cmd_train},
    {"bench", "compare networks, policies and budgets: one table", cmd_bench},
    {"plan", "will it fit, and what takes the memory? (needs no device and no data)", cmd_plan},
    {"verify", "prove plans from files, or show how they go wrong", cmd_verify},
    {"report", "rows, plans and traces as one HTML page", cmd_report},
    {"device", "show the devices, their memory and their speed", cmd_device},
    {"gpus", "list the GPUs that can be planned for by name", cmd_gpus},
    {"nets", "list the networks", cmd_nets},
    {"policies", "list the policies and their options", cmd_policies},
    {"codecs", "list the codecs", cmd_codecs},
    {"codecs --study", "measure how sparse a network's maps are, and how small codecs make them", cmd_study},
    {"completion", "print a script that completes commands in bash or zsh", cmd_completion},
    {"man", "print a man page", cmd_man},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int cmd_completion(int argc, char **argv) { return shell_completion(argc, argv, commands, N_COMMANDS); }
static int cmd_man(int argc, char **argv) { return shell_man(argc, argv, commands, N_COMMANDS); }

static void print_help(FILE *file) {
    fprintf(file, "mm: trains neural networks inside a byte budget\n\nusage: mm COMMAND [OPTIONS]\n\n");
    for (int i = 0; i < N_COMMANDS; i++) fprintf(file, "  %-14s  %s\n", commands[i].name, commands[i].summary);
    fprintf(file, "\n'mm COMMAND --help' describes a command, 'mm --version' prints the version. To start:\n"
                  "  mm plan --net resnet32 --batch 128      how much memory does each policy need?\n"
                  "  mm plan --net gpt2 --which-gpu          which GPUs does it fit?\n"
                  "  mm bench --net resnet20 --batch 32      how much time does each cost?\n"
                  "  mm train --net resnet20 --iterations 50 --policy freelunch:rate=8\n");
}

static int run_command(int argc, char **argv) {
    mm_nearest near = {.text = argv[0], .length = strlen(argv[0])};
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(argv[0], commands[i].name) == 0) return commands[i].run(argc, argv);
        if (!strchr(commands[i].name, ' ')) mm_nearest_try(&near, commands[i].name);
    }
    mm_nearest_try(&near, "version");
    mm_nearest_try(&near, "help");
    fprintf(stderr, "mm: unknown command '%s'%s; 'mm --help' lists them\n", argv[0], MM_DID_YOU_MEAN(&near));
    return EXIT_USAGE;
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0;
    if (help && argc == 2) {
        print_help(stdout);
        return EXIT_OK;
    }
    static const char *const version[] = {"--version", "-V", "-v", "version"};
    for (size_t i = 0; i < sizeof version / sizeof *version; i++)
        if (strcmp(argv[1], version[i]) == 0) {
            printf("mm %s\n", MM_VERSION);
            return EXIT_OK;
        }
    if (help) { /* "help train" */
        char *asked[] = {argv[2], "--help", NULL};
        return run_command(2, asked);
    }
    return run_command(argc - 1, argv + 1);
}

/* The command fails if its output could not be written, even if the rest succeeded. */
int main(int argc, char **argv) {
    json_file_watch();
    int code = run(argc, argv);
    if (!ferror(stdout) && fflush(stdout) == 0) return code;
    fprintf(stderr, "mm: cannot write to standard output: %s\n", strerror(mm_stream_errno(stdout)));
    return code == EXIT_OK ? EXIT_FAILED : code;
}
