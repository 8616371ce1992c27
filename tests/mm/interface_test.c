/* SPDX-License-Identifier: MIT */
/* Compares what libmm.so and mm.h offer with their last version (interface_last.txt). With the same soname, programs
 * that were built with the last version must run with this one: functions, constants and structs stay; new ones need a
 * greater MM_VERSION. mm/CONTRIBUTING.md says when to renew the file; --print prints its new text. */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/mm.h"
#include "tests/mm/interface.h"

static const char library_path[] = "mm/libmm.so", last_path[] = "tests/mm/interface_last.txt";

static char *read_file(const char *path, size_t *bytes_out) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s cannot be read", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes_out = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*bytes_out + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes_out, file), *bytes_out);
    data[*bytes_out] = '\0';
    fclose(file);
    return data;
}

/* ---------------------------------------------------------------- the library */

static bool is_public(const char *name) {
    for (size_t i = 0; i < interface_n; i++)
        if (strcmp(interface_entries[i].kind, "function") == 0 && strcmp(interface_entries[i].name, name) == 0)
            return true;
    return false;
}

static int functions(void) {
    int n = 0;
    for (size_t i = 0; i < interface_n; i++) n += strcmp(interface_entries[i].kind, "function") == 0;
    return n;
}

static void the_library_shows_the_functions_of_the_header_and_no_other_symbol(void **state) {
    (void)state;
    size_t bytes;
    int shown = 0;
    char *file = read_file(library_path, &bytes);
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    assert_memory_equal(header->e_ident, ELFMAG, SELFMAG);
    assert_int_equal(header->e_ident[EI_CLASS], ELFCLASS64);
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[s].sh_offset);
        const char *strings = file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 1; i < sections[s].sh_size / sizeof *symbols; i++) {
            if (symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbols[i].st_info) == STB_LOCAL) continue;
            if (!is_public(strings + symbols[i].st_name)) fail_msg("%s is in no header", strings + symbols[i].st_name);
            shown++;
        }
    }
    assert_int_equal(shown, functions());
    free(file);
}

/* The name by which linked programs look for the library. The caller frees it. */
static char *soname(void) {
    size_t bytes;
    char *file = read_file(library_path, &bytes), *name = NULL;
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_DYNAMIC) continue;
        const Elf64_Dyn *entries = (const Elf64_Dyn *)(file + sections[s].sh_offset);
        const char *strings = file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof *entries && !name; i++)
            if (entries[i].d_tag == DT_SONAME) name = strdup(strings + entries[i].d_un.d_val);
    }
    assert_non_null(name);
    free(file);
    return name;
}

static void the_version_is_the_same_as_text_and_as_numbers(void **state) {
    (void)state;
    char numbers[64];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", MM_VERSION_MAJOR, MM_VERSION_MINOR, MM_VERSION_PATCH);
    assert_string_equal(numbers, MM_VERSION);
}

/* ---------------------------------------------------------------- comparing versions */

/* The interface as text, one line each: KIND NAME, then what must not change. The caller frees it. */
static char *interface_text(void) {
    char *text = NULL, *name = soname();
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    fprintf(file, "version %s\nsoname %s\n", MM_VERSION, name);
    for (size_t i = 0; i < interface_n; i++) {
        const interface_entry *e = &interface_entries[i];
        fprintf(file, "%s %s", e->kind, e->name);
        if (e->text) fprintf(file, " %s", e->text);
        if (strcmp(e->kind, "constant") == 0) fprintf(file, " %lld", e->value);
        if (strcmp(e->kind, "struct") == 0) fprintf(file, " %zu bytes", e->bytes);
        if (strcmp(e->kind, "member") == 0) fprintf(file, " %zu bytes at %lld", e->bytes, e->value);
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
    free(name);
    return text;
}

typedef struct line {
    char kind[16], name[96], value[256];
} line;

typedef struct version {
    line *lines;
    int n;
    int numbers[3];
    char soname[64];
} version;

static version version_parse(const char *text) {
    version v = {.lines = calloc(1024, sizeof *v.lines)};
    assert_non_null(v.lines);
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        line *l = &v.lines[v.n];
        assert_non_null(strchr(at, '\n'));
        assert_true(v.n < 1024);
        l->value[0] = '\0';
        assert_true(sscanf(at, "%15s %95s%*[ ]%255[^\n]", l->kind, l->name, l->value) >= 2);
        if (strcmp(l->kind, "version") == 0)
            assert_int_equal(sscanf(l->name, "%d.%d.%d", &v.numbers[0], &v.numbers[1], &v.numbers[2]), 3);
        else if (strcmp(l->kind, "soname") == 0)
            snprintf(v.soname, sizeof v.soname, "%.63s", l->name);
        else
            v.n++;
    }
    return v;
}

static const line *version_find(const version *v, const char *kind, const char *name) {
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->lines[i].kind, kind) == 0 && strcmp(v->lines[i].name, name) == 0) return &v->lines[i];
    return NULL;
}

/* True for the structs that may get new members, because callers pass their size. */
static bool may_grow(const char *name) {
    static const char *const structs[] = {"mm_options", "mm_stats", "mm_loop_options", "mm_stash_options",
                                          "mm_stash_stats"};
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++)
        if (strcmp(structs[i], name) == 0) return true;
    return false;
}

static bool has_grown(const line *before, const line *now) {
    return strcmp(now->kind, "struct") == 0 && may_grow(now->name) && atol(now->value) > atol(before->value);
}

/* True for a member that is added to an existing struct of fixed size. */
static bool is_new_member(const version *before, const line *now) {
    char type[96];
    return strcmp(now->kind, "member") == 0 && sscanf(now->name, "%95[^.]", type) == 1 && !may_grow(type) &&
           version_find(before, "struct", type);
}

/* Writes to `told` which changes this version may not make, one line each. Returns their number. */
static int compare(const char *before_text, const char *now_text, FILE *told) {
    version before = version_parse(before_text), now = version_parse(now_text);
    int found = 0, later = 0;
    for (int i = 0; i < 3 && !later; i++) later = now.numbers[i] - before.numbers[i];
    const bool same = strcmp(before.soname, now.soname) == 0;
    if (later < 0 || (!same && later == 0)) {
        fprintf(told, "MM_VERSION is not greater than the last one\n");
        found++;
    }
    for (int i = 0; same && i < before.n; i++) {
        const line *was = &before.lines[i], *is = version_find(&now, was->kind, was->name);
        if (is && (strcmp(is->value, was->value) == 0 || (later > 0 && has_grown(was, is)))) continue;
        fprintf(told, "%s %s: was '%s', is '%s'\n", was->kind, was->name, was->value, is ? is->value : "gone");
        found++;
    }
    for (int i = 0; same && i < now.n; i++) {
        const line *is = &now.lines[i];
        if (version_find(&before, is->kind, is->name) || (later > 0 && !is_new_member(&before, is))) continue;
        fprintf(told, "%s %s is new: %s\n", is->kind, is->name,
                later > 0 ? "its struct may not grow" : "MM_VERSION must be greater");
        found++;
    }
    free(before.lines);
    free(now.lines);
    return found;
}

static void this_version_keeps_to_the_last_one(void **state) {
    (void)state;
    size_t bytes;
    char *last = read_file(last_path, &bytes), *now = interface_text(), *told = NULL;
    FILE *file = open_memstream(&told, &bytes);
    assert_non_null(file);
    const int found = compare(last, now, file);
    assert_int_equal(fclose(file), 0);
    if (found) fail_msg("%s%d breaches: see \"Versions\" in mm/CONTRIBUTING.md", told, found);
    free(told);
    free(now);
    free(last);
}

static void each_breach_is_told(void **state) {
    (void)state;
    static const char first[] =
        "version 1.2.3\nsoname libmm.so.1\nfunction mm_f int(int)\nconstant MM_A 0\ncount MM_N\n"
        "struct mm_log 24 bytes\nmember mm_log.ctx 8 bytes at 8\n"
        "struct mm_options 16 bytes\nmember mm_options.policy 8 bytes at 8\n";
    static const struct {
        const char *version; /* version of the second interface */
        const char *soname;
        const char *from, *to; /* where `first` has the text `from`, the second interface has `to` */
        const char *tells;     /* the message; NULL: the change is allowed */
    } cases[] = {
        {"1.2.3", "libmm.so.1", "", "", NULL},
        {"1.2.2", "libmm.so.1", "", "", "MM_VERSION is not greater"},
        {"1.3.0", "libmm.so.1", "function mm_f int(int)\n", "", "function mm_f: was 'int(int)', is 'gone'"},
        {"1.3.0", "libmm.so.2", "function mm_f int(int)\n", "", NULL},
        {"1.2.3", "libmm.so.2", "function mm_f int(int)\n", "", "MM_VERSION is not greater"},
        {"1.3.0", "libmm.so.1", "int(int)", "int(long)", "function mm_f: was 'int(int)', is 'int(long)'"},
        {"1.3.0", "libmm.so.1", "MM_A 0", "MM_A 1", "constant MM_A: was '0', is '1'"},
        {"1.3.0", "libmm.so.1", "count", "constant MM_B 1\ncount", NULL},
        {"1.2.3", "libmm.so.1", "count", "constant MM_B 1\ncount", "constant MM_B is new: MM_VERSION must be greater"},
        {"1.3.0", "libmm.so.1", "24", "32", "struct mm_log: was '24 bytes', is '32 bytes'"},
        {"1.3.0", "libmm.so.1", "member mm_log.ctx 8 bytes at 8\n",
         "member mm_log.ctx 8 bytes at 8\nmember mm_log.more 1 bytes at 20\n", "its struct may not grow"},
        {"1.3.0", "libmm.so.1", "ctx 8 bytes at 8", "ctx 8 bytes at 16", "member mm_log.ctx: was '8 bytes at 8'"},
        {"1.3.0", "libmm.so.1", "struct mm_options 16 bytes\n",
         "struct mm_options 24 bytes\nmember mm_options.more 8 bytes at 16\n", NULL},
        {"1.2.3", "libmm.so.1", "struct mm_options 16", "struct mm_options 24", "struct mm_options: was '16 bytes'"},
        {"1.3.0", "libmm.so.1", "struct mm_options 16", "struct mm_options 8", "struct mm_options: was '16 bytes'"},
        {"1.3.0", "libmm.so.1", "policy 8 bytes at 8", "policy 8 bytes at 0", "member mm_options.policy: was"},
        {"1.10.0", "libmm.so.1", "count", "struct mm_new 8 bytes\nmember mm_new.a 8 bytes at 0\ncount", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *rest = strstr(first, "function"), *at = strstr(rest, cases[i].from);
        char second[1024], *told = NULL;
        size_t bytes;
        assert_non_null(at);
        snprintf(second, sizeof second, "version %s\nsoname %s\n%.*s%s%s", cases[i].version, cases[i].soname,
                 (int)(at - rest), rest, cases[i].to, at + strlen(cases[i].from));
        FILE *file = open_memstream(&told, &bytes);
        assert_non_null(file);
        const int found = compare(first, second, file);
        assert_int_equal(fclose(file), 0);
        if (cases[i].tells ? !found || !strstr(told, cases[i].tells) : found)
            fail_msg("case %zu: %d breaches: %s", i, found, told);
        free(told);
    }
}

/* Removes each line of the real interface in turn: compare() must report each. */
static void each_line_of_the_interface_is_compared(void **state) {
    (void)state;
    char *now = interface_text(), *without = malloc(strlen(now) + 1);
    FILE *told = fopen("/dev/null", "w");
    assert_non_null(without);
    assert_non_null(told);
    int lines = 0;
    for (char *at = strchr(strchr(now, '\n') + 1, '\n') + 1; *at; lines++) { /* after the lines of version and soname */
        char *next = strchr(at, '\n') + 1;
        sprintf(without, "%.*s%s", (int)(at - now), now, next);
        assert_int_equal(compare(now, without, told), 1);
        at = next;
    }
    assert_int_equal(lines, interface_n);
    assert_true(lines > 350);
    fclose(told);
    free(without);
    free(now);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        char *text = interface_text();
        fputs(text, stdout);
        free(text);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_shows_the_functions_of_the_header_and_no_other_symbol),
        cmocka_unit_test(the_version_is_the_same_as_text_and_as_numbers),
        cmocka_unit_test(this_version_keeps_to_the_last_one),
        cmocka_unit_test(each_breach_is_told),
        cmocka_unit_test(each_line_of_the_interface_is_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
