/* SPDX-License-Identifier: MIT */
/* A plan's memory as JSON, for programs that draw it: which bytes lie where, from which node to which, and why. */
#ifndef MM_CORE_ACCOUNT_PLAN_MEMORY_H
#define MM_CORE_ACCOUNT_PLAN_MEMORY_H

#include <jansson.h>

#include "mm/core/account/account.h"
#include "mm/core/account/account_stash.h"

/* Makes an object that the caller owns. Nodes are in issue order, and referred to by index. A key that is listed with
 * "if" is present only in that case.
 *   lasting   bytes that are on the device throughout, by kind (mm_account_kind_name)
 *   nodes     of each: name, stream, layer; of a step its phase; of an operation its tensor
 *   segments  of each that a node uses, and of each persistent tensor: name, layer (of its tensor's producer, or of the
 *             step or tensor whose workspace it is), kind, content, action (what made it: "computed", "encoded", ...;
 *             "lasting", "workspace", "pool"), offset, bytes; first, last (its users) and live_last (mm_segment);
 *             codec if it is a code; pinned, dynamic: true if it is
 *   maps      of each that waits for the backward pass (mm_stash_account): name, layer, layer_kind, bytes, held_bytes,
 *             readers (backward steps), actions: what the plan does with it, of "keep" (it stays), "mask", "compress",
 *             "swap", "compress-swap", "recompute"; codec if it is coded
 *   homes     of each persistent tensor that is not at home on the device: name, kind, bytes, place ("pinned", "disk"),
 *             visits: of each copy on the device, the first and the last node that use it
 * facts: the plan's. MM_ERR_NOMEM. Thread-safe. */
MM_CHECKED mm_status mm_plan_memory(const mm_plan *plan, const mm_graph_facts *facts, json_t **memory_out);

#endif
