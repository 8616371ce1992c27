/* SPDX-License-Identifier: MIT */
/* A kernel of zfp_group.h on vectors, LANES blocks at a time. A file for one instruction set includes it once, and
 * before that defines LANES, the types
 *      u32v, i32v, f32v        vectors of LANES elements (GCC's vector extension)
 * and the functions, all of them FN,
 *      shl(x, s), shr(x, s)    shift each lane by its own count; 0 for counts of 32 and above (and "negative" ones)
 *      blend(m, a, b)          bits of a where m has ones, else of b
 *      larger(a, b)            maximum, unsigned
 *      bit_length(x)           of x < 2^16: 0 for 0
 *      bit_count(x)            of x < 2^16
 *      bytes_of(table, x)      each byte of x (< 16) replaced by its entry in the table
 *      to_int(x), to_float(x)  as C converts; to_int gives INT32_MIN where C's conversion is undefined
 *      any(m)                  whether any bit is set
 *      lane_set(m)             set of the lanes that are all ones; the others must be all zeros
 * The functions below compute without loops what mm_zfp_plane_encode and mm_zfp_plane_decode compute with loops. */

/* Lets GCC keep arrays of vectors in registers. Clang does so anyway. */
#if defined(__clang__)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

FN u32v of(uint32_t x) { return x - (u32v){0}; }
FN u32v load(const void *p) {
    u32v x;
    memcpy(&x, p, sizeof x);
    return x;
}
FN void store(void *p, u32v x) { memcpy(p, &x, sizeof x); }
FN u32v half(u32v x) { return (u32v)((i32v)x >> 1); }
/* Per lane: all ones if true. Both arguments must be below 2^31. */
FN u32v equal(u32v a, u32v b) { return (u32v)((i32v)a == (i32v)b); }
FN u32v less(u32v a, u32v b) { return (u32v)((i32v)a < (i32v)b); }
FN u32v ones(u32v count) { return shl(of(1), count) - 1; }

FN void lift(u32v *v, int stride) {
    u32v x = v[0], y = v[stride], z = v[2 * stride], w = v[3 * stride];
    x = half(x + w), w -= x;
    z = half(z + y), y -= z;
    x = half(x + z), z -= x;
    w = half(w + y), y -= w;
    w += half(y), y -= half(w);
    v[0] = x, v[stride] = y, v[2 * stride] = z, v[3 * stride] = w;
}

FN void unlift(u32v *v, int stride) {
    u32v x = v[0], y = v[stride], z = v[2 * stride], w = v[3 * stride];
    y += half(w), w -= half(y);
    y += w, w = w + w - y;
    z += x, x = x + x - z;
    y += z, z = z + z - y;
    w += x, x = x + x - w;
    v[0] = x, v[stride] = y, v[2 * stride] = z, v[3 * stride] = w;
}

FN void transpose(u32v v[MM_ZFP_VALUES]) {
#define STAGE(step, mask)                                                                                              \
    UNROLL for (int i = 0; i < MM_ZFP_VALUES; i++) {                                                                   \
        if (i & step) continue;                                                                                        \
        const u32v a = v[i], b = v[i + step];                                                                          \
        v[i] = blend(of(mask), a, b << step);                                                                          \
        v[i + step] = blend(of(mask), a >> step, b);                                                                   \
    }
    STAGE(8, 0x00ff00ff)
    STAGE(4, 0x0f0f0f0f)
    STAGE(2, 0x33333333)
    STAGE(1, 0x55555555)
#undef STAGE
}

/* Per lane: the low 16 bits with a one inserted after each one; and the number of ones. Works nibble by nibble. */
FN u32v double_ones(u32v x, u32v *count_out) {
    static const uint8_t doubled[16] = {0x00, 0x03, 0x06, 0x0f, 0x0c, 0x1b, 0x1e, 0x3f,
                                        0x18, 0x33, 0x36, 0x6f, 0x3c, 0x7b, 0x7e, 0xff};
    static const uint8_t counts[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
    x = (x | x << 8) & 0x00ff00ff;
    x = (x | x << 4) & 0x0f0f0f0f;
    const u32v parts = bytes_of(doubled, x);
    u32v sums = bytes_of(counts, x);
    sums += sums << 8;
    sums += sums << 16;
    *count_out = sums >> 24;
    return (parts & 0xff) | shl(parts >> 8 & 0xff, (sums & 0xff) + 4) |
           shl(parts >> 16 & 0xff, (sums >> 8 & 0xff) + 8) | shl(parts >> 24, (sums >> 16 & 0xff) + 12);
}

/* The code of plane x; updates n, and sets the code's length. After the n verbatim bits come a one and the other bits
 * up to the last that is set, with a one inserted after each one, but a zero after the last. For the 16th coefficient,
 * whose bit is implied, there is nothing. */
FN u32v plane_encode(u32v x, u32v *n, u32v *length_out) {
    const u32v rest = shr(x, *n), first = *n;
    u32v count;
    const u32v with_ones = double_ones(rest, &count), length = bit_length(rest);
    u32v code = (with_ones << 1 | 1) ^ shl(of(1), length + count);
    *n += length;
    const u32v none = equal(first, of(MM_ZFP_VALUES)), last = equal(*n, of(MM_ZFP_VALUES));
    code ^= shl(of(1), length + count - 1) & last;
    *length_out = *n + count + 1 + last + last - none;
    return (x & ones(first)) | shl(code, first);
}

/* Per lane: removes the bits of `out`, and moves the others down. */
FN u32v compress(u32v x, u32v out) {
    while (any(out)) {
        const u32v below = ~out & (out - 1); /* all ones if none is left */
        x = blend(below, x, x >> 1);
        out = (out & (out - 1)) >> 1;
    }
    return x;
}

/* The inverse of plane_encode. `window` starts with the code; `left` of its bits belong to the block (none if
 * negative), and zeros follow.
 *
 * After the n verbatim bits, which bits were inserted? The first, and each bit after a set bit of the plane. It is as a
 * backslash escapes the next character, and is found in the same way, with one subtraction that ripples through runs of
 * ones (simdjson's find_escaped). The first inserted bit that is zero ends the code. A one is put where the block ends,
 * because libzfp reads one there, and one at the window's end, past any code, so that zeros after the implied last bit
 * end, too. */
FN u32v plane_decode(u32v window, u32v left, u32v *n, u32v *length_out) {
    const u32v first = *n, none = equal(first, of(MM_ZFP_VALUES)), odd = of(0xaaaaaaaa);
    const u32v real = shr(window, first), bits = real | shl(of(1), left - first) | UINT32_C(1) << 31;
    const u32v escapes = bits & ~UINT32_C(1);
    const u32v put_in = ((escapes << 1 | odd) - escapes) ^ odd ^ (bits | 1);
    const u32v end = put_in & ~real, before = ~end & (end - 1);
    u32v rest = compress((bits & before) >> 1, (put_in & before) >> 1);

    const u32v top = shl(of(1), MM_ZFP_VALUES - 1 - first), last = ~equal(rest & -top, of(0)) & ~none;
    rest = ((rest & (top - 1)) | (top & last)) & ~none;
    const u32v length = bit_length(rest);
    *n += length;
    *length_out = *n + bit_count(rest) + 1 + last + last + none;
    return (window & ones(first)) | shl(rest, first);
}

FN u32v gather_bits(const u32v *words, int count, u32v position) {
    u32v bits = of(0);
    UNROLL for (int j = 0; j < count; j++, position -= 32) bits |= shr(words[j], position) | shl(words[j], -position);
    return bits;
}

FN void scatter_bits(u32v *words, int count, u32v position, u32v bits) {
    UNROLL for (int j = 0; j < count; j++, position -= 32) words[j] |= shl(bits, position) | shr(bits, -position);
}

FN uint32_t encode_lanes(const mm_zfp_group_values *values, int lane, int maxbits, int count,
                         mm_zfp_group_code *code_out) {
    static const int order[MM_ZFP_VALUES] = MM_ZFP_ORDER;
    u32v q[MM_ZFP_VALUES], planes[MM_ZFP_VALUES], words[MM_ZFP_MAX_WORDS], top = of(0);
    UNROLL for (int i = 0; i < MM_ZFP_VALUES; i++) top = larger(top, load(&values->at[i][lane]) & 0x7fffffff);
    const u32v e = (top >> 23) + 1, nonfinite = equal(e, of(MM_ZFP_NONFINITE));
    const u32v some = ~nonfinite & ~equal(top, of(0));
    /* For a small e, the scale is infinite, and q becomes INT32_MIN. */
    const u32v overflow = less(e, of(MM_ZFP_INT_MIN_EXPONENT + 1));
    const f32v scale = (f32v)(blend(overflow, of(255), MM_ZFP_SCALE_BIAS - e) << 23);

    UNROLL for (int i = 0; i < MM_ZFP_VALUES; i++) q[i] = to_int((f32v)load(&values->at[i][lane]) * scale);
    UNROLL for (int y = 0; y < 4; y++) lift(q + 4 * y, 1);
    UNROLL for (int x = 0; x < 4; x++) lift(q + x, 4);
    UNROLL for (int i = 0; i < MM_ZFP_VALUES; i++) planes[i] = (q[order[i]] + MM_ZFP_NEGABINARY) ^ MM_ZFP_NEGABINARY;
    transpose(planes);

    const u32v budget = of((uint32_t)maxbits);
    UNROLL for (int j = 0; j < MM_ZFP_MAX_WORDS; j++) words[j] = of(0);
    words[0] = some & (e << 1 | 1);
    u32v n = of(0), position = blend(some, of(MM_ZFP_HEADER_BITS), budget);
    for (int k = 31; k >= 0 && any(less(position, budget)); k--) {
        u32v bits = k < 16 ? planes[k] & 0xffff : planes[k - 16] >> 16, length = of(MM_ZFP_VALUES);
        if (any(less(n, of(MM_ZFP_VALUES)))) bits = plane_encode(bits, &n, &length);
        scatter_bits(words, count, position, bits);
        position += length;
    }
    if (maxbits % 32) words[count - 1] &= mm_zfp_ones(maxbits % 32);
    UNROLL for (int j = 0; j < count; j++) store(&code_out->word[j][lane], words[j]);
    return lane_set(nonfinite);
}

FN void decode_lanes(const mm_zfp_group_code *code, int lane, int maxbits, int count, mm_zfp_group_values *values_out) {
    static const int order[MM_ZFP_VALUES] = MM_ZFP_ORDER;
    u32v q[MM_ZFP_VALUES], planes[MM_ZFP_VALUES], words[MM_ZFP_MAX_WORDS];
    UNROLL for (int j = 0; j < MM_ZFP_MAX_WORDS; j++) words[j] = j < count ? load(&code->word[j][lane]) : of(0);
    UNROLL for (int i = 0; i < MM_ZFP_VALUES; i++) planes[i] = of(0);

    const u32v budget = of((uint32_t)maxbits), some = -(words[0] & 1);
    u32v n = of(0), position = blend(some, of(MM_ZFP_HEADER_BITS), budget);
    for (int k = 31; k >= 0 && any(less(position, budget)); k--) {
        const u32v window = gather_bits(words, count, position);
        u32v bits = window & 0xffff, length = of(MM_ZFP_VALUES);
        if (any(less(n, of(MM_ZFP_VALUES)))) bits = plane_decode(window, budget - position, &n, &length);
        planes[k & 15] |= bits << (k & 16);
        position += length;
    }

    transpose(planes);
    UNROLL for (int i = 0; i < MM_ZFP_VALUES; i++) q[order[i]] = (planes[i] ^ MM_ZFP_NEGABINARY) - MM_ZFP_NEGABINARY;
    UNROLL for (int x = 0; x < 4; x++) unlift(q + x, 4);
    UNROLL for (int y = 0; y < 4; y++) unlift(q + 4 * y, 1);
    const u32v e = words[0] >> 1 & 255;
    const f32v unscale = (f32v)blend(less(e, of(31)), shl(of(1), e - 8), (e - 30) << 23);
    UNROLL for (int i = 0; i < MM_ZFP_VALUES; i++) store(&values_out->at[i][lane], (u32v)(unscale * to_float(q[i])));
}

/* Passes small numbers of words as constants, so that the words stay in registers. */
#define FOR_COUNT(count, CALL)                                                                                         \
    ((count) == 1 ? CALL(1) : (count) == 2 ? CALL(2) : (count) == 3 ? CALL(3) : (count) == 4 ? CALL(4) : CALL(count))

#define ENCODE(count) encode_lanes(values, l, maxbits, count, code_out)
#define DECODE(count) decode_lanes(code, l, maxbits, count, values_out)

TARGET static uint32_t encode(const mm_zfp_group_values *values, int maxbits, mm_zfp_group_code *code_out) {
    uint32_t nonfinite = 0;
    for (int l = 0; l < MM_ZFP_GROUP; l += LANES) {
        nonfinite |= FOR_COUNT(mm_zfp_words(maxbits), ENCODE) << l;
    }
    return nonfinite;
}

TARGET static void decode(const mm_zfp_group_code *code, int maxbits, mm_zfp_group_values *values_out) {
    for (int l = 0; l < MM_ZFP_GROUP; l += LANES) {
        FOR_COUNT(mm_zfp_words(maxbits), DECODE);
    }
}
