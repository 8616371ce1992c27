/* SPDX-License-Identifier: MIT */
#include "tools/facts/gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "mm/core/text.h"

const char *gpu_generation_name(gpu_generation generation) {
    static const char *const names[] = {"Kepler", "Maxwell", "Pascal", "Volta",    "Turing",
                                        "Ampere", "Ada",     "Hopper", "Blackwell"};
    _Static_assert(sizeof names / sizeof *names == GPU_GENERATIONS, "a name for each generation");
    return names[generation];
}

/* ---------------------------------------------------------------- names */

enum { KEY_CAPACITY = 64 };

/* Writes a name's letters and digits, in lower case, without words of the vendor before it. A longer name is cut off;
 * no name in the table is so long. */
static void key_of(const char *name, size_t length, char key[KEY_CAPACITY]) {
    static const char *const words[] = {"nvidia", "geforce", "tesla"};
    size_t n = 0;
    memset(key, 0, KEY_CAPACITY);
    for (size_t i = 0; i < length && n + 1 < KEY_CAPACITY; i++)
        if (isalnum((unsigned char)name[i])) key[n++] = (char)tolower((unsigned char)name[i]);
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        const size_t word = strlen(words[w]);
        if (strncmp(key, words[w], word) == 0 && key[word]) memmove(key, key + word, strlen(key + word) + 1);
    }
}

/* How well a GPU's names match a key. */
typedef enum match { NO_MATCH, BEGINS, EQUAL } match;

static match match_one(const char *name, size_t length, const char *key) {
    char own[KEY_CAPACITY];
    key_of(name, length, own);
    if (strcmp(own, key) == 0) return EQUAL;
    return strncmp(own, key, strlen(key)) == 0 ? BEGINS : NO_MATCH;
}

static match match_of(const gpu *g, const char *key) {
    match best = match_one(g->name, strlen(g->name), key);
    for (const char *alias = g->aliases; *alias && best != EQUAL;
         alias += strcspn(alias, ";"), alias += *alias == ';') {
        const match found = match_one(alias, strcspn(alias, ";"), key);
        if (found > best) best = found;
    }
    return best;
}

/* Of the GPUs that match as well as `least`, returns the number, the first, and their names as a list. */
static int list_matches(const char *key, match least, const gpu **first, char *names, size_t capacity) {
    int n = 0;
    size_t length = 0;
    names[0] = '\0';
    for (size_t i = 0; i < gpu_table_n; i++) {
        if (match_of(&gpu_table[i], key) < least) continue;
        if (n++ == 0) *first = &gpu_table[i];
        length += (size_t)snprintf(names + length, capacity - length, "%s%s", n > 1 ? ", " : "", gpu_table[i].name);
        if (length >= capacity) length = capacity - 1;
    }
    return n;
}

/* Offers a name to the search. If it is the nearest so far, keeps a copy of it in `best`. */
static void offer(mm_nearest *near, const char *name, size_t length, char best[KEY_CAPACITY]) {
    char key[KEY_CAPACITY];
    const char *before = near->found;
    key_of(name, length, key);
    mm_nearest_try(near, key);
    if (near->found == before) return;
    snprintf(best, KEY_CAPACITY, "%.*s", (int)length, name);
    near->found = best;
}

/* The length of the name without its variant: that of A100 in A100-40; of the whole name in RTX-4090. */
static size_t family(const char *name) {
    const size_t length = strcspn(name, "-");
    return strcspn(name, "0123456789") < length ? length : strlen(name);
}

/* begins: the only GPU whose name begins so; NULL: none, or several. */
static mm_status unknown(const char *name, const char *key, const gpu *begins) {
    char best[KEY_CAPACITY] = "";
    mm_nearest near = {.text = key, .length = strlen(key), .found = begins ? begins->name : NULL};
    for (size_t i = 0; !begins && i < gpu_table_n; i++) {
        offer(&near, gpu_table[i].name, strlen(gpu_table[i].name), best);
        offer(&near, gpu_table[i].name, family(gpu_table[i].name), best);
    }
    return mm_fail(MM_ERR_NOT_FOUND, "no GPU is called '%s'%s; 'mm gpus' lists them", MM_BRIEF(name),
                   MM_DID_YOU_MEAN(&near));
}

mm_status gpu_find(const char *name, const gpu **gpu_out) {
    char key[KEY_CAPACITY], names[512];
    const gpu *first = NULL;
    key_of(name, strlen(name), key);
    int n = *key ? list_matches(key, EQUAL, &first, names, sizeof names) : 0;
    if (n == 1) {
        *gpu_out = first;
        return MM_OK;
    }
    if (n == 0 && *key) n = list_matches(key, BEGINS, &first, names, sizeof names);
    if (n < 2) return unknown(name, key, n == 1 ? first : NULL);
    return mm_fail(MM_ERR_INVALID, "GPU '%s' may be %s: name one of them", MM_BRIEF(name), names);
}
