// SPDX-License-Identifier: MIT
#include "tests/cuda_emulation/check_access.h"

namespace cuda_emulation {
namespace {

/* One access, packed into the 64 bits of a cell: which thread made it, and when. Never 0. */
struct record {
    uint64_t block : 22, thread : 10, barrier : 15, clock : 15, atomic : 1, is : 1;
};

constexpr uint64_t MOST_BLOCKS = 1 << 22, MOST_MEETINGS = 1 << 15;

record record_of(uint64_t bits) { return of_bits<record>(bits); }

/* The access to be checked. */
struct access {
    check_memory *memory;
    size_t offset, bytes;
    use as;
    const witness &by;
    record mine;

    /* Whether this access comes after the other, or is by the same thread. */
    bool follows(record other) const {
        if (other.block != mine.block) return is_shared(memory); /* the other block's shared memory is gone */
        if (other.thread == mine.thread || other.barrier < mine.barrier) return true;
        return other.thread / 32 == mine.thread / 32 && by.clock[other.thread % 32] >= other.clock;
    }

    /* How far apart the threads of the two accesses are: 1 in one warp, 2 in one block, 3 in two blocks; 0: they are
     * one thread, or the other access can no longer conflict with any. */
    int apart(record other) const {
        if (!other.is || (other.block == mine.block && other.barrier < mine.barrier)) return 0;
        if (other.block != mine.block) return is_shared(memory) ? 0 : 3;
        return other.thread / 32 != mine.thread / 32 ? 2 : other.thread != mine.thread;
    }

    void meet(uint64_t bits, const char *what) const {
        const record other = record_of(bits);
        if (!other.is || (other.atomic && mine.atomic) || follows(other)) return;
        const unsigned x = gridDim.x, y = gridDim.y, tx = blockDim.x, ty = blockDim.y;
        const unsigned block = (unsigned)other.block, thread = (unsigned)other.thread;
        check_fail("racecheck", as, bytes, memory->base + offset, memory,
                   "which thread (%u, %u, %u) of block (%u, %u, %u) %s, with nothing that orders the two", thread % tx,
                   thread / tx % ty, thread / tx / ty, block % x, block / x % y, block / x / y,
                   other.atomic ? "changed by an atomic" : what);
    }

    /* Checks the access against a cell, and updates the cell. Returns whether it is the launch's first write there, or
     * a read before any other access. */
    bool touch(check_cell *cell) const {
        meet(cell->write, "wrote");
        if (as == use::READ) {
            const record read = record_of(cell->read);
            if (read.block != mine.block || read.thread != mine.thread || !read.is) {
                if (apart(read) >= apart(record_of(cell->other_read))) cell->other_read = cell->read;
            }
            const bool first = cell->write == 0 && cell->read == 0;
            cell->read = bits_of(mine);
            return first;
        }
        meet(cell->read, "read");
        meet(cell->other_read, "read");
        const bool first = cell->write == 0;
        cell->write = bits_of(mine);
        cell->read = cell->other_read = 0;
        return first;
    }
};

check_cell *of_launch(check_cell *cell, uint32_t launch) {
    if (cell->launch != launch) *cell = {launch, false, 0, 0, 0};
    return cell;
}

void split(check_cell *word, check_cell *singles) {
    for (int i = 0; i < 4; i++) singles[i] = *word;
    word->split = true;
}

} // namespace

void check_race(check_memory *m, size_t offset, size_t bytes, use as, const witness &w, const progress &now,
                void (*first)(const char *at, size_t bytes, use as)) {
    const uint32_t clock = w.clock[w.number % 32];
    if (now.block >= MOST_BLOCKS || now.barrier >= MOST_MEETINGS || clock >= MOST_MEETINGS)
        die("too many blocks or barriers to check");
    record mine = {};
    mine.block = now.block;
    mine.thread = w.number;
    mine.barrier = now.barrier;
    mine.clock = clock;
    mine.atomic = as == use::ATOMIC || as == use::PUT;
    mine.is = 1;
    const access a = {m, offset, bytes, as, w, mine};
    for (size_t i = offset; i < offset + bytes;) {
        check_cell *word = of_launch(&m->words[i / 4], now.launch), *cell = word;
        const bool whole = i % 4 == 0 && offset + bytes - i >= 4;
        const size_t step = whole && !word->split ? 4 : 1;
        if (step == 1) {
            if (!word->split) split(word, &m->singles[i / 4 * 4]);
            cell = &m->singles[i];
        }
        if (a.touch(cell) && !is_shared(m)) first(m->base + i, step, as);
        i += step;
    }
}

} // namespace cuda_emulation
