/* SPDX-License-Identifier: MIT */
#include "tests/comm/comm_sums.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/core/random.h"

enum { ROUNDS = 5, AT_A_TIME = 7, SIZES = 6, LARGE = (1 << 20) + 4097 };

/* Element i of a rank's data. Floats differ so much in size that a sum in another order than that of ranks has other
 * bits. */
static int32_t element(uint64_t seed, int rank, int64_t i, comm_op kind) {
    uint64_t state = seed * 1000003 + (uint64_t)rank * 7919 + (uint64_t)i;
    const int number = random_below(&state, 1 << 20);
    if (kind == COMM_COUNT) return i % 11 == 5 && rank > 0 ? -number - 1 : number;
    const float value = (float)number * (i % 3 ? 1e-3f : 1e4f) * (number % 2 ? 1 : -1);
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* What rank `rank` has as element i of n. COMM_OWN: *is_void: nothing that is told. */
static int32_t expected(uint64_t seed, int rank, int ranks, int64_t i, int64_t n, comm_op kind, bool *is_void) {
    const int owner = n > 0 ? (int)(i / (n / ranks > 0 ? n / ranks : 1)) : 0;
    *is_void = kind == COMM_OWN && owner != rank;
    if (kind == COMM_BYTES) return element(seed, owner, i, kind);
    int32_t bits = element(seed, 0, i, kind);
    if (kind == COMM_COUNT) {
        for (int r = 1; r < ranks && bits >= 0; r++) {
            const int32_t one = element(seed, r, i, kind);
            bits = one < 0 ? one : bits + one;
        }
        return bits;
    }
    float sum;
    memcpy(&sum, &bits, sizeof sum);
    for (int r = 1; r < ranks; r++) {
        float one;
        bits = element(seed, r, i, kind);
        memcpy(&one, &bits, sizeof one);
        sum += one;
    }
    if (kind == COMM_MEAN) sum /= (float)ranks;
    memcpy(&bits, &sum, sizeof bits);
    return bits;
}

static void pause_at_random(uint64_t *random) {
    const struct timespec time = {.tv_nsec = random_below(random, 400000)};
    if (random_chance(random, 50)) nanosleep(&time, NULL);
}

static const char *try_round(comm *m, uint64_t seed, bool large, uint64_t *random, int32_t *data[AT_A_TIME]) {
    static const int64_t sizes[SIZES] = {1, 3, 1000, 65537, 0, 2};
    int64_t elems[AT_A_TIME];
    comm_op kinds[AT_A_TIME];
    const char *wrong = NULL;
    uint64_t common = seed; /* the state from which all ranks draw the same numbers */
    for (int k = 0; k < AT_A_TIME; k++) {
        const bool is_large = large && k == 2;
        kinds[k] = (comm_op)random_below(&common, is_large ? COMM_COUNT + 1 : COMM_BYTES + 1);
        elems[k] = is_large ? LARGE : sizes[random_below(&common, SIZES)];
        if (kinds[k] >= COMM_OWN) elems[k] *= comm_size(m);
        for (int64_t i = 0; i < elems[k]; i++) data[k][i] = element(seed + (uint64_t)k, comm_rank(m), i, kinds[k]);
        pause_at_random(random);
        comm_allreduce_begin(m, kinds[k], data[k], elems[k]);
    }
    const int n = comm_size(m);
    int32_t word = comm_rank(m) + 1;
    pause_at_random(random);
    if (comm_agree(m, &word) != MM_OK) return mm_last_error();
    if (word != n * (n + 1) / 2) wrong = "not the sum of the ranks' words";
    for (int k = 0; k < AT_A_TIME; k++) {
        if (comm_allreduce_wait(m, NULL) != MM_OK) return mm_last_error();
        for (int64_t i = 0; i < elems[k] && !wrong; i++) {
            bool is_void;
            const int32_t right =
                expected(seed + (uint64_t)k, comm_rank(m), comm_size(m), i, elems[k], kinds[k], &is_void);
            if (!is_void && data[k][i] != right) wrong = kinds[k] == COMM_BYTES ? "another part" : "another sum";
        }
    }
    int32_t all[COMM_RANKS_MOST], own = 3 * comm_rank(m) + 1;
    if (comm_gather(m, &own, sizeof own, all) != MM_OK) return mm_last_error();
    for (int r = 0; r < comm_size(m); r++)
        if (all[r] != 3 * r + 1) wrong = "not what the ranks have told";
    return wrong;
}

const char *comm_sums_try(comm *m, uint64_t seed) {
    int32_t *data[AT_A_TIME];
    const char *wrong = NULL;
    uint64_t random = seed + (uint64_t)comm_rank(m);
    for (int k = 0; k < AT_A_TIME; k++) {
        data[k] = malloc(LARGE * sizeof **data);
        if (!data[k]) abort();
    }
    for (int i = 0; i < ROUNDS && !wrong; i++) wrong = try_round(m, seed + 100 * (uint64_t)i, i == 1, &random, data);
    for (int k = 0; k < AT_A_TIME; k++) free(data[k]);
    return wrong;
}
