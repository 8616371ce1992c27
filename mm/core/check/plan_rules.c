/* SPDX-License-Identifier: MIT */
#include "mm/core/check/plan_rules.h"

#define NUMBER_AND_TEXT(name, number, text) [MM_RULE_##name] = {number, text},
static const struct { const char *number, *text; } rules[MM_RULE_COUNT] = {MM_RULES(NUMBER_AND_TEXT)};
#undef NUMBER_AND_TEXT

const char *mm_rule_number(mm_rule rule) { return rules[rule].number; }

const char *mm_rule_text(mm_rule rule) { return rules[rule].text; }
