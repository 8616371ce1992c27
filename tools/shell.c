/* SPDX-License-Identifier: MIT */
#include "tools/shell.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "nets/zoo/zoo.h"
#include "policies/policy.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/help.h"
#include "tools/facts/gpu.h"

/* The length of a command's first word. */
static int first_word(const command *c) { return (int)strcspn(c->name, " "); }

static bool has_two_words(const command *c) { return c->name[first_word(c)] != '\0'; }

static bool is_called(const command *c, const char *word) {
    return strlen(word) == (size_t)first_word(c) && strncmp(c->name, word, strlen(word)) == 0;
}

/* Has the command print its help in another form (help_print_as). */
static int print_as(const command *c, const char *form) {
    char option[32], name[32];
    snprintf(name, sizeof name, "%.*s", first_word(c), c->name);
    snprintf(option, sizeof option, "--help=%s", form);
    char *argv[] = {name, option, NULL};
    return c->run(2, argv);
}

/* ---------------------------------------------------------------- completion */

static void print_commands(const command *commands, int n) {
    for (int i = 0; i < n; i++)
        if (!has_two_words(&commands[i])) printf("%s ", commands[i].name);
    printf("help version");
}

static void print_nets(void) {
    const char *name;
    for (size_t i = 0; (name = nets_zoo_list(i, NULL)); i++)
        if (!strchr(name, '<')) printf("%s ", name); /* not the families of networks */
}

static void print_policies(void) {
    const char *name, *summary;
    for (size_t i = 0; (name = mm_policy_list(i, &summary)); i++) printf("%s ", name);
}

static void print_gpus(void) {
    for (size_t i = 0; i < gpu_table_n; i++) printf("%s ", gpu_table[i].name);
}

/* Prints the lines of a "case" that sets `list` by what an option's value is called in its table. */
static void print_lists(const command *commands, int n) {
    printf("    NET*) list='");
    print_nets();
    printf("' ;;\n    POLICY*) list='all ");
    print_policies();
    printf("' ;;\n    *GPU*) list='");
    print_gpus();
    printf("' ;;\n    *COMMAND*) list='");
    print_commands(commands, n);
    printf("' ;;\n");
}

static const char bash_begin[] =
    "_mm() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}\n"
    "    local options='' option value='' before='' list='' word\n"
    "    COMPREPLY=()\n"
    "    ((COMP_CWORD > 1)) || command=''\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=''\n"
    "    elif [[ $prev == = ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    fi\n";

static const char bash_middle[] =
    "    read -ra options <<<\"$options\"\n"
    "    for option in \"${options[@]}\"; do\n"
    "        if [[ $option == \"$prev=\"* && $prev == --* ]]; then value=${option#*=}; fi\n"
    "    done\n"
    "    if [[ ! $value ]]; then\n"
    "        for option in \"${options[@]}\"; do\n"
    "            if [[ $option == =* ]]; then value=${option#=}; else list+=\"${option%%=*} \"; fi\n"
    "        done\n"
    "        [[ $cur != -* ]] || value=''\n"
    "        [[ ! $value ]] || list=''\n"
    "    fi\n"
    "    case $value in\n"
    "    *FILE* | OUT)\n"
    "        compopt -o filenames\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "        return\n"
    "        ;;\n";

/* Of "N|auto" and "host|cuda[:N]", what is in capitals or in brackets is not to be typed. */
static const char bash_end[] =
    "    *'|'*)\n"
    "        for word in ${value//|/ }; do\n"
    "            word=${word%%\\[*}\n"
    "            [[ $word == [A-Z]* ]] || list+=\"$word \"\n"
    "        done\n"
    "        ;;\n"
    "    esac\n"
    "    if [[ $value == *,.. && $cur == *,* ]]; then before=${cur%,*},; fi\n"
    "    mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$list\" -- \"${cur#\"$before\"}\")\n"
    "}\n"
    "complete -F _mm mm\n";

static void print_bash(const command *commands, int n) {
    printf("# Completes mm in bash. Made by 'mm completion bash'.\n%s", bash_begin);
    for (int i = 0; i < n; i++)
        if (has_two_words(&commands[i]))
            printf("    if [[ $command == %.*s && \" ${COMP_WORDS[*]} \" == *\" %s \"* ]]; then command='%s'; fi\n",
                   first_word(&commands[i]), commands[i].name, commands[i].name + first_word(&commands[i]) + 1,
                   commands[i].name);
    printf("    case $command in\n    '' | help) options==COMMAND ;;\n");
    for (int i = 0; i < n; i++) {
        printf("    '%s') options='", commands[i].name);
        fflush(stdout);
        print_as(&commands[i], "bash");
        printf("' ;;\n");
    }
    printf("    esac\n%s", bash_middle);
    print_lists(commands, n);
    fputs(bash_end, stdout);
}

static const char zsh_begin[] = "_mm_value() {\n"
                                "    local list=''\n"
                                "    case $1 in\n"
                                "    *FILE* | OUT) _files && return ;;\n";

static const char zsh_middle[] = "    *'|'*) list=${(j: :)${(M)${(s:|:)1}:#[a-z]*}%%\\[*} ;;\n"
                                 "    esac\n"
                                 "    if [[ $1 == *,.. ]]; then\n"
                                 "        compset -P '*,'\n"
                                 "        compadd -S '' -- ${=list}\n"
                                 "    else\n"
                                 "        compadd -- ${=list}\n"
                                 "    fi\n"
                                 "}\n"
                                 "\n"
                                 "_mm() {\n"
                                 "    local command=$words[2]\n"
                                 "    local -a commands\n"
                                 "    commands=(\n";

static void print_zsh(const command *commands, int n) {
    printf("#compdef mm\n# Completes mm in zsh. Made by 'mm completion zsh'.\n%s", zsh_begin);
    print_lists(commands, n);
    fputs(zsh_middle, stdout);
    for (int i = 0; i < n; i++)
        if (!has_two_words(&commands[i])) printf("        '%s:%s'\n", commands[i].name, commands[i].summary);
    printf("    )\n"
           "    if ((CURRENT == 2)); then\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n");
    for (int i = 0; i < n; i++)
        if (has_two_words(&commands[i]))
            printf("    if [[ $command == %.*s && ${words[(I)%s]} -gt 0 ]]; then command='%s'; fi\n",
                   first_word(&commands[i]), commands[i].name, commands[i].name + first_word(&commands[i]) + 1,
                   commands[i].name);
    printf("    shift words\n"
           "    ((CURRENT--))\n"
           "    case $command in\n"
           "    help) _mm_value COMMAND ;;\n");
    for (int i = 0; i < n; i++) {
        printf("    '%s')\n        _arguments \\\n", commands[i].name);
        print_as(&commands[i], "zsh");
        printf("        ;;\n");
    }
    printf("    esac\n}\n\n_mm \"$@\"\n");
}

int shell_completion(int argc, char **argv, const command *commands, int n) {
    arg_texts shells = {0};
    bool help;
    const arg table[] = {{"bash|zsh", NULL, "the shell", ARG_WORDS, &shells, 0, 0}, {0}};
    mm_status status =
        args_parse(argc, argv, table, "mm completion bash|zsh",
                   "Prints a script with which a shell completes commands, options, networks and policies.\n"
                   "'tools/install' puts it where shells look for it. Without an installation:\n"
                   "\n"
                   "  source <(mm completion bash)\n"
                   "  mm completion zsh >~/.zfunc/_mm    # a folder in fpath, set before compinit is called",
                   &help);
    if (status == MM_OK && help) return EXIT_OK;
    const char *shell = shells.n == 1 ? shells.text[0] : "";
    if (status == MM_OK && strcmp(shell, "bash") == 0)
        print_bash(commands, n);
    else if (status == MM_OK && strcmp(shell, "zsh") == 0)
        print_zsh(commands, n);
    else if (status == MM_OK)
        status = mm_fail(MM_ERR_INVALID, "give one shell, bash or zsh: mm completion bash");
    return status == MM_OK ? EXIT_OK : command_failed("completion", status);
}

/* ---------------------------------------------------------------- man pages */

static void print_title(const char *name, const char *summary) {
    printf(".TH \"%s\" 1 \"\" \"mm %s\" \"mm\"\n.SH NAME\n", name, MM_VERSION);
    help_put_roff(name);
    printf(" \\- ");
    help_put_roff(summary);
    printf("\n");
}

static void print_entry(const char *name, const char *text) {
    printf(".TP\n.B ");
    help_put_roff(name);
    printf("\n");
    help_put_roff(text);
    printf("\n");
}

static void print_end(void) {
    printf(".SH EXIT STATUS\n");
    print_entry("0", "done");
    print_entry("1", "failed, or it does not fit; a line on standard error says what, where and what to do");
    print_entry("2", "the command line is wrong");
    print_entry("130", "interrupted by Ctrl-C or SIGTERM");
}

static void print_main_page(const command *commands, int n) {
    print_title("mm", "train neural networks inside a byte budget");
    printf(".SH SYNOPSIS\n.B mm\n.I COMMAND\n[OPTIONS]\n.SH COMMANDS\n");
    for (int i = 0; i < n; i++) print_entry(commands[i].name, commands[i].summary);
    print_end();
    printf(".SH SEE ALSO\n");
    for (int i = 0; i < n; i++)
        if (!has_two_words(&commands[i])) printf("%s.BR mm\\-%s (1)", i ? ",\n" : "", commands[i].name);
    printf("\n");
}

/* Prints a command's page: also of its form with a second word. False: there is no such command. */
static bool print_page(const command *commands, int n, const char *word) {
    bool found = false;
    char name[32];
    for (int i = 0; i < n; i++) {
        if (!is_called(&commands[i], word)) continue;
        snprintf(name, sizeof name, "mm-%s", word);
        if (!found) print_title(name, commands[i].summary);
        found = true;
        fflush(stdout);
        print_as(&commands[i], "man");
    }
    if (!found) return false;
    print_end();
    printf(".SH SEE ALSO\n.BR mm (1)\n");
    return true;
}

int shell_man(int argc, char **argv, const command *commands, int n) {
    arg_texts words = {0};
    bool help;
    const arg table[] = {{"[COMMAND]", NULL, "the command; without it, the page of mm", ARG_WORDS, &words, 0, 0}, {0}};
    mm_status status = args_parse(argc, argv, table, "mm man [COMMAND]",
                                  "Prints a man page, made of what --help says. 'tools/install' installs all of them.\n"
                                  "\n"
                                  "  mm man plan | man -l -",
                                  &help);
    if (status == MM_OK && help) return EXIT_OK;
    if (status == MM_OK && words.n > 1) status = mm_fail(MM_ERR_INVALID, "give one command: mm man plan");
    if (status == MM_OK && words.n == 0) print_main_page(commands, n);
    if (status == MM_OK && words.n == 1 && !print_page(commands, n, words.text[0])) {
        mm_nearest near = {.text = words.text[0], .length = strlen(words.text[0])};
        for (int i = 0; i < n; i++) mm_nearest_try(&near, commands[i].name);
        status = mm_fail(MM_ERR_INVALID, "unknown command '%s'%s; 'mm --help' lists them", words.text[0],
                         MM_DID_YOU_MEAN(&near));
    }
    return status == MM_OK ? EXIT_OK : command_failed("man", status);
}
