// SPDX-License-Identifier: MIT
/* How blocks of an encode find where their codes begin, in states that blocks which run one after another never leave:
 * groups that have published their words, but not their sums, or nothing yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <thread>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include "pipeline/codec/chunk/chunk_cuda_kernel.h"

namespace {

constexpr int64_t GROUPS = 200;

unsigned words_of(int64_t g) { return (unsigned)(g * 37 % 8193); }

uint64_t sum_of(int64_t groups) {
    uint64_t sum = 0;
    for (int64_t g = 0; g < groups; g++) sum += words_of(g);
    return sum;
}

__global__ void look_back(unsigned long long *state, int64_t g, unsigned words, unsigned long long *sums) {
    sums[threadIdx.x] = words_before(state, g, words, (int)threadIdx.x);
}

struct launch {
    cudaStream_t stream;
    unsigned long long sums[WARP] = {};
    launch(unsigned long long *state, int64_t g) {
        assert_int_equal(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
        MM_LAUNCH(look_back, 1, WARP, 0, stream, state, g, words_of(g), sums);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
    }
    void finish(const unsigned long long *state, int64_t g) {
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
        for (const unsigned long long sum : sums) assert_true(sum == sum_of(g));
        assert_true(state[g] == (SUM | sum_of(g + 1)));
    }
};

/* The look back ends at a group that has published its sum, however far before, or before the first group. */
void a_group_adds_up_what_others_published_back_to_a_sum(void **) {
    static const int64_t groups[] = {0, 1, 2, 31, 32, 33, 64, 65, 127, GROUPS - 1};
    for (const int64_t g : groups)
        for (int64_t sum_at = g - 1; sum_at >= 0; sum_at -= 1 + sum_at / 7) {
            std::vector<unsigned long long> state(GROUPS, 0);
            for (int64_t i = 0; i < g; i++) state[i] = PART | words_of(i);
            state[sum_at] = SUM | sum_of(sum_at + 1);
            if (sum_at % 3 == 0) state[0] = SUM | sum_of(1);
            launch one(state.data(), g);
            one.finish(state.data(), g);
        }
    std::vector<unsigned long long> state(GROUPS, 0);
    launch first(state.data(), 0);
    first.finish(state.data(), 0);
}

/* Sums of 2^32 words and more: no map has so many. */
void sums_do_not_end_at_32_bits(void **) {
    unsigned long long state[3] = {SUM | (1ull << 61), PART | 7, 0}, sums[WARP];
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    MM_LAUNCH(look_back, 1, WARP, 0, stream, state, (int64_t)2, 0xffffffff, sums);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_true(sums[5] == (1ull << 61) + 7);
    assert_true(state[2] == (SUM | ((1ull << 61) + 7 + 0xffffffff)));
}

/* A group waits while those before it publish, the nearest first: it may end only when all back to a sum have. */
void a_group_waits_for_those_before_it(void **) {
    constexpr int64_t G = 70;
    std::vector<unsigned long long> state(GROUPS, 0);
    launch one(state.data(), G);
    const auto publish = [&](int64_t g, unsigned long long word) { mm_cuda_store(&state[g], word); };
    while (mm_cuda_load(&state[G]) == 0) std::this_thread::yield();
    assert_true(mm_cuda_load(&state[G]) == (PART | words_of(G)));
    for (int64_t g = G - 1; g > 0; g--) publish(g, PART | words_of(g));
    std::this_thread::yield();
    assert_true(mm_cuda_load(&state[G]) == (PART | words_of(G)));
    publish(0, SUM | sum_of(1));
    one.finish(state.data(), G);
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_adds_up_what_others_published_back_to_a_sum),
        cmocka_unit_test(sums_do_not_end_at_32_bits),
        cmocka_unit_test(a_group_waits_for_those_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
