// SPDX-License-Identifier: MIT
/* Where kernels find a thread's block and a warp's words, in tensors larger than any that a test can have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>
}

#include "pipeline/codec/zfp/zfp_cuda_kernel.h"

namespace {

mm_zfp_work work_of(int dims, int maxbits, uint64_t images, uint32_t rows, uint32_t columns, uint32_t channels,
                    bool channels_first = false) {
    mm_zfp_work work = {};
    work.dims = dims;
    work.maxbits = maxbits;
    work.rows = rows;
    work.columns = columns;
    work.channels = channels;
    work.channels_first = channels_first;
    work.stride_x = channels_first ? 1 : channels;
    work.stride_y = columns * work.stride_x;
    work.stride_c = channels_first ? rows * columns : 1;
    work.image = (uint64_t)rows * columns * channels;
    work.blocks_x = (columns + 3) / 4;
    work.blocks_y = dims == 1 ? 1 : (rows + 3) / 4;
    work.blocks_c = dims == 3 ? (channels + 3) / 4 : channels;
    work.blocks = images * work.blocks_y * work.blocks_x * work.blocks_c;
    work.code_words = (work.blocks * (uint64_t)maxbits + 63) / 64 * 2;
    return work;
}

/* The index of a block's first value, by the layout's definition. */
uint64_t first_expected(const mm_zfp_work &work, uint64_t block) {
    const uint64_t bx = work.blocks_x, by = work.blocks_y, bc = work.blocks_c, n = block / bx / by / bc;
    const uint64_t c = (work.channels_first ? block / bx / by % bc : block % bc) * (work.dims == 3 ? 4 : 1);
    const uint64_t x = (work.channels_first ? block % bx : block / bc % bx) * 4;
    const uint64_t y = (work.channels_first ? block / bx % by : block / bc / bx % by) * 4;
    return work.channels_first ? ((n * work.channels + c) * work.rows + y) * work.columns + x
                               : ((n * work.rows + y) * work.columns + x) * work.channels + c;
}

uint64_t first_by(const mm_zfp_work &work, const place &at) {
    (void)work;
    return at.first;
}

void advance(const mm_zfp_work &work, place &at) {
    if (work.dims == 3)
        place_advance<3>(work, at);
    else
        place_advance<2>(work, at);
}

const mm_zfp_work large[] = {
    work_of(2, 64, 40000, 56, 56, 256),
    work_of(2, 102, 3, 65536, 65532, 3),
    work_of(1, 16, 7, 1, 4000000000u, 1),
    work_of(1, 25, 4000000000u, 1, 49, 2),
    work_of(3, 410, 100000, 57, 28, 511),
    work_of(2, 64, 5, 3, 7, 700000000),
    work_of(3, 2048, 2, 4000000000u, 5, 3),
    work_of(3, 256, 100000, 57, 28, 511, true),
    work_of(3, 384, 3, 20000, 20001, 70000, true),
    work_of(2, 64, 40000u * 256, 56, 56, 1),
};

void elements_beyond_32_bits_are_found(void **) {
    for (const mm_zfp_work &work : large) {
        assert_true(first_expected(work, work.blocks - 1) > UINT32_MAX);
        for (uint64_t block = 0; block < work.blocks; block += 1 + work.blocks / 1001)
            assert_true(first_by(work, place_of(work, block)) == first_expected(work, block));
        assert_true(first_by(work, place_of(work, work.blocks - 1)) == first_expected(work, work.blocks - 1));
    }
}

void threads_go_on_to_their_next_block(void **) {
    static const uint64_t starts[] = {0, 31, 1000, 134999};
    for (mm_zfp_work work : large) {
        codec_grid grid = {};
        assert_int_equal(grid_of(request_of(work, 0), &grid), cudaSuccess);
        place_steps(grid, &work);
        const uint64_t step = (uint64_t)grid.blocks * grid.threads;
        for (uint64_t start : starts) {
            place at = place_of(work, start);
            uint64_t block = start;
            for (int i = 0; i < 2000 && block < work.blocks; i++, block += step, advance(work, at))
                assert_true(first_by(work, at) == first_expected(work, block));
        }
    }
}

/* On a GPU as large as an H200, the grid covers all work, and most multiprocessors have some, whatever the size. */
void grids_of_a_large_gpu_are_of_short_blocks_or_confined(void **) {
    constexpr unsigned MULTIPROCESSORS = 132, SMS = 16;
    constexpr size_t SHARED = 227 << 10;
    for (unsigned bytes = 16; bytes <= 256; bytes *= 2)
        for (size_t warp_bytes = 0; warp_bytes <= 9000; warp_bytes += 3000)
            for (uint64_t work = 1; work < 1ull << 34; work += 1 + work / 3) {
                grid_request of = {};
                of.threads = work;
                of.thread_bytes = bytes;
                of.fat_threads = FAT_THREADS;
                of.warp_bytes = warp_bytes;
                of.static_bytes = 4096;
                const codec_grid lean = grid_on(MULTIPROCESSORS, SHARED, of);
                of.sms = SMS;
                const codec_grid fat = grid_on(MULTIPROCESSORS, SHARED, of);
                const uint64_t stride = (uint64_t)lean.blocks * lean.threads;
                const uint64_t strides = (work + stride - 1) / stride;
                assert_true(strides <= MOST_STRIDES && (strides == 1 || strides * lean.threads * bytes <= BLOCK_BYTES));
                assert_true(lean.threads <= LEAN_THREADS && lean.shared_bytes + of.static_bytes <= SHARED_UNASKED);
                assert_true(2 * lean.blocks >= MULTIPROCESSORS || (uint64_t)lean.blocks * WARP >= work);
                assert_true(fat.blocks <= SMS && fat.shared_bytes + of.static_bytes <= SHARED);
                assert_int_equal(fat.threads, warp_bytes < 7000 ? FAT_THREADS : 25 * WARP);
                assert_true(fat.blocks == SMS || (uint64_t)fat.blocks * fat.threads >= work);
            }
}

/* A launch finds out whether four neighbouring values can be loaded at once, and whether all blocks are whole. */
void values_are_taken_four_at_once_where_they_are_neighbours(void **) {
    static const struct {
        mm_zfp_work work;
        uintptr_t memory;
        mm_zfp_vectors vectors;
        bool whole;
    } cases[] = {
        {work_of(2, 64, 3, 8, 8, 5), 256, MM_ZFP_VECTORS_NONE, true},
        {work_of(2, 64, 3, 8, 8, 1), 256, MM_ZFP_VECTORS_X, true},
        {work_of(2, 64, 3, 8, 8, 1), 264, MM_ZFP_VECTORS_NONE, true},
        {work_of(2, 64, 3, 7, 8, 1), 256, MM_ZFP_VECTORS_X, false},
        {work_of(2, 64, 3, 8, 7, 1), 256, MM_ZFP_VECTORS_NONE, false},
        {work_of(1, 64, 3, 1, 64, 1), 256, MM_ZFP_VECTORS_X, true},
        {work_of(3, 64, 3, 8, 8, 8), 256, MM_ZFP_VECTORS_C, true},
        {work_of(3, 64, 3, 7, 7, 8), 256, MM_ZFP_VECTORS_C, false},
        {work_of(3, 64, 3, 8, 8, 6), 256, MM_ZFP_VECTORS_NONE, false},
        {work_of(3, 64, 3, 8, 8, 6, true), 256, MM_ZFP_VECTORS_X, false},
        {work_of(3, 64, 3, 8, 7, 8, true), 256, MM_ZFP_VECTORS_NONE, false},
    };
    for (const auto &c : cases) {
        mm_zfp_work work = c.work;
        place_values(reinterpret_cast<const void *>(c.memory), &work);
        assert_int_equal(work.vectors, c.vectors);
        assert_int_equal(work.whole, c.whole);
    }
}

void words_of_warps_follow_one_another_to_the_codes_end(void **) {
    for (const mm_zfp_work &work : large) {
        const uint64_t last = (work.blocks - 1) / WARP * WARP;
        uint64_t first_word;
        assert_true(warp_words(work, last, &first_word) + first_word == work.code_words);
        assert_true(first_word == last / WARP * (uint64_t)work.maxbits);
        assert_true(warp_words(work, last - WARP, &first_word) + first_word == last / WARP * (uint64_t)work.maxbits);
    }
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_beyond_32_bits_are_found),
        cmocka_unit_test(threads_go_on_to_their_next_block),
        cmocka_unit_test(grids_of_a_large_gpu_are_of_short_blocks_or_confined),
        cmocka_unit_test(values_are_taken_four_at_once_where_they_are_neighbours),
        cmocka_unit_test(words_of_warps_follow_one_another_to_the_codes_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
