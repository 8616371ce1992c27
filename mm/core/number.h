/* SPDX-License-Identifier: MIT */
/* Numbers as text, with a decimal point in every locale; strtod and printf depend on the program's locale. */
#ifndef MM_CORE_NUMBER_H
#define MM_CORE_NUMBER_H

enum { MM_NUMBER_CAPACITY = 32 };

/* Like strtod. end_out: NULL, or set to the first character after the number. */
double mm_number_parse(const char *text, char **end_out);

/* Writes the fewest digits, at least 6, that mm_number_parse reads as the same double, or the same float. Returns
 * text. */
const char *mm_number_format(double value, char text[MM_NUMBER_CAPACITY]);
const char *mm_number_format_float(float value, char text[MM_NUMBER_CAPACITY]);

#endif
