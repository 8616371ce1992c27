/* SPDX-License-Identifier: MIT */
/* mm plan --html: the figures and the picture as one page. */
#ifndef TOOLS_PLAN_PLAN_PAGE_H
#define TOOLS_PLAN_PLAN_PAGE_H

#include "tools/plan/picture.h"

/* Writes a self-contained HTML file, atomically: the picture, with its title, and below it the text, as it is. Errors
 * of picture_save. */
MM_CHECKED mm_status plan_page_save(const char *path, const picture *picture, const char *text);

#endif
