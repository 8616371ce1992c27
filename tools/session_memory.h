/* What a session's policies need, found by planning, and whether there is that much. Parts of session_init. */
#ifndef TOOLS_SESSION_MEMORY_H
#define TOOLS_SESSION_MEMORY_H

#include "tools/session.h"

/* Between parts that take long: MM_ERR_ORDER if the session is stopped. */
MM_CHECKED mm_status session_go_on(const session *s);

/* How much pinned memory there may be, and what it takes that batches come in beside the computation. */
void session_memory_begin(session *s);

/* Raises what each policy needs at the least by the plans of one graph. *base_bytes: what the persistent tensors of all
 * graphs take, 0 if that is not known: then it becomes what this graph's take. */
MM_CHECKED mm_status session_memory_raise(session *s, int64_t batch, nets_mode mode, int64_t *base_bytes);

/* The pinned memory that all of them need in the budget: the manager will have no more. MM_ERR_INFEASIBLE: there is not
 * so much. */
MM_CHECKED mm_status session_memory_pin(session *s);

/* Forgets the plans. */
void session_memory_end(session *s);

/* Lets batches come in beside the computation, where they do on this device, and all policies that will be switched to
 * fit with that, too; else nothing is staged. */
MM_CHECKED mm_status session_memory_stage(session *s);

/* Without a budget it becomes what the first policy needs, and what it takes that batches come in beside the
 * computation, if the device has plenty free. */
MM_CHECKED mm_status session_memory_default(session *s);

/* Whether the first policy fits the budget, and that the device. */
MM_CHECKED mm_status session_memory_check(const session *s);

/* Whether the policies that will be switched to fit the budget; without one, what the first policy needs. */
MM_CHECKED mm_status session_memory_check_switches(session *s);

#endif
