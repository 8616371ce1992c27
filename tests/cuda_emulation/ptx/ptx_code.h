/* SPDX-License-Identifier: MIT */
/* A decoded kernel of PTX, and what an instruction sees when it runs. A warp's 32 lanes run an instruction together, so
 * a register is an array of 32 values; a predicate is a set of lanes, 32 bits. A constant is a register that no
 * instruction writes. */
#ifndef TESTS_CUDA_EMULATION_PTX_PTX_CODE_H
#define TESTS_CUDA_EMULATION_PTX_PTX_CODE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace ptx {

constexpr int LANES = 32;
constexpr uint32_t ALL = 0xffffffff, GARBAGE = 0xa5a5a5a5, NO_REGISTER = UINT32_MAX;

struct warp;
struct instruction;
using executor = void (*)(warp &w, const instruction &i);

enum class kind : uint8_t {
    PLAIN,   /* each lane by itself */
    BRANCH,  /* to `target` */
    END,     /* the lanes end */
    BARRIER, /* waits for the block */
    MEET,    /* waits for the lanes of the set `lanes` */
    ALIGNED, /* waits for all lanes, which must be at this same instruction */
};

enum class space : uint8_t { GENERIC, GLOBAL, SHARED, LOCAL, PARAM };

/* How a barrier combines predicates. */
enum class combine : uint8_t { NONE, AND, OR, COUNT };

struct instruction {
    executor run;
    uint32_t reg[14]; /* offsets in the warp's registers: results, then operands; NO_REGISTER: `_` */
    uint32_t guard;   /* predicate; NO_REGISTER: the instruction always runs */
    uint32_t address; /* NO_REGISTER: the address is `offset` */
    uint32_t source;  /* of MEET and BARRIER: what the lanes exchange; NO_REGISTER: nothing */
    uint32_t lanes;   /* of MEET */
    uint32_t target;  /* of BRANCH: index of an instruction */
    uint32_t line;    /* of the file */
    int64_t offset;   /* added to an address */
    kind what;
    space where;
    combine how;
    bool negated;      /* the guard */
    bool wide_address; /* 64 bits */
    bool of_predicate; /* the source is a predicate */
    uint8_t elements;  /* of a vector */
};

struct warp {
    char *registers;
    uint32_t mask;          /* lanes that run the instruction */
    uint32_t met;           /* lanes that take part in an exchange */
    uint32_t values[LANES]; /* what they exchange; of other lanes: garbage */
    uint32_t predicates;    /* the same, of predicates */
    struct block *of;
    char *local; /* memory of the lanes, one after another */

    template <class T> T *at(uint32_t offset) { return reinterpret_cast<T *>(registers + offset); }
};

/* Write the lanes of the mask. */
template <class T> inline void put(warp &w, uint32_t reg, const T *values) {
    T *to = w.at<T>(reg);
    if (w.mask == ALL) {
        memcpy(to, values, LANES * sizeof *to);
        return;
    }
    for (int l = 0; l < LANES; l++) to[l] = w.mask >> l & 1 ? values[l] : to[l];
}
inline void put_predicate(warp &w, uint32_t reg, uint32_t values) {
    uint32_t *to = w.at<uint32_t>(reg);
    *to = (*to & ~w.mask) | (values & w.mask);
}

/* An operation that each lane does by itself: its name with all modifiers, its executor, and a letter for each
 * register, results first: p predicate, h 16 bits, w 32, d 64. */
struct operation {
    const char *name;
    executor run;
    const char *registers;
};

/* The operations, ending with a name NULL; compiled for every CPU, and for those with AVX2 and FMA. */
extern const operation operations_plain[], operations_fast[];

/* ptx_memory.cc: loads and stores of elements of `type` ("u32") from and to registers of `width` bytes; read-modify-
 * write operations ("add", "u32"); between one register of `wide` bytes and several of `narrow`; addresses of shared
 * and local memory as generic ones. NULL: there is no such. */
executor load_of(const char *type, int width);
executor store_of(const char *type, int width);
executor atomic_of(const char *operation, const char *type);
executor pack_of(int wide, int narrow);
executor unpack_of(int wide, int narrow);
executor address_of(space where);

/* ptx_meet.cc: exchanges between lanes, by name with all modifiers ("shfl.sync.bfly.b32"). NULL: there is no such. */
executor meeting_of(const char *operation);

/* The block that runs on this thread, as memory is seen from it. */
struct block {
    const struct kernel *code;
    unsigned index[3];
    unsigned threads[3];
    const char *parameters;
    char *shared;
    size_t shared_bytes;
    const char *known; /* device memory that was found last */
    size_t known_bytes;
    size_t (*memory_at)(const void *byte, const void **base_out); /* the launch's */
};

/* Prints the kernel, the block, the lane's thread, the instruction and the text, and aborts. */
[[noreturn]] __attribute__((format(printf, 4, 5))) void die(const warp &w, const instruction &i, int lane,
                                                            const char *format, ...);

} // namespace ptx

#endif
