// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "tests/cuda_emulation/ptx/ptx.h"
#include "tests/cuda_emulation/ptx/ptx_library.h"

namespace ptx {
namespace {

constexpr size_t SHARED_ALIGNMENT = 1024;

/* Lanes of a warp that are at one instruction. */
struct group {
    uint32_t pc, lanes;
};

struct lockstep : warp {
    uint32_t alive, waiting, at_barrier; /* lanes; the last two exclude each other */
    uint32_t pc[LANES];                  /* where they wait */
    uint32_t with[LANES];                /* for which lanes */
    group ready[LANES];
    int groups;
    uint32_t first_thread;
};

std::atomic<long> splits;

/* ---------------------------------------------------------------- warps */

/* Adds a group, or joins one that is there. */
void make_ready(lockstep &w, uint32_t pc, uint32_t lanes) {
    for (int g = 0; g < w.groups; g++)
        if (w.ready[g].pc == pc) {
            w.ready[g].lanes |= lanes;
            return;
        }
    w.ready[w.groups++] = {pc, lanes};
}

uint32_t least(const lockstep &w) {
    uint32_t pc = UINT32_MAX;
    for (int g = 0; g < w.groups; g++) pc = std::min(pc, w.ready[g].pc);
    return pc;
}

group take_least(lockstep &w) {
    const uint32_t pc = least(w);
    for (int g = 0;; g++)
        if (w.ready[g].pc == pc) {
            const group taken = w.ready[g];
            w.ready[g] = w.ready[--w.groups];
            return taken;
        }
}

void gather(lockstep &w, const instruction &i, uint32_t lanes) {
    if (i.source == NO_REGISTER) return;
    if (i.of_predicate) {
        w.predicates = (w.predicates & ~lanes) | (*w.at<uint32_t>(i.source) & lanes);
    } else {
        const uint32_t *from = w.at<uint32_t>(i.source);
        for (int l = 0; l < LANES; l++)
            if (lanes >> l & 1) w.values[l] = from[l];
    }
}

void forget(lockstep &w) {
    std::fill(w.values, w.values + LANES, GARBAGE);
    w.predicates = 0;
}

void finish(lockstep &w, const instruction &i, uint32_t lanes, uint32_t met) {
    w.mask = lanes;
    w.met = met;
    i.run(w, i);
}

/* Lanes that met at different instructions go on, each group after its own. */
void meet_apart(lockstep &w, uint32_t met) {
    const std::vector<instruction> &code = w.of->code->code;
    forget(w);
    const int first = __builtin_ctz(met);
    bool split = false;
    for (int l = 0; l < LANES; l++) {
        if (!(met >> l & 1)) continue;
        const instruction &i = code[w.pc[l]], &other = code[w.pc[first]];
        if (i.run != other.run || i.what == kind::ALIGNED ? w.pc[l] != w.pc[first] : false)
            die(w, i, l, "lane %d of the warp is at another instruction, %s", first,
                module_line(*w.of->code->of, other.line).c_str());
        if (w.with[l] != w.with[first])
            die(w, i, l, "lanes %08x meet here, and for lane %d lanes %08x", w.with[l], first, w.with[first]);
        split = split || w.pc[l] != w.pc[first];
        gather(w, i, 1u << l);
    }
    if (split) splits++;
    for (uint32_t left = met; left;) {
        uint32_t lanes = 0;
        const uint32_t pc = w.pc[__builtin_ctz(left)];
        for (int l = 0; l < LANES; l++)
            if ((left >> l & 1) && w.pc[l] == pc) lanes |= 1u << l;
        finish(w, code[pc], lanes, met);
        make_ready(w, pc + 1, lanes);
        left &= ~lanes;
    }
}

/* Lets waiting lanes meet whose others all wait, too, or have ended. */
void try_meetings(lockstep &w) {
    for (int l = 0; l < LANES; l++) {
        if (!(w.waiting >> l & 1)) continue;
        const uint32_t met = w.with[l] & w.alive;
        if (met & ~w.waiting) continue;
        w.waiting &= ~met;
        meet_apart(w, met);
    }
}

/* The lanes arrive at an exchange. Returns whether all whom they wait for are among them, and it is done. */
bool arrive(lockstep &w, const instruction &i, uint32_t pc, uint32_t lanes) {
    const uint32_t *sets = i.what == kind::ALIGNED ? nullptr : w.at<uint32_t>(i.lanes);
    const uint32_t first = sets ? sets[__builtin_ctz(lanes)] : ALL;
    bool one_set = true;
    for (int l = 0; sets && l < LANES; l++) one_set = one_set && (!(lanes >> l & 1) || sets[l] == first);
    if (one_set && (first & w.alive) == lanes) {
        if (lanes != ALL) forget(w);
        gather(w, i, lanes);
        finish(w, i, lanes, lanes);
        return true;
    }
    for (int l = 0; l < LANES; l++) {
        if (!(lanes >> l & 1)) continue;
        w.with[l] = sets ? sets[l] : ALL;
        w.pc[l] = pc;
        if (!(w.with[l] >> l & 1)) die(w, i, l, "the lanes that meet, %08x, leave out lane %d itself", w.with[l], l);
    }
    w.waiting |= lanes;
    try_meetings(w);
    return false;
}

/* Runs the warp until all its lanes wait for the block or have ended. */
void run_warp(lockstep &w) {
    const instruction *const code = w.of->code->code.data();
    while (w.groups > 0) {
        group now = take_least(w);
        uint32_t next = least(w);
        while (now.lanes) {
            if (now.pc >= next) {
                make_ready(w, now.pc, now.lanes);
                break;
            }
            const instruction &i = code[now.pc];
            uint32_t lanes = now.lanes;
            if (i.guard != NO_REGISTER) {
                const uint32_t set = *w.at<uint32_t>(i.guard);
                lanes &= i.negated ? ~set : set;
                if (!lanes) {
                    now.pc++;
                    continue;
                }
            }
            switch (i.what) {
            case kind::PLAIN:
                w.mask = lanes;
                i.run(w, i);
                now.pc++;
                break;
            case kind::BRANCH:
                if (lanes == now.lanes) {
                    now.pc = i.target;
                    break;
                }
                make_ready(w, i.target, lanes);
                next = std::min(next, i.target);
                now.lanes &= ~lanes;
                now.pc++;
                break;
            case kind::END:
                w.alive &= ~lanes;
                now.lanes &= ~lanes;
                now.pc++;
                try_meetings(w);
                next = least(w);
                break;
            case kind::BARRIER:
                for (int l = 0; l < LANES; l++)
                    if (lanes >> l & 1) w.pc[l] = now.pc;
                w.at_barrier |= lanes;
                now.lanes &= ~lanes;
                now.pc++;
                break;
            case kind::MEET:
            case kind::ALIGNED:
                if (!arrive(w, i, now.pc, lanes)) {
                    now.lanes &= ~lanes;
                    next = least(w);
                }
                now.pc++;
                break;
            }
        }
    }
    if (!w.waiting) return;
    const int lane = __builtin_ctz(w.waiting);
    die(w, code[w.pc[lane]], lane, "waits for lanes %08x, and lanes %08x never come", w.with[lane],
        w.with[lane] & w.alive & ~w.waiting);
}

/* ---------------------------------------------------------------- blocks */

/* To be called when all threads wait or have ended. Opens the barrier; returns whether any wait there. A barrier that
 * ended threads have missed is an error, because no kernel intends it. */
bool open_barrier(std::vector<lockstep> &warps, uint32_t threads) {
    lockstep *first = nullptr;
    uint32_t waiting = 0, count = 0;
    for (lockstep &w : warps) {
        if (!w.at_barrier) continue;
        if (!first) first = &w;
        waiting += (uint32_t)__builtin_popcount(w.at_barrier);
        const int lane = __builtin_ctz(w.at_barrier), first_lane = __builtin_ctz(first->at_barrier);
        const instruction &i = w.of->code->code[w.pc[lane]], &other = w.of->code->code[first->pc[first_lane]];
        for (int l = lane; l < LANES; l++)
            if ((w.at_barrier >> l & 1) && w.pc[l] != w.pc[lane])
                die(w, i, l, "lanes of a warp wait at different barriers, also at %s",
                    module_line(*w.of->code->of, w.of->code->code[w.pc[l]].line).c_str());
        if (i.how != other.how) die(w, i, lane, "warps of the block wait at barriers of different kinds");
        if (i.source != NO_REGISTER) count += (uint32_t)__builtin_popcount(*w.at<uint32_t>(i.source) & w.at_barrier);
    }
    if (!first) return false;
    if (waiting != threads) {
        const int lane = __builtin_ctz(first->at_barrier);
        die(*first, first->of->code->code[first->pc[lane]], lane, "%u of %u threads of the block miss this barrier",
            threads - waiting, threads);
    }
    for (lockstep &w : warps) {
        const uint32_t pc = w.pc[__builtin_ctz(w.at_barrier)];
        const instruction &i = w.of->code->code[pc];
        w.mask = w.at_barrier;
        if (i.how == combine::COUNT) {
            uint32_t out[LANES];
            std::fill(out, out + LANES, count);
            put(w, i.reg[0], out);
        } else if (i.how != combine::NONE) {
            put_predicate(w, i.reg[0], (i.how == combine::OR ? count > 0 : count == threads) ? ALL : 0);
        }
        make_ready(w, pc + 1, w.at_barrier);
        w.at_barrier = 0;
    }
    return true;
}

void fill_special(lockstep &w, const launch &l, const block &b) {
    for (const special &s : b.code->specials) {
        const int axis = s.name[strlen(s.name) - 1] - 'x';
        uint32_t *to = w.at<uint32_t>(s.reg);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            const uint32_t thread = w.first_thread + lane;
            const uint32_t place[3] = {thread % l.threads[0], thread / l.threads[0] % l.threads[1],
                                       thread / l.threads[0] / l.threads[1]};
            to[lane] = strncmp(s.name, "%tid", 4) == 0      ? place[axis]
                       : strncmp(s.name, "%ntid", 5) == 0   ? l.threads[axis]
                       : strncmp(s.name, "%ctaid", 6) == 0  ? b.index[axis]
                       : strncmp(s.name, "%nctaid", 7) == 0 ? l.blocks[axis]
                                                            : lane;
        }
    }
}

void fill_constants(warp &w, const kernel &k) {
    for (const constant &c : k.constants) {
        for (int l = 0; l < LANES; l++) memcpy(w.registers + c.reg + l * c.width, &c.value, (size_t)c.width);
        if (c.width == 0) *w.at<uint32_t>(c.reg) = (uint32_t)c.value;
    }
}

/* Runs a block: one warp after the other, in odd blocks from the last one. */
void run_block(std::vector<lockstep> &warps, const launch &l, block &b, uint64_t number) {
    const uint32_t threads = l.threads[0] * l.threads[1] * l.threads[2];
    memset(b.shared, (int)(GARBAGE & 0xff), b.shared_bytes);
    for (lockstep &w : warps) {
        const uint32_t lanes = std::min(threads - w.first_thread, (uint32_t)LANES);
        w.alive = lanes == LANES ? ALL : (1u << lanes) - 1;
        w.waiting = w.at_barrier = 0;
        w.groups = 0;
        make_ready(w, 0, w.alive);
        fill_special(w, l, b);
    }
    do {
        for (size_t n = 0; n < warps.size(); n++) run_warp(warps[number % 2 ? warps.size() - 1 - n : n]);
    } while (open_barrier(warps, threads));
}

/* The parameters as the kernel declares them. */
std::vector<char> parameters_of(const kernel &k, const launch &l) {
    std::vector<char> all(k.parameter_bytes + 16);
    bool fits = (size_t)l.parameters == k.parameters.size();
    for (int n = 0; fits && n < l.parameters; n++) fits = l.parameter_bytes[n] == k.parameters[(size_t)n].bytes;
    if (!fits) {
        fprintf(stderr, "CUDA emulation: kernel %s: nvcc and gcc disagree on its parameters' number or sizes\n",
                l.kernel);
        abort();
    }
    for (int n = 0; n < l.parameters; n++)
        memcpy(all.data() + k.parameters[(size_t)n].at, l.parameter[n], l.parameter_bytes[n]);
    return all;
}

} // namespace

void run(const launch &l) {
    const kernel &k = library_find(l.function, l.kernel);
    const std::vector<char> parameters = parameters_of(k, l);
    const uint32_t threads = l.threads[0] * l.threads[1] * l.threads[2], count = (threads + LANES - 1) / LANES;
    block b = {};
    b.code = &k;
    b.parameters = parameters.data();
    b.memory_at = l.memory_at;
    b.shared_bytes = k.shared_bytes + l.shared_bytes;
    void *shared;
    if (posix_memalign(&shared, SHARED_ALIGNMENT, b.shared_bytes + 1) != 0) abort();
    b.shared = static_cast<char *>(shared);
    std::vector<lockstep> warps(count);
    const size_t local = k.local_bytes * LANES, bytes = (k.register_bytes + local + 63) / 64 * 64;
    std::unique_ptr<char[]> memory(new char[bytes * count]);
    for (uint32_t n = 0; n < count; n++) {
        lockstep &w = warps[n];
        w.registers = memory.get() + n * bytes;
        w.local = w.registers + k.register_bytes;
        w.of = &b;
        w.first_thread = n * LANES;
        memset(w.local, (int)(GARBAGE & 0xff), local);
        fill_constants(w, k);
    }
    std::copy(l.threads, l.threads + 3, b.threads);
    uint64_t number = 0;
    for (b.index[2] = 0; b.index[2] < l.blocks[2]; b.index[2]++)
        for (b.index[1] = 0; b.index[1] < l.blocks[1]; b.index[1]++)
            for (b.index[0] = 0; b.index[0] < l.blocks[0]; b.index[0]++) run_block(warps, l, b, number++);
    free(shared);
}

long split_meetings() { return splits; }

void die(const warp &w, const instruction &i, int lane, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const block &b = *w.of;
    const unsigned thread = static_cast<const lockstep &>(w).first_thread + (unsigned)lane;
    fprintf(stderr,
            "CUDA emulation: PTX of kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s: ", b.code->name.c_str(),
            b.index[0], b.index[1], b.index[2], thread % b.threads[0], thread / b.threads[0] % b.threads[1],
            thread / b.threads[0] / b.threads[1], module_line(*b.code->of, i.line).c_str());
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

} // namespace ptx
