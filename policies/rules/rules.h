/* SPDX-License-Identifier: MIT */
/* The rules of a configuration: read, printed, added to, copied; and the codecs that they need. */
#ifndef POLICIES_RULES_RULES_H
#define POLICIES_RULES_RULES_H

#include "policies/rules/config.h"

/* Spec of the codec of masks: one bit per element, set if the element is above zero. */
extern const char mm_mask_spec[];

/* Parses rules such as "conv=compress(zfp:rate=4);relu=keep;*=swap", of any length, into config->rules; and those of
 * homes, as "weights=host", into config->away. The caller
 * frees them with mm_rules_fini. MM_ERR_INVALID (the message says where and what; also for a rule that never applies,
 * because one before it takes all that it names), MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_rules_parse(const char *text, mm_engine_config *config);
void mm_rules_fini(mm_engine_config *config);

/* Sets config->rules to a menu, each entry for all maps: masks, recomputation, swapping, lean swapping, lean
 * recomputation, and compression by each of these codecs ("zfp:rate=4+dpr:fp16"; "": none), with the code on the device
 * or in host memory; by lossless codecs for maps with zeros, too, which are marked as offered unless they are named.
 * mm_rules_parse would refuse these rules, since the first leaves nothing to the others: the planner chooses one for
 * each map. The caller frees them with mm_rules_fini. MM_ERR_INVALID: a codec without a name, with one that is too
 * long, or given twice; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_rules_menu(const char *codecs, mm_engine_config *config);

/* Whether two rules do the same with a map, whatever their selectors name. */
bool mm_rule_same_action(const mm_rule *a, const mm_rule *b);

/* The rules as text that mm_rules_parse reads. The caller frees it. NULL: out of memory. */
char *mm_rules_print(const mm_engine_config *config);

/* Adds a rule for all maps, unless it would never apply. codec: NULL unless the action compresses. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_rules_add(mm_engine_config *config, mm_action action, const char *codec);

/* A copy with rules of its own, which the caller frees with mm_rules_fini. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_config_copy(const mm_engine_config *config, mm_engine_config *copy_out);
bool mm_config_equal(const mm_engine_config *a, const mm_engine_config *b);

/* Checks that the rules can use one of their codecs: that it gives elements back, and that its codes can be allocated.
 * MM_ERR_INVALID. */
MM_CHECKED mm_status mm_rules_check_codec(const mm_engine_config *config, const mm_codec_facts *codec);

/* The first codec that somebody named for the rules, masks aside; "" if nobody did. */
const char *mm_rules_codec(const mm_engine_config *config);

/* Writes the specs of all codecs that the rules need, the mask included, at most `capacity`; returns their number. */
int mm_engine_codecs(const mm_engine_config *config, char specs_out[][MM_SPEC_CAPACITY], int capacity);

#endif
