// SPDX-License-Identifier: MIT
#include <link.h>
#include <stdarg.h>

#include <mutex>
#include <vector>

#include "tests/cuda_emulation/check_access.h"

namespace cuda_emulation {
namespace {

/* Up to four bytes that a launch wrote. value: what they were before; once the launch has run, what it made them. */
struct change {
    char *at;
    unsigned char bytes, value[4];
};

/* Finds the program's thread-local variables; __shared__ ones are among them. */
int look_for_own(dl_phdr_info *program, size_t, void *found) {
    for (int i = 0; i < program->dlpi_phnum; i++)
        if (program->dlpi_phdr[i].p_type == PT_TLS)
            *static_cast<memory_piece *>(found) = {program->dlpi_tls_data, program->dlpi_phdr[i].p_memsz};
    return 1; /* the first object is the program */
}

/* This thread's copy of those thread-local variables, registered as a piece of memory while the thread lives. */
struct shared_variables {
    memory_piece piece = {};
    shared_variables() {
        dl_iterate_phdr(look_for_own, &piece);
        check_memory_made(piece.base, piece.bytes, CHECK_SHARED);
    }
    ~shared_variables() { check_memory_gone(piece.base); }
};

std::mutex one_at_a_time;

/* The launch that runs; it holds the lock one_at_a_time from its begin to its end. */
struct {
    progress now;
    bool again;
    memory_piece arguments, own, variables, shared;
    std::vector<change> changes;
} checked;

__thread witness *running;

bool contains(const void *base, size_t bytes, const void *at) { return (uintptr_t)at - (uintptr_t)base < bytes; }
bool contains(const memory_piece &piece, const void *at) { return contains(piece.base, piece.bytes, at); }

bool is_index(const void *at) {
    return contains(&threadIdx, sizeof threadIdx, at) || contains(&blockIdx, sizeof blockIdx, at) ||
           contains(&blockDim, sizeof blockDim, at) || contains(&gridDim, sizeof gridDim, at);
}

/* Whether the byte at *at is in a part of the program's file that the program cannot write: 1, else -1. Both values end
 * the search at the first object, which is the program. */
int look_for_constant(dl_phdr_info *program, size_t, void *at) {
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) &part = program->dlpi_phdr[i];
        if ((part.p_type == PT_GNU_RELRO || (part.p_type == PT_LOAD && !(part.p_flags & PF_W))) &&
            contains((const void *)(program->dlpi_addr + part.p_vaddr), part.p_memsz, *(const void **)at))
            return 1;
    }
    return -1;
}

bool is_constant(const void *at) { return dl_iterate_phdr(look_for_constant, &at) == 1; }

bool is_open(const check_memory *m, size_t offset) { return !m->open || m->open[offset / CHECK_GRANULE]; }

bool was_written(const check_memory *m, size_t offset, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (!m->written[offset + i]) return false;
    return true;
}

const char *words_for(const check_memory *m) {
    switch (m->kind) {
    case CHECK_ALLOCATION:
        return "an allocation";
    case CHECK_ADDRESSES:
        return "a range of addresses";
    case CHECK_PINNED:
        return "pinned memory";
    case CHECK_SHARED:
        return "the kernels' __shared__ variables";
    case CHECK_SHARED_DYNAMIC:
        break;
    }
    return "dynamic shared memory";
}

/* Checks an access whose first byte is in no piece of memory. It may use the kernel's arguments and the emulation's own
 * data, and read constants; any other access is a fault. */
void check_elsewhere(const void *at, size_t bytes, use as) {
    if (contains(checked.arguments, at) || contains(checked.own, at)) return;
    if (as == use::READ && is_constant(at)) return;
    const check_memory *m = check_memory_before(at);
    if (m && (uintptr_t)at - (uintptr_t)m->base < m->bytes + (1 << 20))
        check_fail("memcheck", as, bytes, at, m, "outside");
    check_fail("memcheck", as, bytes, at, nullptr, "where no memory of the device is");
}

void check_inside(const check_memory *m, const void *at, size_t offset, size_t bytes, use as) {
    if (bytes > m->bytes - offset) check_fail("memcheck", as, bytes, at, m, "across its end");
    if (!is_open(m, offset) || !is_open(m, offset + bytes - 1)) check_fail("memcheck", as, bytes, at, m, "not mapped");
    if (as == use::WRITE || as == use::PUT || m->kind == CHECK_PINNED || was_written(m, offset, bytes)) return;
    check_fail("initcheck", as, bytes, at, m, "which nothing has written");
}

void note_first(const char *at, size_t bytes, use as) {
    if (checked.again) return;
    check_traffic_first(bytes, as);
    if (as == use::READ) return;
    change c = {const_cast<char *>(at), (unsigned char)bytes, {}};
    memcpy(c.value, at, bytes);
    checked.changes.push_back(c);
}

} // namespace

void check_access(const void *at, size_t bytes, use as) {
    const witness *w = running;
    if (w && (contains(w->stack, w->stack_bytes, at) || is_index(at))) return;
    check_memory *m = check_memory_at(at);
    if (!w && (!m || is_shared(m))) return; /* an emulated library may use its own memory */
    if (!m) return check_elsewhere(at, bytes, as);
    const size_t offset = (size_t)((const char *)at - m->base);
    check_inside(m, at, offset, bytes, as);
    if (w && as == use::READ && !is_shared(m) && !checked.again) check_traffic_read(bytes);
    if (w) check_race(m, offset, bytes, as, *w, checked.now, note_first);
    if (as != use::READ) memset(m->written + offset, 1, bytes);
}

void check_fail(const char *which, use as, size_t bytes, const void *at, const check_memory *m, const char *format,
                ...) {
    char words[512], place[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    if (m)
        snprintf(place, sizeof place, "byte %td of %s of %zu bytes", (const char *)at - m->base, words_for(m),
                 m->bytes);
    else
        snprintf(place, sizeof place, "%p", at);
    die("%s: %s %zu bytes at %s, %s", which,
        as == use::READ     ? "reads"
        : as == use::ATOMIC ? "changes"
                            : "writes",
        bytes, place, words);
}

/* ---------------------------------------------------------------- launches */

void check_launch_begins(const char *kernel, memory_piece arguments, memory_piece own, memory_piece shared) {
    static thread_local shared_variables here;
    one_at_a_time.lock();
    checked.variables = here.piece;
    checked.arguments = arguments;
    checked.own = own;
    checked.shared = shared;
    checked.again = false;
    checked.now.launch++;
    check_traffic_begins(kernel);
    check_memory_made(shared.base, shared.bytes, CHECK_SHARED_DYNAMIC);
}

bool check_runs_again() {
    if (checked.again) return false;
    checked.again = true;
    checked.now.launch++;
    for (change &c : checked.changes)
        for (int i = 0; i < c.bytes; i++) std::swap(c.value[i], ((unsigned char *)c.at)[i]);
    return true;
}

void check_launch_ends() {
    for (const change &c : checked.changes)
        if (memcmp(c.at, c.value, c.bytes) != 0)
            check_fail("racecheck", use::WRITE, c.bytes, c.at, check_memory_at(c.at),
                       "and others where blocks and threads run in a random order");
    checked.changes.clear();
    if (checked.shared.bytes > 0) check_memory_gone(checked.shared.base);
    one_at_a_time.unlock();
}

/* ---------------------------------------------------------------- blocks */

void check_block(uint64_t number) {
    checked.now.block = number;
    checked.now.barrier = 0;
    for (const memory_piece &piece : {checked.variables, checked.shared})
        if (piece.bytes > 0) memset(check_memory_at(piece.base)->written, 0, piece.bytes);
}

void check_thread(witness *w, uint32_t number, const char *stack, size_t stack_bytes) {
    *w = {number, stack, stack_bytes, {}};
    w->clock[number % 32] = 1;
}

void check_running(witness *w) { running = w; }

void check_barrier() { checked.now.barrier++; }

void check_warp(witness *const *lanes, int count) {
    uint32_t joined[32] = {};
    for (int l = 0; l < count; l++)
        for (int i = 0; i < 32; i++) joined[i] = joined[i] > lanes[l]->clock[i] ? joined[i] : lanes[l]->clock[i];
    for (int l = 0; l < count; l++) {
        memcpy(lanes[l]->clock, joined, sizeof joined);
        lanes[l]->clock[lanes[l]->number % 32]++;
    }
}

} // namespace cuda_emulation
