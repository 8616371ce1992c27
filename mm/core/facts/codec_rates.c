/* SPDX-License-Identifier: MIT */
/* Rates of codecs in a file of facts. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/facts/facts.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

static const int64_t RATE_MOST = INT64_C(1) << 62;

static mm_status get(const char *path, const char *spec, const json_t *entry, const char *key, int64_t low,
                     int64_t high, int64_t *out) {
    const json_t *value = json_object_get(entry, key);
    const int64_t integer = json_integer_value(value);
    if (!json_is_integer(value) || integer < low || integer > high)
        return mm_fail(MM_ERR_FORMAT, "facts file %s: codec_rates: %s: %s must be an integer from %lld to %lld", path,
                       MM_BRIEF(spec), key, (long long)low, (long long)high);
    *out = integer;
    return MM_OK;
}

static mm_status parse(const char *path, const char *spec, const json_t *entry, mm_codec_rate *rate) {
    if (!*spec || strlen(spec) >= MM_SPEC_CAPACITY)
        return mm_fail(MM_ERR_FORMAT, "facts file %s: codec_rates: %s: must have 1 to %d characters", path,
                       MM_BRIEF(spec), MM_SPEC_CAPACITY - 1);
    snprintf(rate->spec, sizeof rate->spec, "%s", spec);
    MM_TRY(get(path, spec, entry, "encode_bytes_per_s", 1, RATE_MOST, &rate->encode_bytes_per_s));
    MM_TRY(get(path, spec, entry, "decode_bytes_per_s", 1, RATE_MOST, &rate->decode_bytes_per_s));
    return get(path, spec, entry, "launch_ns", 0, MM_NS_MOST, &rate->launch_ns);
}

mm_status mm_codec_rates_parse(const char *path, const json_t *object, mm_codec_rate **rates_out, int *n_out) {
    *rates_out = NULL;
    *n_out = 0;
    if (!object) return MM_OK;
    if (!json_is_object(object)) return mm_fail(MM_ERR_FORMAT, "facts file %s: codec_rates is not an object", path);
    const char *spec;
    json_t *entry;
    int n = 0;
    mm_codec_rate *rates = calloc(json_object_size(object) + 1, sizeof *rates);
    mm_status status = rates ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for facts file %s", path);
    if (status == MM_OK) json_object_foreach((json_t *)object, spec, entry) {
            status = parse(path, spec, entry, &rates[n++]);
            if (status != MM_OK) break;
        }
    if (status != MM_OK) {
        free(rates);
        return status;
    }
    *rates_out = rates;
    *n_out = n;
    return MM_OK;
}
