/* SPDX-License-Identifier: MIT */
/* The policy `plan`: plans from a file (mm/core/plan/plan_file.h), found by the names of their graphs. It reads the
 * file whenever it plans. A graph that is not that of the file, and other sizes, are refused. */
#ifndef POLICIES_SAVED_H
#define POLICIES_SAVED_H

#include "policies/policy.h"

/* Sets config->file, and from the file the rules, which name the codecs of its plans, and whether homes leave the
 * device. The caller frees both with mm_rules_fini. Errors of mm_plan_files_read; MM_ERR_INVALID: the plans have more
 * than MM_MAX_CODECS codecs. */
MM_CHECKED mm_status mm_saved_configure(const char *path, mm_engine_config *config);

#endif
