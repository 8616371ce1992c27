/* SPDX-License-Identifier: MIT */
/* The vector types of the kernel language. */
#ifndef TESTS_CUDA_EMULATION_VECTOR_TYPES_H
#define TESTS_CUDA_EMULATION_VECTOR_TYPES_H

#include <stdint.h>

#define CUDA_EMULATION_VECTORS(name, scalar, align2, align4)                                                           \
    struct name##1 {                                                                                                   \
        scalar x;                                                                                                      \
    };                                                                                                                 \
    struct alignas(align2) name##2 {                                                                                   \
        scalar x, y;                                                                                                   \
    };                                                                                                                 \
    struct name##3 {                                                                                                   \
        scalar x, y, z;                                                                                                \
    };                                                                                                                 \
    struct alignas(align4) name##4 {                                                                                   \
        scalar x, y, z, w;                                                                                             \
    };                                                                                                                 \
    inline name##1 make_##name##1(scalar x) { return {x}; }                                                            \
    inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }                                               \
    inline name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; }                                  \
    inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

CUDA_EMULATION_VECTORS(char, signed char, 2, 4)
CUDA_EMULATION_VECTORS(uchar, unsigned char, 2, 4)
CUDA_EMULATION_VECTORS(short, short, 4, 8)
CUDA_EMULATION_VECTORS(ushort, unsigned short, 4, 8)
CUDA_EMULATION_VECTORS(int, int, 8, 16)
CUDA_EMULATION_VECTORS(uint, unsigned int, 8, 16)
CUDA_EMULATION_VECTORS(longlong, long long, 16, 16)
CUDA_EMULATION_VECTORS(ulonglong, unsigned long long, 16, 16)
CUDA_EMULATION_VECTORS(float, float, 8, 16)
CUDA_EMULATION_VECTORS(double, double, 16, 16)
#undef CUDA_EMULATION_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

#endif
