/* SPDX-License-Identifier: MIT */
/* The policies of a session: what each does in the network, and which ran. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"
#include "mm/manager/prepare.h"
#include "tools/need/policy_marks.h"
#include "tools/train/session_parts.h"

mm_status session_find_effects(session *s, const mm_graph *graph) {
    const session_config *c = &s->config;
    for (int p = 0; c->texts && p < c->policies.n; p++)
        MM_TRY(policy_effect_find(c->policies.text[p], graph, c->target.device, c->texts, &s->effects[p]));
    return MM_OK;
}

/* Adds to *lossy whether the policy may be lossy in this network. */
static mm_status add_lossy(const session *s, const char *policy, bool *lossy) {
    for (int p = 0; s->config.texts && p < s->config.policies.n; p++)
        if (strcmp(s->config.policies.text[p], policy) == 0) {
            *lossy |= s->effects[p].lossy;
            return MM_OK;
        }
    return *lossy ? MM_OK : policy_find_lossy(policy, lossy);
}

/* The lossy codecs of a policy. A substitute is not among the session's policies: if it is lossy, all its codecs count
 * as lossy. */
static mm_status find_lossy_codecs(const session *s, const char *policy, unsigned *codecs_out) {
    bool lossy = false;
    for (int p = 0; p < s->config.policies.n; p++)
        if (strcmp(s->config.policies.text[p], policy) == 0) {
            *codecs_out = s->effects[p].lossy_codecs;
            return MM_OK;
        }
    MM_TRY(policy_find_lossy(policy, &lossy));
    *codecs_out = lossy ? ~0u : 0;
    return MM_OK;
}

static void add_plans(const session *s, const nets_exec *exec, plan_work *work) {
    const nets_lowered *pass;
    for (int i = 0; exec && (pass = nets_exec_lowered_pass(exec, i)); i++)
        plan_work_add(work, mm_plan_now(s->manager, pass->graph), s->lossy_codecs);
}

/* Notes whether the plans that run now are lossy. */
static void note_lossy(session *s) {
    plan_work work = {0};
    if (s->lossy_codecs == 0 || s->ran_lossy[s->n_ran - 1]) return;
    add_plans(s, s->train, &work);
    add_plans(s, s->train_last, &work);
    s->ran_lossy[s->n_ran - 1] = work.lossy;
}

mm_status session_note_policy(session *s, const char **now_out) {
    const char *now = mm_policy_now(s->manager);
    *now_out = s->config.policies.text[0];
    if (!s->config.texts) return MM_OK;
    if (s->n_ran == 0 || strcmp(s->ran[s->n_ran - 1], now) != 0) {
        const char *kept = texts_keep(s->config.texts, now);
        if (!kept) return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
        MM_TRY(find_lossy_codecs(s, kept, &s->lossy_codecs));
        s->n_ran += s->n_ran < SESSION_RAN_MAX;
        s->ran[s->n_ran - 1] = kept;
        s->ran_lossy[s->n_ran - 1] = false;
    }
    note_lossy(s);
    *now_out = s->ran[s->n_ran - 1];
    return MM_OK;
}

mm_status session_name_policies(const session *s, row *r) {
    r->policy = s->config.policies.text[0];
    r->idle = s->effects[0].idle;
    r->would = s->effects[0].would;
    for (int p = 0; p < s->config.policies.n; p++) MM_TRY(add_lossy(s, s->config.policies.text[p], &r->lossy));
    return MM_OK;
}

/* Appends to a list of policies. Frees the list. NULL: out of memory. */
static char *append(char *list, const char *policy, bool lossy) {
    char *longer = list ? mm_text_format("%s%s%s%s", list, *list ? " -> " : "", policy, lossy ? " (lossy)" : "") : NULL;
    free(list);
    return longer;
}

/* The policies that ran, as tables name them. Of many, the first and the last, and the number of the others. The caller
 * frees it. NULL: out of memory. */
static char *list_ran(const session *s) {
    enum { NAMED = 4 }; /* chosen: more make a row of several lines */
    const int n = s->n_ran, left_out = n > NAMED ? n - 2 : 0;
    char *list = strdup(""), others[32];
    bool lossy = false;
    for (int i = 0; i < n; i++) {
        const bool named = left_out == 0 || i == 0 || i == n - 1;
        lossy |= !named && s->ran_lossy[i];
        snprintf(others, sizeof others, "%d others", left_out);
        if (left_out > 0 && i == n - 1) list = append(list, others, lossy);
        if (named) list = append(list, s->ran[i], s->ran_lossy[i]);
    }
    return list;
}

/* Sets what the plans do, as far as one policy ran them all. */
static void fill_work(const session *s, row *r) {
    r->work = (plan_work){0};
    if (s->n_ran != 1) return;
    add_plans(s, s->train, &r->work);
    r->idle = policy_effect_idle(&s->effects[0], &r->work, &r->would);
    r->unforced = r->idle && r->idle == s->effects[0].unforced;
}

mm_status session_fill_policies(session *s, row *r) {
    if (!s->config.texts) return MM_OK;
    if (s->n_ran > 0 && strcmp(s->ran[s->n_ran - 1], mm_policy_now(s->manager)) == 0) note_lossy(s);
    char *list = list_ran(s);
    r->policy_now = texts_keep(s->config.texts, mm_policy_now(s->manager));
    r->ran = list && s->n_ran > 0 ? texts_keep(s->config.texts, list) : NULL;
    const bool good = list && r->policy_now && (r->ran || s->n_ran == 0);
    free(list);
    if (!good) return mm_fail(MM_ERR_NOMEM, "out of memory for the names of policies");
    if (s->n_ran > 0) r->lossy = false;
    for (int i = 0; i < s->n_ran; i++) r->lossy |= s->ran_lossy[i];
    fill_work(s, r);
    return MM_OK;
}
