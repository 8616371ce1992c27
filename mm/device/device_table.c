/* SPDX-License-Identifier: MIT */
/* The table of devices, and the parser of their names. A device that needs more than the C library is compiled only if
 * MM_DEVICE_<NAME> is defined. When the device's flag is on, BUILD defines it, and adds the device's sources and
 * libraries. No other file knows which devices a build has. */
#include <stdio.h>
#include <string.h>

#include "mm/device/host/device_host.h"

#ifdef MM_DEVICE_CUDA
extern const mm_device_ops mm_device_cuda_ops; /* device_cuda.h, which needs CUDA's headers */
#endif

static const mm_device_ops *const devices[] = {
    &mm_device_host_ops,
#ifdef MM_DEVICE_CUDA
    &mm_device_cuda_ops,
#endif
};

const mm_device_ops *mm_device_table(size_t i) { return i < sizeof devices / sizeof devices[0] ? devices[i] : NULL; }

/* ---------------------------------------------------------------- names: KIND or KIND:ORDINAL */

static bool is_kind(const char *kind, const char *name, size_t length) {
    return strlen(kind) == length && strncmp(kind, name, length) == 0;
}

/* Advice, for a message, about a device that other builds have and this one has not; "" for any other name. */
static const char *absent(const char *name, size_t length) {
#ifndef MM_DEVICE_CUDA
    if (is_kind("cuda", name, length)) return "; build with --config=cuda, which needs the CUDA toolkit";
#endif
    (void)name, (void)length;
    return "";
}

static mm_status fail_unknown(const char *name, size_t length) {
    char known[128] = "";
    for (size_t i = 0, used = 0; mm_device_table(i) != NULL && used < sizeof known; i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", mm_device_table(i)->name);
    return mm_fail(MM_ERR_NOT_FOUND, "no device '%s' in this build, which has: %s%s", name, known,
                   absent(name, length));
}

/* A number from 0 to 9999; -1 if `digits` is not such a number. */
static int read_ordinal(const char *digits) {
    enum { DIGITS_MOST = 4 };
    size_t length = strspn(digits, "0123456789");
    int ordinal = 0;
    if (length == 0 || length > DIGITS_MOST || digits[length] != '\0') return -1;
    while (*digits != '\0') ordinal = ordinal * 10 + (*digits++ - '0');
    return ordinal;
}

mm_status mm_device_find(const char *name, const mm_device_ops **ops_out, int *ordinal_out) {
    const size_t length = strcspn(name, ":");
    const mm_device_ops *ops;
    for (size_t i = 0; (ops = mm_device_table(i)) != NULL && !is_kind(ops->name, name, length); i++) continue;
    if (ops == NULL) return fail_unknown(name, length);
    const int ordinal = name[length] == ':' ? read_ordinal(name + length + 1) : 0;
    const int count = ordinal == 0 ? 1 : ops->count();
    if (ordinal < 0) {
        char there[64];
        mm_device_count_text(ops->name, count, there, sizeof there);
        return mm_fail(MM_ERR_INVALID, "device '%s': a number from 0 must follow '%s:'; %s", name, ops->name, there);
    }
    if (count > 0 && ordinal >= count) return mm_device_fail_ordinal(ops->name, ordinal, count);
    *ops_out = ops;
    *ordinal_out = ordinal;
    return MM_OK;
}
