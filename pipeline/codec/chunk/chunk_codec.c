/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/chunk/chunk_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/number.h"
#include "mm/core/plan/plan.h"
#include "pipeline/codec/block/eb_value.h"
#include "pipeline/codec/chunk/csr_chunk.h"
#include "pipeline/codec/chunk/deflate_chunk.h"
#include "pipeline/codec/chunk/exponent_chunk.h"
#include "pipeline/codec/chunk/rle_chunk.h"
#include "pipeline/codec/chunk/zvc_chunk.h"

_Static_assert((int)MM_CHUNK_MOST_BYTES == (int)MM_CHUNK_BYTES, "the room that plans leave for a chunk");
_Static_assert((int)MM_BODY_ALIGN == (int)MM_ALIGN, "bodies are aligned as plans align them");

static const mm_chunk_kind *kind_of(const mm_codec_ops *ops) { return *(const mm_chunk_kind *const *)ops->own; }

const char *mm_chunk_format(const mm_codec_ops *ops, size_t i) {
    const char *const *formats = kind_of(ops)->formats;
    if (!formats) return i == 0 ? "" : NULL;
    for (size_t f = 0; f < i; f++)
        if (!formats[f]) return NULL;
    return formats[i];
}

/* ---------------------------------------------------------------- parameters */

static mm_status take_number(const mm_codec_ops *ops, const char *key, const char *value, int most, int *number_out) {
    char *end;
    const long number = strtol(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end || number < 1 || number > most)
        return mm_fail(MM_ERR_INVALID, "codec %s: '%s=%s': must be a whole number from 1 to %d", ops->name, key, value,
                       most);
    *number_out = (int)number;
    return MM_OK;
}

static mm_status fail_unknown(const mm_codec_ops *ops, const char *text) {
    const char *own = kind_of(ops)->key;
    return mm_fail(MM_ERR_INVALID, "codec %s: unknown parameter '%s'; there are %s%sreserve= and sms=", ops->name, text,
                   own ? own : "", own ? "=, " : "");
}

/* Parses one "key=value". own: receives the canonical form of the value of the codec's own parameter. */
static mm_status take(mm_chunk_codec *codec, char *text, char own[MM_CHUNK_VALUE_CAPACITY]) {
    const mm_codec_ops *ops = codec->base.ops;
    const mm_chunk_kind *kind = kind_of(ops);
    char *value = strchr(text, '=');
    if (!value) return fail_unknown(ops, text);
    *value++ = 0;
    const bool is_reserve = strcmp(text, "reserve") == 0, is_sms = strcmp(text, "sms") == 0;
    if (!is_reserve && !is_sms && !(kind->key && strcmp(text, kind->key) == 0)) return fail_unknown(ops, text);
    if (is_reserve ? codec->reserve_percent > 0 : is_sms ? codec->sms > 0 : own[0])
        return mm_fail(MM_ERR_INVALID, "codec %s: %s= is given twice: give it once", ops->name, text);
    if (is_reserve) return take_number(ops, text, value, 100, &codec->reserve_percent);
    if (is_sms) return take_number(ops, text, value, MM_CHUNK_SMS_MOST, &codec->sms);
    return kind->take(codec, value, own);
}

static mm_status take_all(mm_chunk_codec *codec, const char *params) {
    char text[sizeof codec->base.spec], own[MM_CHUNK_VALUE_CAPACITY] = "", *rest = text;
    if (strlen(params) >= sizeof text)
        return mm_fail(MM_ERR_INVALID, "codec %s: '%s': at most %zu characters", codec->base.ops->name, params,
                       sizeof text - 1);
    strcpy(text, params);
    while (*params && rest) {
        char *one = rest, *end = one + strcspn(one, ",:");
        rest = *end ? end + 1 : NULL;
        *end = 0;
        MM_TRY(take(codec, one, own));
    }
    char *spec = codec->base.spec;
    const size_t room = sizeof codec->base.spec;
    size_t used = (size_t)snprintf(spec, room, "%s", codec->base.ops->name);
#define ADD(...) used += (size_t)snprintf(spec + used, room - used, __VA_ARGS__)
    const size_t name = used;
    if (own[0]) ADD(":%s=%s", kind_of(codec->base.ops)->key, own);
    if (codec->reserve_percent > 0) ADD("%creserve=%d", used == name ? ':' : ',', codec->reserve_percent);
    if (codec->sms > 0) ADD("%csms=%d", used == name ? ':' : ',', codec->sms);
#undef ADD
    return MM_OK;
}

mm_status mm_chunk_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out) {
    mm_codec *codec;
    MM_TRY(mm_codec_new(ops, sizeof(mm_chunk_codec), &codec));
    const mm_status status = take_all((mm_chunk_codec *)codec, params);
    if (status == MM_OK)
        *codec_out = codec;
    else
        mm_codec_free(codec);
    return status;
}

/* ---------------------------------------------------------------- kinds */

/* Typical: the code is 2.6 times smaller than the map, the average of cDMA's figure 11 (Rhu et al., HPCA 2018).
 * Reserve: what AlexNet takes, which has the fewest zeros of cDMA's nets (49.4 %): 0.506 + 1/32 of the map. */
const mm_chunk_kind mm_zvc_kind = {.typical_permille = {385}, .reserve_permille = {538}, .head = mm_zvc_head};

/* Maps as of `mm codecs --study --draw` with cDMA's shares of zeros, in NHWC. Typical: the average of six networks;
 * reserve: AlexNet. */
const mm_chunk_kind mm_rle_kind = {.typical_permille = {600}, .reserve_permille = {735}, .head = mm_rle_head};

static mm_status take_values(mm_chunk_codec *codec, const char *value, char canonical_out[MM_CHUNK_VALUE_CAPACITY]) {
#define NAME(name, ...) #name,
    static const char *const names[] = {MM_DPR_FORMATS(NAME)};
#undef NAME
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(value, names[i]) != 0) continue;
        codec->params.format = 1 + (int32_t)i;
        codec->base.flags.lossless = false;
        strcpy(canonical_out, value);
        return MM_OK;
    }
    return mm_fail(MM_ERR_INVALID,
                   "codec %s: 'values=%s': there are fp16, fp10 and fp8; without values=, they are unchanged",
                   codec->base.ops->name, value);
}

/* cDMA's shares of non-zeros (0.38 on average, AlexNet's 0.506), times the bytes of a non-zero (5, 3, 2 1/3, 2) over 4;
 * plus the ends of rows. */
const mm_chunk_kind mm_csr_kind = {.formats =
                                       (const char *const[]){"", "values=fp16", "values=fp10", "values=fp8", NULL},
                                   .typical_permille = {477, 287, 224, 192},
                                   .reserve_permille = {635, 382, 298, 255},
                                   .head = mm_csr_head,
                                   .key = "values",
                                   .take = take_values};

/* Bits an element of gpt's maps (README.md): typical 27.3 of 32; reserve: codes of 4 bits instead of 3. */
const mm_chunk_kind mm_exponent_kind = {.typical_permille = {854}, .reserve_permille = {885}, .by_type = true};

static mm_status take_level(mm_chunk_codec *codec, const char *value, char canonical_out[MM_CHUNK_VALUE_CAPACITY]) {
    int level;
    MM_TRY(take_number(codec->base.ops, "level", value, MM_DEFLATE_LEVEL_MOST, &level));
    codec->params.level = level;
    snprintf(canonical_out, MM_CHUNK_VALUE_CAPACITY, "%d", level);
    return MM_OK;
}

/* The figures are those of zvc: for maps in NHWC, as ours are, deflate is a little worse than zvc in cDMA's figure 11;
 * in NCHW it reaches 2.76. */
const mm_chunk_kind mm_deflate_kind = {
    .typical_permille = {385}, .reserve_permille = {538}, .key = "level", .take = take_level};

static mm_status take_bound(mm_chunk_codec *codec, const char *value, char canonical_out[MM_CHUNK_VALUE_CAPACITY]) {
    char *end;
    const float bound = (float)mm_number_parse(value, &end);
    if (!*value || *end || !(bound >= MM_EB_LEAST && bound <= MM_EB_MOST))
        return mm_fail(MM_ERR_INVALID, "codec %s: 'abs=%s': the error bound must be a number from %g to %g",
                       codec->base.ops->name, value, (double)MM_EB_LEAST, (double)MM_EB_MOST);
    codec->params.bound = bound;
    codec->base.flags.reads_bound = false;
    mm_number_format_float(bound, canonical_out);
    return MM_OK;
}

/* Jin et al. (PPoPP 2021), table 1: 10.7 to 13.5 times smaller on four nets; reserve: half of the smallest ratio. */
const mm_chunk_kind mm_eb_kind = {.formats = (const char *const[]){"", "abs=0.01", NULL},
                                  .typical_permille = {94},
                                  .reserve_permille = {187},
                                  .counts_nonfinite = true,
                                  .key = "abs",
                                  .take = take_bound};

/* ---------------------------------------------------------------- sizes */

mm_status mm_chunk_map_elems(const mm_codec *codec, const mm_shape *shape, int64_t *elems_out) {
    int64_t elems;
    MM_TRY(mm_float_elems(codec->spec, shape, &elems));
    if (elems > MM_CHUNK_MAP_ELEMS_MOST)
        return mm_fail(MM_ERR_UNSUPPORTED, "codec %s: a map of %lld elements: must have fewer than 2^32", codec->spec,
                       (long long)elems);
    *elems_out = elems;
    return MM_OK;
}

mm_status mm_chunk_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    int64_t elems;
    MM_TRY(mm_chunk_map_elems(codec, shape, &elems));
    *bytes_out = mm_chunk_head_bytes(elems);
    return MM_OK;
}

mm_status mm_chunk_body_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    int64_t elems;
    MM_TRY(mm_chunk_map_elems(codec, shape, &elems));
    *bytes_out = 4 * (shape->dtype == MM_F32 ? elems : (elems + 1) / 2);
    return MM_OK;
}

/* The shares of non-zeros, in thousandths, from which the kinds' figures follow (cDMA's average, and AlexNet's).
 * Non-zeros of 16 bits take half the bytes. */
enum { TYPICAL_NONZEROS = 380, RESERVE_NONZEROS = 506 };

/* Bytes of a share of `words` words, at least one word. */
static int64_t share(int64_t words, int permille) { return 4 * ((words * permille + 999) / 1000); }

/* Turns a kind's share of a map of f32 into that for the shape's type, still as a share of the map in f32. A lossy code
 * has the same size for all types; `exponent` keeps the bits that the type has beside its exponent. */
static int share_of(const mm_codec *codec, const mm_shape *shape, int permille, int nonzeros) {
    if (kind_of(codec->ops)->by_type)
        return permille - 1000 * (mm_exponent_rest(MM_F32) - mm_exponent_rest(shape->dtype)) / 32;
    return shape->dtype == MM_F32 || !codec->flags.lossless ? permille : permille - nonzeros / 2;
}

mm_status mm_chunk_body_nominal(const mm_codec *codec, const mm_shape *shape, mm_body_nominal *nominal_out) {
    const mm_chunk_kind *kind = kind_of(codec->ops);
    const int percent = ((const mm_chunk_codec *)codec)->reserve_percent;
    const int format = ((const mm_chunk_codec *)codec)->params.format;
    int64_t elems;
    MM_TRY(mm_chunk_map_elems(codec, shape, &elems));
    const int typical = share_of(codec, shape, kind->typical_permille[format], TYPICAL_NONZEROS);
    const int reserve = share_of(codec, shape, kind->reserve_permille[format], RESERVE_NONZEROS);
    const int64_t words = shape->dtype == MM_F32 ? elems : (elems + 1) / 2; /* words of the map */
    *nominal_out = (mm_body_nominal){.typical_bytes = share(elems, typical),
                                     .reserve_bytes = percent > 0 ? share(words, 10 * percent) : share(elems, reserve)};
    return MM_OK;
}
