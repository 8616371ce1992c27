/* SPDX-License-Identifier: MIT */
/* Text in pictures, SVG and HTML. */
#ifndef TOOLS_ARGS_PICTURE_PAGE_H
#define TOOLS_ARGS_PICTURE_PAGE_H

#include <stdio.h>

/* Writes a text, escaped for XML. */
void picture_text(FILE *file, const char *raw);

#endif
