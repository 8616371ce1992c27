/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/zfp/zfp_spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/codec/block/zfp_block.h"

enum { DIGITS = 9, MOST_SMS = 1 << 16 };

/* A decimal number, value / one. */
typedef struct decimal {
    int64_t value, one;
    char canonical[24]; /* without trailing zeros */
} decimal;

/* Parses with integers, so that neither locale nor rounding matters. */
static bool parse_decimal(const char *text, size_t length, decimal *out) {
    const size_t whole = strspn(text, "0123456789");
    const bool point = whole < length && text[whole] == '.';
    const char *fraction = text + whole + point;
    size_t digits = point ? strspn(fraction, "0123456789") : 0;
    if (whole + point + digits != length || whole + digits == 0 || whole > DIGITS || digits > DIGITS) return false;
    while (digits > 0 && fraction[digits - 1] == '0') digits--;

    out->value = 0, out->one = 1;
    for (size_t i = 0; i < whole; i++) out->value = 10 * out->value + (text[i] - '0');
    const int64_t integer = out->value;
    for (size_t i = 0; i < digits; i++, out->one *= 10) out->value = 10 * out->value + (fraction[i] - '0');
    snprintf(out->canonical, sizeof out->canonical, "%" PRId64 "%s%.*s", integer, digits ? "." : "", (int)digits,
             fraction);
    return true;
}

/* The bits of a block, floor(values * rate + 0.5) as in libzfp; -1 if the rate is out of range. */
static int64_t bits_of(const decimal *rate, int dims) {
    if (rate->value > MM_ZFP_BITS_PER_VALUE * rate->one) return -1;
    const int64_t bits = (2 * mm_zfp_values(dims) * rate->value + rate->one) / (2 * rate->one);
    return bits < MM_ZFP_MIN_BITS ? -1 : bits;
}

static mm_status fail_rate(const char *params, int dims) {
    const double least = (MM_ZFP_MIN_BITS - 0.5) / mm_zfp_values(dims);
    return mm_fail(MM_ERR_INVALID,
                   "codec zfp: '%s': with dims=%d the rate is a decimal from %g to %d (%d to %d bits a block)", params,
                   dims, least, MM_ZFP_BITS_PER_VALUE, MM_ZFP_MIN_BITS, MM_ZFP_BITS_PER_VALUE * mm_zfp_values(dims));
}

enum { KEYS = 4 };

/* Parses one parameter, key=value. given: the keys so far. */
static mm_status parse_one(const char *params, const char *text, size_t length, bool given[KEYS], decimal *rate,
                           mm_zfp_spec *spec) {
    static const char *const keys[KEYS] = {"rate=", "dims=", "sms=", "layout="};
    decimal number;
    for (size_t k = 0; k < KEYS; k++) {
        const size_t key = strlen(keys[k]);
        if (length < key || strncmp(text, keys[k], key) != 0) continue;
        if (given[k])
            return mm_fail(MM_ERR_INVALID, "codec zfp: '%s': %.*s is given twice: give it once", params, (int)key - 1,
                           keys[k]);
        given[k] = true;
        const bool good = parse_decimal(text + key, length - key, &number);
        const bool whole = good && number.one == 1;
        const bool nchw = length == key + 4 && strncmp(text + key, "nchw", 4) == 0;
        const bool nhwc = length == key + 4 && strncmp(text + key, "nhwc", 4) == 0;
        if (k == 0 && good) {
            *rate = number;
        } else if (k == 0) {
            return fail_rate(params, spec->dims);
        } else if (k == 1 && whole && number.value >= 1 && number.value <= 3) {
            spec->dims = (int)number.value;
        } else if (k == 2 && whole && number.value >= 1 && number.value <= MOST_SMS) {
            spec->sms = (int)number.value;
        } else if (k == 3 && (nchw || nhwc)) {
            spec->channels_first = nchw;
        } else {
            return mm_fail(MM_ERR_INVALID, "codec zfp: '%s': %s", params,
                           k == 1   ? "dims is 1, 2 or 3"
                           : k == 2 ? "sms is a number of multiprocessors, from 1 to 65536"
                                    : "layout is nhwc or nchw");
        }
        return MM_OK;
    }
    return mm_fail(MM_ERR_INVALID,
                   "codec zfp: '%s': unknown parameter '%.*s'; there are rate=, dims=, layout=, sms=", params,
                   (int)length, text);
}

mm_status mm_zfp_spec_parse(const char *params, mm_zfp_spec *spec_out) {
    mm_zfp_spec spec = {.dims = 2};
    bool given[KEYS] = {false};
    decimal rate = {.value = 64, .one = 10, .canonical = "6.4"};
    for (const char *text = params; *params;) {
        const size_t length = strcspn(text, ",:");
        MM_TRY(parse_one(params, text, length, given, &rate, &spec));
        if (!text[length]) break;
        text += length + 1;
    }
    const int64_t bits = bits_of(&rate, spec.dims);
    if (bits < 0) return fail_rate(params, spec.dims);
    spec.maxbits = (int)bits;

    const int used = snprintf(spec.canonical, sizeof spec.canonical, "rate=%s", rate.canonical);
    char *end = spec.canonical + used;
    if (spec.dims != 2) end += sprintf(end, ",dims=%d", spec.dims);
    if (spec.channels_first) end += sprintf(end, ",layout=nchw");
    if (spec.sms) sprintf(end, ",sms=%d", spec.sms);
    *spec_out = spec;
    return MM_OK;
}
