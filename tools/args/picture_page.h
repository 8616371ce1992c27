/* SPDX-License-Identifier: MIT */
/* Text in pictures, SVG and HTML. */
#ifndef TOOLS_ARGS_PICTURE_PAGE_H
#define TOOLS_ARGS_PICTURE_PAGE_H

#include <stdio.h>

/* Attribute of an svg element with width, height and viewBox: a window that is narrower than the picture shows all of
 * it, smaller. */
#define PICTURE_SHRINKS "style=\"max-width:100%%;height:auto\" "

/* Writes a text, escaped for XML. */
void picture_text(FILE *file, const char *raw);

#endif
