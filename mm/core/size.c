/* SPDX-License-Identifier: MIT */
#include "mm/core/size.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/number.h"
#include "mm/core/status.h"

static const struct unit {
    const char *name;
    int64_t bytes;
} units[] = {{"TiB", INT64_C(1) << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}};

const char *mm_size_format(int64_t bytes, char *buffer, size_t capacity) {
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (bytes < units[i].bytes) continue;
        if (bytes % units[i].bytes == 0)
            snprintf(buffer, capacity, "%lld%s", (long long)(bytes / units[i].bytes), units[i].name);
        else {
            double value = (double)bytes / (double)units[i].bytes;
            snprintf(buffer, capacity, "%.*f%s", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[i].name);
        }
        return buffer;
    }
    snprintf(buffer, capacity, "%lldB", (long long)bytes);
    return buffer;
}

const char *mm_size_text(int64_t bytes, char buffer[MM_SIZE_TEXT_CAPACITY]) {
    char size[32];
    bool large = bytes >= 1 << 10;
    snprintf(buffer, MM_SIZE_TEXT_CAPACITY, "%lld bytes%s%s%s", (long long)bytes, large ? " (" : "",
             large ? mm_size_format(bytes, size, sizeof size) : "", large ? ")" : "");
    return buffer;
}

/* Factor of a unit such as "k", "KiB", "MB", "B" or ""; 0: it is none. */
static double unit_factor(const char *suffix) {
    static const char letters[] = "kmgt";
    if (*suffix == '\0' || strcmp(suffix, "B") == 0 || strcmp(suffix, "b") == 0) return 1;
    char lower = (char)(*suffix | 0x20);
    const char *letter = strchr(letters, lower);
    if (!letter || *letter == '\0') return 0;
    int power = (int)(letter - letters) + 1;
    const char *rest = suffix + 1;
    double base = 1024;
    if (strcmp(rest, "B") == 0 || strcmp(rest, "b") == 0)
        base = 1000;
    else if (*rest != '\0' && strcmp(rest, "iB") != 0 && strcmp(rest, "ib") != 0 && strcmp(rest, "i") != 0)
        return 0;
    double factor = 1;
    while (power--) factor *= base;
    return factor;
}

mm_status mm_size_parse(const char *text, int64_t *bytes_out) {
    static const char help[] = "use 12GiB, 1.5GB, 300MiB or a number of bytes";
    if (!text || *text < '0' || *text > '9')
        return mm_fail(MM_ERR_INVALID, "size '%s' is not understood: %s", text ? text : "", help);
    char *end;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (errno == 0 && (*end == '\0' || strcmp(end, "B") == 0)) {
        *bytes_out = whole;
        return MM_OK;
    }
    /* Plain decimals only: strtod would read 0x10 and 1e3 too. */
    size_t digits = strspn(text, "0123456789."), letters = strcspn(text + digits, "0123456789.");
    if (text[digits + letters] != '\0' || strspn(text + digits, "xXeE") > 0)
        return mm_fail(MM_ERR_INVALID, "size '%s' is not understood: %s", text, help);
    double value = mm_number_parse(text, &end);
    while (*end == ' ') end++;
    double factor = unit_factor(end);
    if (factor == 0) return mm_fail(MM_ERR_INVALID, "size '%s' is not understood: %s", text, help);
    value *= factor;
    if (!(value < 4.6e18)) return mm_fail(MM_ERR_INVALID, "size '%s' is too large: %s", text, help);
    *bytes_out = (int64_t)(value + 0.5);
    return MM_OK;
}
