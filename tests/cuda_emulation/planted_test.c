/* SPDX-License-Identifier: MIT */
/* The checker of kernels finds and names each planted fault, and accepts its twin without the fault. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/cuda_emulation/planted.h"

typedef void launcher(cudaStream_t stream, planted_memory memory, bool faulty);

enum { BYTES = PLANTED_ELEMS * sizeof(int) };

#define OK(call) assert_int_equal(call, cudaSuccess)

/* Launches and waits. freed: memory is freed before the launch. */
static void run(launcher *launch, bool faulty, bool freed) {
    planted_memory m = {0};
    cudaStream_t stream;
    OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    OK(cudaMalloc((void **)&m.values, BYTES));
    OK(cudaMalloc((void **)&m.out, BYTES));
    OK(cudaMalloc((void **)&m.fresh, BYTES));
    OK(cudaMemsetAsync(m.values, 0, BYTES, stream));
    OK(cudaStreamSynchronize(stream));
    m.host = calloc(PLANTED_ELEMS, sizeof *m.host);
    assert_non_null(m.host);
    if (freed) OK(cudaFree(m.out));
    launch(stream, m, faulty);
    OK(cudaGetLastError());
    OK(cudaStreamSynchronize(stream));
    if (!freed) OK(cudaFree(m.out));
    OK(cudaFree(m.values));
    OK(cudaFree(m.fresh));
    OK(cudaStreamDestroy(stream));
    free(m.host);
}

/* Runs the kernel in a child process. words: the message with which the child ends. */
static void words_of(launcher *launch, bool faulty, bool freed, char *words, size_t capacity) {
    int ends[2], status;
    size_t used = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        run(launch, faulty, freed);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n; used < capacity - 1 && (n = read(ends[0], words + used, capacity - 1 - used)) > 0;)
        used += (size_t)n;
    words[used] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) fail_msg("the fault was not found; it said: %s", words);
}

static void assert_found(launcher *launch, bool freed, const char *expected) {
    char words[1024];
    words_of(launch, true, freed, words, sizeof words);
    if (!strstr(words, expected)) fail_msg("it said: %s", words);
    run(launch, false, false);
}

#define FOUND(name, words)                                                                                             \
    static void finds_##name(void **state) {                                                                           \
        (void)state;                                                                                                   \
        assert_found(planted_##name, false, words);                                                                    \
    }

FOUND(past_the_end,
      "block (1, 0, 0), thread (63, 0, 0): memcheck: writes 4 bytes at byte 512 of an allocation of 512 bytes")
FOUND(before_the_beginning, "memcheck: reads 4 bytes at")
FOUND(past_dynamic_shared, "memcheck: writes 4 bytes at byte 256 of dynamic shared memory of 256 bytes, outside")
FOUND(past_an_array, "memcheck: index 64 is outside of a 'int")
FOUND(misaligned, "is not aligned to 16 bytes, for a 'const struct int4'")
FOUND(memory_of_the_host, "where no memory of the device is")
FOUND(stack_of_another, "thread (1, 0, 0): memcheck: reads 4 bytes at")
FOUND(writes_a_constant, "memcheck: writes 4 bytes at")
FOUND(unwritten_shared,
      "block (1, 0, 0), thread (63, 0, 0): initcheck: reads 4 bytes at byte 252 of dynamic shared memory")
FOUND(unwritten_variable, "thread (33, 0, 0): initcheck: reads 4 bytes at")
FOUND(unwritten_device, "initcheck: reads 4 bytes at byte 0 of an allocation of 512 bytes, which nothing has written")
FOUND(read_before_barrier, "thread (31, 0, 0) of block (0, 0, 0) read, with nothing that orders the two")
FOUND(write_before_barrier, "thread (31, 0, 0) of block (0, 0, 0) wrote, with nothing that orders the two")
FOUND(shuffle_for_syncwarp, "thread (1, 0, 0) of block (0, 0, 0) wrote, with nothing that orders the two")
FOUND(syncwarp_of_others, "thread (16, 0, 0) of block (0, 0, 0) wrote, with nothing that orders the two")
FOUND(blocks_write_one_place, "of block (0, 0, 0) wrote, with nothing that orders the two")
FOUND(block_reads_of_another, "with nothing that orders the two")
FOUND(threads_write_one_byte, "thread (0, 0, 0) of block (0, 0, 0) wrote, with nothing that orders the two")
FOUND(plain_beside_atomic, "thread (5, 0, 0) of block (0, 0, 0) read, with nothing that orders the two")
FOUND(order_of_blocks, "and others where blocks and threads run in a random order")
FOUND(half_at_barrier, "the block cannot go on")
FOUND(half_has_ended, "32 threads of the block have ended")
FOUND(half_in_the_mask, "the block cannot go on")

static void finds_what_was_freed(void **state) {
    (void)state;
    assert_found(planted_past_the_end, true, "thread (0, 0, 0): memcheck: writes 4 bytes at");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define X(name) cmocka_unit_test(finds_##name),
        PLANTED(X)
#undef X
            cmocka_unit_test(finds_what_was_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
