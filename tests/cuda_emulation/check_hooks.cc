// SPDX-License-Identifier: MIT
/* What the compiler calls: with -fsanitize=thread before each access to memory, with -fsanitize=alignment and bounds if
 * an address or an index is wrong. */
#include "tests/cuda_emulation/check_access.h"

using cuda_emulation::check_access;
using cuda_emulation::use;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

#define HOOKS(bytes)                                                                                                   \
    void __tsan_read##bytes(void *at) { check_access(at, bytes, use::READ); }                                          \
    void __tsan_write##bytes(void *at) { check_access(at, bytes, use::WRITE); }                                        \
    void __tsan_volatile_read##bytes(void *at) { check_access(at, bytes, use::READ); }                                 \
    void __tsan_volatile_write##bytes(void *at) { check_access(at, bytes, use::WRITE); }                               \
    void __tsan_unaligned_read##bytes(void *at) { check_access(at, bytes, use::READ); }                                \
    void __tsan_unaligned_write##bytes(void *at) { check_access(at, bytes, use::WRITE); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
#undef HOOKS

void __tsan_read_range(void *at, size_t bytes) { check_access(at, bytes, use::READ); }
void __tsan_write_range(void *at, size_t bytes) { check_access(at, bytes, use::WRITE); }

#define ATOMICS(bits, type)                                                                                            \
    ATOMIC(ATOMIC, bits, type, load, (volatile type * at, int), __atomic_load_n(at, __ATOMIC_SEQ_CST))                 \
    ATOMIC(ATOMIC, bits, type, fetch_add, ARGUMENTS(type), __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST))            \
    ATOMIC(ATOMIC, bits, type, fetch_sub, ARGUMENTS(type), __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST))            \
    ATOMIC(PUT, bits, void, store, ARGUMENTS(type), __atomic_store_n(at, value, __ATOMIC_SEQ_CST))                     \
    ATOMIC(ATOMIC, bits, int, compare_exchange_strong, (volatile type * at, type * expected, type value, int, int),    \
           EXCHANGED(expected))                                                                                        \
    ATOMIC(ATOMIC, bits, type, compare_exchange_val, (volatile type * at, type expected, type value, int, int),        \
           (EXCHANGED(&expected), expected))
#define EXCHANGED(expected) __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define ARGUMENTS(type)     (volatile type * at, type value, int)
#define ATOMIC(as, bits, result, name, arguments, does)                                                                \
    result __tsan_atomic##bits##_##name arguments {                                                                    \
        check_access(const_cast<const void *>(static_cast<const volatile void *>(at)), sizeof *at, use::as);           \
        return does;                                                                                                   \
    }
ATOMICS(8, uint8_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
#undef ATOMICS
#undef ATOMIC
#undef ARGUMENTS
#undef EXCHANGED

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* ---------------------------------------------------------------- of -fsanitize=alignment,bounds */

struct place {
    const char *file;
    uint32_t line, column;
};

struct type_words {
    uint16_t kind, info;
    char name[];
};

struct mismatch {
    place at;
    const type_words *type;
    unsigned char alignment_bits, kind;
};

struct index_data {
    place at;
    const type_words *array, *index;
};

void __ubsan_handle_type_mismatch_v1(const mismatch *data, void *address) {
    cuda_emulation::die("memcheck: %p is not aligned to %d bytes, for a %s at %s:%u", address,
                        1 << data->alignment_bits, data->type->name, data->at.file, data->at.line);
}

void __ubsan_handle_out_of_bounds(const index_data *data, void *index) {
    cuda_emulation::die("memcheck: index %td is outside of a %s at %s:%u", (ptrdiff_t)index, data->array->name,
                        data->at.file, data->at.line);
}

} // extern "C"
