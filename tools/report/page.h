/* SPDX-License-Identifier: MIT */
/* The page of 'mm report', as the build embeds it (tools/report/embed). */
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

/* HTML before and after the data, which is JSON in a script element. */
extern const char report_page_before[], report_page_after[];

#endif
