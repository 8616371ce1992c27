/* SPDX-License-Identifier: MIT */
/* The HTML page of 'mm report', which the build turns into C strings (tools/report/embed). */
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

/* The page before and after its data, which is JSON in a script element. */
extern const char report_page_before[], report_page_after[];

#endif
