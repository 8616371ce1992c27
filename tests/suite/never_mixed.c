/* SPDX-License-Identifier: MIT */
#include "tests/suite/never_mixed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "mm/manager/manager.h"
#include "mm/manager/prepare.h"
#include "tests/buffers/disk_fault.h"

enum { ENDS = 3 }; /* values that were learned: after 0, 1 and 2 iterations */

/* Whether all that was learned can be read, and no iteration has ended amid its update. */
static bool can_be_saved(const suite_run *r) {
    int64_t updates;
    bool good = nets_exec_updates(r->exec, &updates) == MM_OK;
    for (int p = 0; good && p < nets_net_params(r->s->net); p++)
        for (int part = NETS_VALUE; part < NETS_PARTS; part++) {
            float *values = malloc((size_t)nets_net_param(r->s->net, p)->elems * sizeof *values);
            assert_non_null(values);
            const mm_status status = nets_exec_param_get(r->exec, p, (nets_part)part, values);
            good &= part == NETS_GRADIENT || status == MM_OK || status == MM_ERR_NOT_FOUND;
            free(values);
        }
    return good;
}

/* Whether a run with one failing access ended before its turn. */
static bool run_to_fault(const suite_net *s, const mm_options *options, int nth, float *const after[ENDS],
                         never_mixed *found) {
    static const int errors[] = {EIO, ENOSPC, 0};
    suite_run r;
    nets_result result;
    size_t n;
    suite_run_init(&r, s, options);
    disk_fault_set(r.manager->disk, DISK_FAULT_ONCE, nth, errors[nth % 3]);
    mm_status status = MM_OK;
    for (int i = 0; i < ENDS - 1 && status == MM_OK; i++)
        status = nets_exec_iteration(r.exec, s->images, s->labels, s->batch, SUITE_RATE, &result);
    if (status == MM_OK) status = mm_manager_sync(r.manager); /* the last iteration's stores */
    const bool happened = disk_fault_end(r.manager->disk);
    assert_int_equal(status, happened ? MM_ERR_IO : MM_OK);
    if (happened && !strstr(mm_last_error(), "disk /")) fail_msg("no directory in '%s'", mm_last_error());
    if (can_be_saved(&r)) {
        float *now = suite_learned(&r, &n);
        bool any = false;
        for (int i = 0; i < ENDS; i++) any |= suite_same_learned(s, now, after[i]);
        if (!any) fail_msg("access %d: mixed", nth);
        free(now);
        found->saved += happened;
    }
    found->failed += happened;
    if (nets_exec_init(r.exec, SUITE_SEED) != MM_OK) fail_msg("%s", mm_last_error());
    suite_iterate(&r);
    float *now = suite_weights(&r, &n);
    assert_true(suite_same_learned(s, now, after[1]));
    free(now);
    suite_run_fini(&r);
    return !happened;
}

never_mixed suite_never_mixed(const suite_net *s, const mm_options *options, int stride) {
    never_mixed found = {0};
    float *after[ENDS];
    suite_run r;
    size_t n;
    suite_run_init(&r, s, options);
    assert_true(mm_plan_now(r.manager, nets_exec_lowered(r.exec)->graph)->disk_base_bytes > 0);
    for (int i = 0; i < ENDS; i++) {
        after[i] = suite_weights(&r, &n);
        suite_iterate(&r);
    }
    suite_run_fini(&r);
    for (int nth = 0; !run_to_fault(s, options, nth, after, &found);) nth += stride;
    for (int i = 0; i < ENDS; i++) free(after[i]);
    return found;
}
