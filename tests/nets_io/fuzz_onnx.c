/* SPDX-License-Identifier: MIT */
/* Damaged ONNX files: each is refused in one line, or is a network. Bytes are flipped, removed, doubled and swapped
 * between files; and each allocation of an import fails once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx.h"
#include "nets/io/reader_random.h"
#include "tests/core/alloc_fault.h"
#include "tests/core/deep.h"
#include "tests/core/test_case.h"
#include "tests/nets_io/scratch.h"

enum { ROUNDS = 4000, DEEP_ROUNDS = 400000, MAX_EDITS = 6 };

static const char *const FILES[] = {"heads", "norms", "images_newer", "tokens_sdpa", "patches_older"};
enum { N_FILES = sizeof FILES / sizeof *FILES };

typedef struct random_numbers {
    uint64_t key, counter;
} random_numbers;

static size_t below(random_numbers *random, size_t n) {
    return (size_t)nets_random_below(nets_random_at(random->key, random->counter++), n);
}

static uint8_t *read_reference(int i, size_t *bytes_out) {
    char path[128];
    snprintf(path, sizeof path, "tests/nets_io/references/%s.onnx", FILES[i]);
    return scratch_read(path, bytes_out);
}

/* One edit of at most 16 bytes; the array has room for 16 more. Returns the new length. */
static size_t mutate(random_numbers *random, uint8_t *bytes, size_t n, const uint8_t *other, size_t n_other) {
    if (n < 32) return n;
    const size_t length = 1 + below(random, 16), at = below(random, n - length), from = below(random, n - length);
    switch (below(random, 6)) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << below(random, 8));
        return n;
    case 1:
        bytes[at] = (uint8_t)below(random, 256);
        return n;
    case 2: /* remove */
        memmove(bytes + at, bytes + at + length, n - at - length);
        return n - length;
    case 3: /* double */
        memmove(bytes + at + length, bytes + at, n - at);
        return n + length;
    case 4:
        memmove(bytes + at, bytes + from, length);
        return n;
    default:
        memcpy(bytes + at, other + below(random, n_other - length), length);
        return n;
    }
}

static void check(const uint8_t *bytes, size_t n, uint64_t round) {
    nets_net *net = NULL;
    const mm_status status = nets_onnx_parse("damaged.onnx", bytes, (int64_t)n, &net);
    if (status != MM_OK && strchr(mm_last_error(), '\n'))
        fail_msg("round %d: not one line: %s", (int)round, mm_last_error());
    if (status != MM_OK && strncmp(mm_last_error(), "damaged.onnx", 12) != 0)
        fail_msg("round %d: the file is not named: %s", (int)round, mm_last_error());
    if (status == MM_OK) assert_non_null(net);
    nets_net_destroy(net);
}

TEST_CASE(damaged_files_are_refused_or_networks) {
    uint8_t *files[N_FILES];
    size_t sizes[N_FILES], most = 0;
    for (int i = 0; i < N_FILES; i++) {
        files[i] = read_reference(i, &sizes[i]);
        most = sizes[i] > most ? sizes[i] : most;
    }
    const uint64_t rounds = (uint64_t)test_depth(test_is_sanitized() ? ROUNDS / 4 : ROUNDS, DEEP_ROUNDS);
    for (uint64_t round = 0; round < rounds; round++) {
        random_numbers random = {mm_random_mix(round + 1), 0};
        const size_t k = below(&random, N_FILES), other = below(&random, N_FILES),
                     edits = 1 + below(&random, MAX_EDITS);
        uint8_t *bytes = malloc(most + 16 * MAX_EDITS);
        assert_non_null(bytes);
        size_t n = sizes[k];
        memcpy(bytes, files[k], n);
        for (size_t e = 0; e < edits; e++) n = mutate(&random, bytes, n, files[other], sizes[other]);
        uint8_t *exact = malloc(n); /* so that a sanitizer sees reads beyond it */
        assert_non_null(exact);
        memcpy(exact, bytes, n);
        check(exact, n, round);
        free(exact);
        free(bytes);
    }
    for (int i = 0; i < N_FILES; i++) free(files[i]);
}

TEST_CASE(files_that_end_early_are_refused) {
    for (int i = 0; i < N_FILES; i++) {
        size_t n;
        uint8_t *file = read_reference(i, &n);
        for (size_t end = 0; end < n; end += end < 256 ? 1 : n / 64) check(file, end, end);
        free(file);
    }
}

TEST_CASE(each_allocation_that_fails_is_an_error_and_leaves_nothing) {
    for (int i = 0; i < N_FILES; i++) {
        size_t n;
        uint8_t *file = read_reference(i, &n);
        bool happened = true;
        for (int nth = 1; happened; nth += nth < 64 ? 1 : 7) {
            nets_net *net = NULL;
            alloc_fault_set(nth);
            const mm_status status = nets_onnx_parse("made.onnx", file, (int64_t)n, &net);
            happened = alloc_fault_happened();
            alloc_fault_set(0);
            if (happened && status != MM_ERR_NOMEM)
                fail_msg("%s: allocation %d: %d %s", FILES[i], nth, (int)status, mm_last_error());
            if (!happened) assert_int_equal(status, MM_OK);
            nets_net_destroy(net);
        }
        free(file);
    }
}
