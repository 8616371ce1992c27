/* SPDX-License-Identifier: MIT */
#include "mm/core/number.h"

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Sets the thread's locale to "C", of which there is one: nothing is allocated. *before_out: the previous locale. */
static locale_t enter_c(locale_t *before_out) {
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *before_out = uselocale(c);
    return c;
}

static void leave_c(locale_t c, locale_t before) {
    uselocale(before);
    if (c) freelocale(c);
}

double mm_number_parse(const char *text, char **end_out) {
    locale_t before, c = enter_c(&before);
    const double value = strtod(text, end_out);
    leave_c(c, before);
    return value;
}

static const char *format(double value, bool as_float, char text[MM_NUMBER_CAPACITY]) {
    locale_t before, c = enter_c(&before);
    for (int digits = 6; digits <= 17; digits++) { /* 9 suffice for a float, 17 for a double */
        snprintf(text, MM_NUMBER_CAPACITY, "%.*g", digits, value);
        const double read = strtod(text, NULL);
        if (as_float ? (float)read == (float)value : read == value) break;
    }
    leave_c(c, before);
    return text;
}

const char *mm_number_format(double value, char text[MM_NUMBER_CAPACITY]) { return format(value, false, text); }
const char *mm_number_format_float(float value, char text[MM_NUMBER_CAPACITY]) { return format(value, true, text); }
