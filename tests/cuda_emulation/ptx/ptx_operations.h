/* SPDX-License-Identifier: MIT */
/* What each lane computes by itself. Compiled twice (ptx_operations_*.cc), so it must not instantiate templates of
 * headers that other files use. PTX_TABLE: the name of the table. */
#include <fenv.h>
#include <math.h>

#include "tests/cuda_emulation/ptx/ptx_code.h"

namespace ptx {
namespace {

/* ---------------------------------------------------------------- numbers */

template <class To, class From> To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* A NaN of one precision has no payload on a GPU. */
float canonical(float x) { return x != x ? bits<float>(0x7fffffffu) : x; }
double canonical(double x) { return x; }

float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

float root(float x) { return sqrtf(x); }
double root(double x) { return sqrt(x); }
float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <class T> T float_lesser(T a, T b) {
    if (a != a) return canonical(b);
    if (b != b) return a;
    return a < b || (a == b && signbit(a)) ? a : b;
}
template <class T> T float_greater(T a, T b) {
    if (a != a) return canonical(b);
    if (b != b) return a;
    return a > b || (a == b && !signbit(a)) ? a : b;
}

template <class T> constexpr int BITS = 8 * sizeof(T);
template <class T> struct twice;
template <> struct twice<int16_t> { using type = int32_t; };
template <> struct twice<uint16_t> { using type = uint32_t; };
template <> struct twice<int32_t> { using type = int64_t; };
template <> struct twice<uint32_t> { using type = uint64_t; };
template <> struct twice<int64_t> { using type = __int128; };
template <> struct twice<uint64_t> { using type = unsigned __int128; };

/* To an integer, saturated; NaN is 0, or for 64 bits the least. */
template <class T, class F> T to_integer(F x) {
    const F above = (F)(sizeof(T) == 8 ? 0x1p63 : (T)-1 > 0 ? 0x1p32 : 0x1p31), below = (T)-1 > 0 ? (F)0 : -above;
    if (x != x) return sizeof(T) == 8 ? (T)((uint64_t)1 << 63) : 0;
    if (x < below) return (T)-1 > 0 ? 0 : (T)((T)1 << (BITS<T> - 1));
    if (x >= above) return (T)-1 > 0 ? (T)-1 : (T) ~((T)1 << (BITS<T> - 1));
    return (T)x;
}

uint32_t bf16_of(float x) {
    const uint32_t u = bits<uint32_t>(x);
    return x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t all = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int n = 0; n < 4; n++) {
        const uint32_t digit = selector >> 4 * n & 15;
        uint32_t byte = (uint32_t)(all >> 8 * (digit & 7)) & 0xff;
        if (digit & 8) byte = byte & 0x80 ? 0xff : 0;
        out |= byte << 8 * n;
    }
    return out;
}

template <class T> T inserted(T a, T b, uint32_t at, uint32_t length) {
    at &= 0xff, length &= 0xff;
    if (at >= (uint32_t)BITS<T> || length == 0) return b;
    const T ones = length >= (uint32_t)BITS<T> ? (T)-1 : (T)(((T)1 << length) - 1), mask = (T)(ones << at);
    return (T)((b & ~mask) | ((T)(a << at) & mask));
}

uint32_t reversed(uint32_t x) {
    uint32_t out = 0;
    for (int n = 0; n < 32; n++) out |= (x >> n & 1) << (31 - n);
    return out;
}

/* ---------------------------------------------------------------- executors */

/* F::of computes one lane's result. R, A, B, C: types of result and operands. */
template <class R, class A, class F> void one(warp &w, const instruction &i) {
    const A *a = w.at<A>(i.reg[1]);
    R out[LANES];
    for (int l = 0; l < LANES; l++) out[l] = F::of(a[l]); // NOLINT(bugprone-signed-char-misuse)
    put(w, i.reg[0], out);
}
template <class R, class A, class B, class F> void two(warp &w, const instruction &i) {
    const A *a = w.at<A>(i.reg[1]);
    const B *b = w.at<B>(i.reg[2]);
    R out[LANES];
    for (int l = 0; l < LANES; l++) out[l] = F::of(a[l], b[l]);
    put(w, i.reg[0], out);
}
template <class R, class A, class C, class F> void three(warp &w, const instruction &i) {
    const A *a = w.at<A>(i.reg[1]), *b = w.at<A>(i.reg[2]);
    const C *c = w.at<C>(i.reg[3]);
    R out[LANES];
    for (int l = 0; l < LANES; l++) out[l] = F::of(a[l], b[l], c[l]);
    put(w, i.reg[0], out);
}
template <class T, class F> void four(warp &w, const instruction &i) {
    const T *a = w.at<T>(i.reg[1]), *b = w.at<T>(i.reg[2]);
    const uint32_t *c = w.at<uint32_t>(i.reg[3]), *d = w.at<uint32_t>(i.reg[4]);
    T out[LANES];
    for (int l = 0; l < LANES; l++) out[l] = F::of(a[l], b[l], c[l], d[l]);
    put(w, i.reg[0], out);
}
template <class T, class F> void compared(warp &w, const instruction &i) {
    const T *a = w.at<T>(i.reg[1]), *b = w.at<T>(i.reg[2]);
    uint32_t out = 0;
    for (int l = 0; l < LANES; l++) out |= F::of(a[l], b[l]) ? 1u << l : 0;
    put_predicate(w, i.reg[0], out);
}
template <class F> void predicates(warp &w, const instruction &i) {
    put_predicate(w, i.reg[0], F::of(*w.at<uint32_t>(i.reg[1]), *w.at<uint32_t>(i.reg[2])));
}
void not_predicate(warp &w, const instruction &i) { put_predicate(w, i.reg[0], ~*w.at<uint32_t>(i.reg[1])); }
void move_predicate(warp &w, const instruction &i) { put_predicate(w, i.reg[0], *w.at<uint32_t>(i.reg[1])); }
template <class T> void selected(warp &w, const instruction &i) {
    const T *a = w.at<T>(i.reg[1]), *b = w.at<T>(i.reg[2]);
    const uint32_t set = *w.at<uint32_t>(i.reg[3]);
    T out[LANES];
    for (int l = 0; l < LANES; l++) out[l] = set >> l & 1 ? a[l] : b[l];
    put(w, i.reg[0], out);
}
template <class T> void moved(warp &w, const instruction &i) { put(w, i.reg[0], w.at<T>(i.reg[1])); }
/* a b + c, rounded downwards. */
void fused_downwards(warp &w, const instruction &i) {
    const int was = fegetround();
    fesetround(FE_DOWNWARD);
    const float *a = w.at<float>(i.reg[1]), *b = w.at<float>(i.reg[2]), *c = w.at<float>(i.reg[3]);
    volatile float out[LANES];
    for (int l = 0; l < LANES; l++) out[l] = canonical(fused(a[l], b[l], c[l]));
    fesetround(was);
    put(w, i.reg[0], const_cast<const float *>(out));
}

/* clang-format off */

/* What a lane computes: of<T> of operands a, b, c, d. */
#define F1(name, ...)                                                                                                  \
    struct name {                                                                                                      \
        template <class T> static auto of(T a) { return __VA_ARGS__; }                                                 \
    };
#define F2(name, ...)                                                                                                  \
    struct name {                                                                                                      \
        template <class T, class U> static auto of(T a, U b) { return __VA_ARGS__; }                                   \
    };
#define F3(name, ...)                                                                                                  \
    struct name {                                                                                                      \
        template <class T, class U> static auto of(T a, T b, U c) { return __VA_ARGS__; }                              \
    };
#define F4(name, ...)                                                                                                  \
    struct name {                                                                                                      \
        template <class T> static T of(T a, T b, uint32_t c, uint32_t d) { return __VA_ARGS__; }                       \
    };

F2(f_add, (T)(a + b))
F2(f_sub, (T)(a - b))
F2(f_mul, (T)(a * b))
F2(f_and, (T)(a & b))
F2(f_or, (T)(a | b))
F2(f_xor, (T)(a ^ b))
F1(f_not, (T)~a)
F1(f_neg, (T)(0 - (uint64_t)a))
F1(f_abs, (T)(a < 0 ? 0 - (uint64_t)a : (uint64_t)a))
F2(f_min, b < a ? b : a)
F2(f_max, a < b ? b : a)
/* Lanes that do not run the instruction divide, too: it must not stop this program. */
F2(f_div, b == 0 ? (T)~a : b == (T)-1 ? (T)(0 - (uint64_t)a) : (T)(a / b))
F2(f_rem, b == 0 ? (T)~a : b == (T)-1 ? (T)0 : (T)(a % b))
F2(f_udiv, b == 0 ? (T)~a : (T)(a / b))
F2(f_urem, b == 0 ? (T)~a : (T)(a % b))
F2(f_shl, b >= (uint32_t)BITS<T> ? (T)0 : (T)(a << b))
F2(f_shr, b >= (uint32_t)BITS<T> ? (T)0 : (T)(a >> b))
F2(f_sar, (T)(a >> (b >= (uint32_t)BITS<T> ? BITS<T> - 1 : (int)b)))
F1(f_popc, (uint32_t)__builtin_popcountll(a))
F1(f_clz, (uint32_t)(a ? __builtin_clzll(a) - (64 - BITS<T>) : BITS<T>))
F1(f_brev, reversed(a))
F1(f_bfind_shift, (uint32_t)(a ? __builtin_clz(a) : ALL)) /* the shift that brings the first set bit to the top */
F4(f_bfi, inserted(a, b, c, d))
F3(f_prmt, permuted(a, b, c))
/* a: the low word, b: the high one. */
F3(f_shf_l_wrap, (uint32_t)(((uint64_t)b << 32 | a) << (c & 31) >> 32))
F3(f_shf_r_wrap, (uint32_t)(((uint64_t)b << 32 | a) >> (c & 31)))
F3(f_shf_l_clamp, c >= 32 ? a : (uint32_t)(((uint64_t)b << 32 | a) << c >> 32))
F3(f_shf_r_clamp, c >= 32 ? b : (uint32_t)(((uint64_t)b << 32 | a) >> c))
F2(f_wide, (typename twice<T>::type)a * (typename twice<T>::type)b)
F2(f_high, (T)((typename twice<T>::type)a * (typename twice<T>::type)b >> BITS<T>))
F3(f_mad, (T)(a * b + c))
F3(f_mad_wide, (U)((U)a * (U)b + c))

F2(f_fadd, canonical(a + b))
F2(f_fsub, canonical(a - b))
F2(f_fmul, canonical(a * b))
F2(f_fdiv, canonical(a / b))
F1(f_fneg, -a)
F1(f_fabs, (T)__builtin_fabs(a))
F2(f_fmin, float_lesser(a, b))
F2(f_fmax, float_greater(a, b))
F2(f_fmin_nan, a != a || b != b ? canonical(a + b) : float_lesser(a, b))
F2(f_fmax_nan, a != a || b != b ? canonical(a + b) : float_greater(a, b))
F2(f_copysign, copysignf(b, a)) /* the sign of a, the rest of b */
F1(f_rcp, canonical(1 / a))
F1(f_sqrt, canonical(root(a)))
F3(f_fma, canonical(fused(a, b, c)))
F1(f_saturate, a > 0 ? a < 1 ? a : 1.0f : 0.0f)
F1(f_trunc, canonical((T)__builtin_trunc(a)))
F1(f_floor, canonical(floorf(a)))
F1(f_near, canonical(nearbyintf(a)))
F1(f_exp2, flush(exp2f(flush(a))))
F1(f_rcp_flush, flush(canonical(1 / flush(a))))
F1(f_rcp_gross, bits<double>(bits<uint64_t>(1 / a) & 0xffffffff00000000)) /* 20 bits of the fraction, as a GPU's */
F2(f_bf16x2, bf16_of(a) << 16 | bf16_of(b))

F2(c_eq, a == b)
F2(c_ne, a != b && a == a && b == b)
F2(c_lt, a < b)
F2(c_le, a <= b)
F2(c_gt, a > b)
F2(c_ge, a >= b)
/* True also if one is NaN. */
F2(c_equ, !(a < b || a > b))
F2(c_neu, a != b)
F2(c_ltu, !(a >= b))
F2(c_leu, !(a > b))
F2(c_gtu, !(a <= b))
F2(c_geu, !(a < b))
F2(c_nan, a != a || b != b)

template <class R> struct to {
    template <class T> static R of(T a) { return (R)a; }
};
template <class R> struct to_cut {
    template <class T> static R of(T a) { return to_integer<R>(a); }
};
template <class R> struct to_rounded {
    static R of(float a) { return to_integer<R>(nearbyintf(a)); }
};
F1(f_narrowed, canonical((float)a))

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

} // namespace

/* Of one type, or of all of a kind. OF2: two operands and a result of type T. */
#define OF1(op, F, type, T, x) {op "." type, one<T, T, F>, x x},
#define OF2(op, F, type, T, x) {op "." type, two<T, T, T, F>, x x x},
#define BITS1(op, F)           OF1(op, F, "b16", u16, "h") OF1(op, F, "b32", u32, "w") OF1(op, F, "b64", u64, "d")
#define BITS2(op, F)           OF2(op, F, "b16", u16, "h") OF2(op, F, "b32", u32, "w") OF2(op, F, "b64", u64, "d")
#define SIGNED1(op, F)         OF1(op, F, "s16", s16, "h") OF1(op, F, "s32", s32, "w") OF1(op, F, "s64", s64, "d")
#define SIGNED2(op, F)         OF2(op, F, "s16", s16, "h") OF2(op, F, "s32", s32, "w") OF2(op, F, "s64", s64, "d")
#define PLAIN2(op, F)          OF2(op, F, "u16", u16, "h") OF2(op, F, "u32", u32, "w") OF2(op, F, "u64", u64, "d")
/* Sums and products have the same bits, with a sign or without; without, they cannot overflow. */
#define EITHER2(op, F) \
    PLAIN2(op, F) OF2(op, F, "s16", u16, "h") OF2(op, F, "s32", u32, "w") OF2(op, F, "s64", u64, "d")
#define FLOATS1(op, F)           OF1(op, F, "f32", f32, "w") OF1(op, F, "f64", f64, "d")
#define FLOATS2(op, F)           OF2(op, F, "f32", f32, "w") OF2(op, F, "f64", f64, "d")
#define FLOATS3(op, F) \
    {op ".f32", three<f32, f32, f32, F>, "wwww"}, {op ".f64", three<f64, f64, f64, F>, "dddd"},
#define SHIFT(op, F, type, T, x) {op "." type, two<T, T, u32, F>, x x "w"},
#define SHIFTS(op, F, t, u)                                                                                            \
    SHIFT(op, F, t "16", u##16, "h") SHIFT(op, F, t "32", u##32, "w") SHIFT(op, F, t "64", u##64, "d")
#define COMPARE(op, F, type, T, x) {"setp." op "." type, compared<T, F>, "p" x x},
#define COMPARES(op, F, t, u)                                                                                          \
    COMPARE(op, F, t "16", u##16, "h") COMPARE(op, F, t "32", u##32, "w") COMPARE(op, F, t "64", u##64, "d")
#define COMPARE_WORDS(op, F)  COMPARES(op, F, "s", s) COMPARES(op, F, "u", u) COMPARES(op, F, "b", u)
#define COMPARE_FLOATS(op, F) COMPARE(op, F, "f32", f32, "w") COMPARE(op, F, "f64", f64, "d")
#define SELECT(type, T, x)    {"selp." type, selected<T>, x x x "p"},
#define MOVE(type, T, x)      {"mov." type, moved<T>, x x},
#define OF_ANY_TYPE(ROW)                                                                                               \
    ROW("b16", u16, "h")                                                                                               \
    ROW("u16", u16, "h")                                                                                               \
    ROW("s16", u16, "h") ROW("b32", u32, "w") ROW("u32", u32, "w") ROW("s32", u32, "w") ROW("f32", u32, "w")           \
        ROW("b64", u64, "d") ROW("u64", u64, "d") ROW("s64", u64, "d") ROW("f64", u64, "d")
#define WORD3(op, F)                  {op, three<u32, u32, u32, F>, "wwww"},
#define CONVERT(op, R, A, F, letters) {"cvt." op, one<R, A, F>, letters},

const operation PTX_TABLE[] = {
    EITHER2("add", f_add) EITHER2("sub", f_sub) EITHER2("mul.lo", f_mul) SIGNED2("min", f_min)
    PLAIN2("min", f_min) SIGNED2("max", f_max) PLAIN2("max", f_max) SIGNED2("div", f_div)
    PLAIN2("div", f_udiv) SIGNED2("rem", f_rem) PLAIN2("rem", f_urem) SIGNED1("neg", f_neg)
    SIGNED1("abs", f_abs) BITS2("and", f_and) BITS2("or", f_or) BITS2("xor", f_xor)
    BITS1("not", f_not) SHIFTS("shl", f_shl, "b", u) SHIFTS("shr", f_shr, "b", u)
    SHIFTS("shr", f_shr, "u", u) SHIFTS("shr", f_sar, "s", s)
    {"popc.b32", one<u32, u32, f_popc>, "ww"},
    {"popc.b64", one<u32, u64, f_popc>, "wd"},
    {"clz.b32", one<u32, u32, f_clz>, "ww"},
    {"clz.b64", one<u32, u64, f_clz>, "wd"},
    {"brev.b32", one<u32, u32, f_brev>, "ww"},
    {"bfind.shiftamt.u32", one<u32, u32, f_bfind_shift>, "ww"},
    {"bfi.b32", four<u32, f_bfi>, "wwwww"},
    {"bfi.b64", four<u64, f_bfi>, "dddww"},
    WORD3("prmt.b32", f_prmt) WORD3("shf.l.wrap.b32", f_shf_l_wrap)
    WORD3("shf.r.wrap.b32", f_shf_r_wrap) WORD3("shf.l.clamp.b32", f_shf_l_clamp)
    WORD3("shf.r.clamp.b32", f_shf_r_clamp) WORD3("mad.lo.s32", f_mad) WORD3("mad.lo.u32", f_mad)
    {"mad.lo.s64", three<u64, u64, u64, f_mad>, "dddd"},
    {"mad.wide.s32", three<s64, s32, s64, f_mad_wide>, "dwwd"},
    {"mad.wide.u32", three<u64, u32, u64, f_mad_wide>, "dwwd"},
    {"mul.wide.s16", two<s32, s16, s16, f_wide>, "whh"},
    {"mul.wide.u16", two<u32, u16, u16, f_wide>, "whh"},
    {"mul.wide.s32", two<s64, s32, s32, f_wide>, "dww"},
    {"mul.wide.u32", two<u64, u32, u32, f_wide>, "dww"},
    SIGNED2("mul.hi", f_high) PLAIN2("mul.hi", f_high) FLOATS2("add.rn", f_fadd)
    FLOATS2("add", f_fadd) FLOATS2("sub.rn", f_fsub) FLOATS2("sub", f_fsub)
    FLOATS2("mul.rn", f_fmul) FLOATS2("mul", f_fmul) FLOATS2("div.rn", f_fdiv)
    {"div.approx.f32", two<f32, f32, f32, f_fdiv>, "www"},
    FLOATS3("fma.rn", f_fma)
    {"fma.rm.f32", fused_downwards, "wwww"},
    FLOATS1("rcp.rn", f_rcp) FLOATS1("sqrt.rn", f_sqrt) FLOATS1("neg", f_fneg)
    FLOATS1("abs", f_fabs) FLOATS2("min", f_fmin) FLOATS2("min.NaN", f_fmin_nan)
    FLOATS2("max", f_fmax) FLOATS2("max.NaN", f_fmax_nan)
    {"copysign.f32", two<f32, f32, f32, f_copysign>, "www"},
    {"ex2.approx.ftz.f32", one<f32, f32, f_exp2>, "ww"},
    {"rcp.approx.ftz.f32", one<f32, f32, f_rcp_flush>, "ww"},
    {"rcp.approx.ftz.f64", one<f64, f64, f_rcp_gross>, "dd"},
    COMPARE_WORDS("eq", c_eq) COMPARE_FLOATS("eq", c_eq) COMPARE_FLOATS("equ", c_equ)
    COMPARE_WORDS("ne", c_neu) COMPARE_FLOATS("ne", c_ne) COMPARE_FLOATS("neu", c_neu)
    COMPARE_WORDS("lt", c_lt) COMPARE_FLOATS("lt", c_lt) COMPARE_FLOATS("ltu", c_ltu)
    COMPARE_WORDS("le", c_le) COMPARE_FLOATS("le", c_le) COMPARE_FLOATS("leu", c_leu)
    COMPARE_WORDS("gt", c_gt) COMPARE_FLOATS("gt", c_gt) COMPARE_FLOATS("gtu", c_gtu)
    COMPARE_WORDS("ge", c_ge) COMPARE_FLOATS("ge", c_ge) COMPARE_FLOATS("geu", c_geu)
    COMPARE_FLOATS("nan", c_nan)
    {"and.pred", predicates<f_and>, "ppp"},
    {"or.pred", predicates<f_or>, "ppp"},
    {"xor.pred", predicates<f_xor>, "ppp"},
    {"not.pred", not_predicate, "pp"},
    {"mov.pred", move_predicate, "pp"},
    OF_ANY_TYPE(SELECT) OF_ANY_TYPE(MOVE) CONVERT("s64.s32", s64, s32, to<s64>, "dw")
    CONVERT("u64.u32", u64, u32, to<u64>, "dw") CONVERT("u64.u16", u64, u16, to<u64>, "dh")
    CONVERT("u32.u16", u32, u16, to<u32>, "wh") CONVERT("s32.s16", s32, s16, to<s32>, "wh")
    CONVERT("u32.u64", u32, u64, to<u32>, "wd") CONVERT("u16.u32", u16, u32, to<u16>, "hw")
    CONVERT("u16.u64", u16, u64, to<u16>, "hd")
    CONVERT("s64.s32.d", s64, u64, to<s32>, "dd") /* from 32 bits of a wider register */
    CONVERT("s32.s8", s32, u32, to<int8_t>, "ww") /* from 8 bits of one */
    CONVERT("rn.f32.s16", f32, s16, to<f32>, "wh") CONVERT("rn.f32.u16", f32, u16, to<f32>, "wh")
    CONVERT("rn.f32.s32", f32, s32, to<f32>, "ww") CONVERT("rn.f32.u32", f32, u32, to<f32>, "ww")
    CONVERT("rn.f32.s64", f32, s64, to<f32>, "wd") CONVERT("rn.f32.u64", f32, u64, to<f32>, "wd")
    CONVERT("rn.f64.s32", f64, s32, to<f64>, "dw") CONVERT("rn.f64.u32", f64, u32, to<f64>, "dw")
    CONVERT("rn.f64.s64", f64, s64, to<f64>, "dd") CONVERT("rn.f64.u64", f64, u64, to<f64>, "dd")
    CONVERT("f64.f32", f64, f32, to<f64>, "dw") CONVERT("rn.f32.f64", f32, f64, f_narrowed, "wd")
    CONVERT("rzi.s32.f32", s32, f32, to_cut<s32>, "ww")
    CONVERT("rzi.u32.f32", u32, f32, to_cut<u32>, "ww")
    CONVERT("rzi.s64.f32", s64, f32, to_cut<s64>, "dw")
    CONVERT("rni.s32.f32", s32, f32, to_rounded<s32>, "ww")
    CONVERT("rni.u32.f32", u32, f32, to_rounded<u32>, "ww")
    CONVERT("rzi.f32.f32", f32, f32, f_trunc, "ww") CONVERT("rzi.f64.f64", f64, f64, f_trunc, "dd")
    CONVERT("rmi.f32.f32", f32, f32, f_floor, "ww") CONVERT("rni.f32.f32", f32, f32, f_near, "ww")
    CONVERT("sat.f32.f32", f32, f32, f_saturate, "ww")
    {"cvt.rn.bf16x2.f32", two<u32, f32, f32, f_bf16x2>, "www"},
    {nullptr, nullptr, nullptr},
};

} // namespace ptx
