// SPDX-License-Identifier: MIT
/* What the interpreter does with kernels that are right, and with faults (faults.ptx). Kernels have numbers that bring
 * their faults about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}
#include <cuda_runtime.h>

/* Of these only the names count, by which the PTX is found. */
#define KERNEL(name)                                                                                                   \
    __attribute__((noinline)) void name(unsigned *memory, int number) {                                                \
        fprintf(stderr, "%s runs as gcc compiled it: %p, %d\n", #name, (void *)memory, number);                        \
        abort();                                                                                                       \
    }
KERNEL(sharing)
KERNEL(writing)
KERNEL(reading)
KERNEL(missing)
KERNEL(parting)
KERNEL(waiting)
KERNEL(unknown)
KERNEL(absent)

namespace {

constexpr int THREADS = 32;
using kernel = void (*)(unsigned *, int);

/* Launches one block, and copies what it wrote. */
void launch(kernel k, int number, unsigned *out) {
    cudaStream_t stream;
    void *memory;
    if (cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) || cudaMalloc(&memory, THREADS * sizeof *out))
        abort();
    MM_LAUNCH(k, 1, THREADS, 0, stream, static_cast<unsigned *>(memory), number);
    if (cudaMemcpyAsync(out, memory, THREADS * sizeof *out, cudaMemcpyDeviceToHost, stream) ||
        cudaStreamSynchronize(stream) || cudaFree(memory) || cudaStreamDestroy(stream))
        abort();
}

/* The kernel ends its process with a line that has both texts. */
void ends(kernel k, int number, const char *one, const char *other) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        unsigned out[THREADS];
        dup2(ends[1], STDERR_FILENO);
        launch(k, number, out);
        _exit(0);
    }
    close(ends[1]);
    char line[4096] = "";
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], line + length, sizeof line - 1 - length)) > 0;) length += (size_t)got;
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status) || !strstr(line, one) || !strstr(line, other)) fail_msg("status %d: %s", status, line);
}

void lanes_share_and_exchange_their_words(void **) {
    unsigned out[THREADS];
    launch(sharing, 0, out);
    for (unsigned l = 0; l < THREADS; l++) assert_int_equal(out[l], 31 - l);
    launch(parting, 0, out);
    for (unsigned l = 0; l < THREADS; l++) assert_int_equal(out[l], 31 - l);
}

void accesses_out_of_bounds_or_misaligned_end_the_program(void **) {
    unsigned out[THREADS];
    launch(writing, 4, out);
    assert_int_equal(out[1], 7);
    ends(sharing, 4, "thread (31, 0, 0)", "byte 128 of 128 of shared memory");
    ends(sharing, -4, "st.shared.u32 \t[%r5], %r2", "shared memory");
    ends(sharing, 2, "faults.ptx:", "not aligned to 4 bytes");
    ends(writing, 2, "PTX of kernel _Z7writingPji, block (0, 0, 0)", "not aligned to 4 bytes");
    ends(writing, THREADS * 4, "st.global.u32", "not in memory that the GPU can reach");
    ends(writing, -4, "st.global.u32", "not in memory that the GPU can reach");
    ends(reading, 12, "ld.param.u32", "byte 12 of 12 of parameters");
}

void lanes_that_wait_in_vain_end_the_program(void **) {
    unsigned out[THREADS];
    launch(missing, THREADS, out);
    ends(missing, 20, "bar.sync", "12 of 32 threads of the block miss this barrier");
    ends(waiting, 20, "shfl.sync.bfly.b32", "lanes fff00000 never come");
}

/* Defined since sm_70, but a compiler that makes it has split a warp. */
void lanes_that_meet_at_different_instructions_are_counted(void **) {
    unsigned out[THREADS];
    const char *report = getenv("MM_PTX_REPORT");
    char text[4096] = "";
    const pid_t child = fork();
    if (child == 0) {
        launch(parting, 16, out);
        launch(parting, 16, out);
        for (unsigned l = 0; l < THREADS; l++)
            if (out[l] != 31 - l) _exit(1);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    FILE *file = fopen(report, "r");
    assert_non_null(file);
    (void)!fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_non_null(strstr(text, "run faults _Z7partingPji "));
    assert_non_null(strstr(text, "split 2\n"));
}

void what_is_not_known_is_refused(void **) {
    ends(unknown, 0, "frobnicate.u32", "the instruction is not known");
    ends(absent, 0, "no PTX of the kernel", "no file of MM_PTX has _Z6absentPji");
}

} // namespace

int main() {
    const char *folder = getenv("TEST_TMPDIR");
    char report[4096];
    snprintf(report, sizeof report, "%s/report", folder ? folder : "/tmp");
    setenv("MM_PTX", "tests/cuda_emulation/ptx/faults.ptx", 1);
    setenv("MM_PTX_REPORT", report, 1);
    const CMUnitTest tests[] = {
        cmocka_unit_test(lanes_that_meet_at_different_instructions_are_counted), /* first: no thread runs yet */
        cmocka_unit_test(accesses_out_of_bounds_or_misaligned_end_the_program),
        cmocka_unit_test(lanes_that_wait_in_vain_end_the_program),
        cmocka_unit_test(what_is_not_known_is_refused),
        cmocka_unit_test(lanes_share_and_exchange_their_words),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
