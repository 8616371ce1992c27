/* SPDX-License-Identifier: MIT */
/* Codes that steps read and write by themselves (mm_graph_allow_code). */
#include "mm/core/plan/plan_codes.h"

#include <string.h>

#include "mm/core/plan/plan.h"

static bool is_named(const char *spec, const char *name) {
    const size_t length = strlen(name);
    return strncmp(spec, name, length) == 0 && (spec[length] == '\0' || spec[length] == ':');
}

const mm_step_code *mm_step_code_of(const mm_graph_facts *facts, const mm_step_info *step, int use, mm_access access,
                                    int codec, mm_tensor tensor) {
    if (step->n_codes == 0 || codec < 0) return NULL;
    const mm_code_facts *code = mm_facts_code(facts, codec, tensor);
    if (code->code_bytes < 0 || code->body_bound_bytes > 0 || code->strip_elems <= 0) return NULL;
    if (access == MM_READ && !facts->codecs[codec].gives_value) return NULL;
    for (int i = 0; i < step->n_codes; i++)
        if (step->codes[i].use == use && step->codes[i].access == access &&
            is_named(facts->codecs[codec].spec, step->codes[i].codec))
            return &step->codes[i];
    return NULL;
}

/* Returns what a code that a step reads or writes by itself adds to the step's workspace, or to its time. */
typedef int64_t (*share_fn)(const mm_plan *plan, const mm_graph_facts *facts, const mm_step_code *declared,
                            const mm_segment *code);

/* Sums `share` over the codes of the node's use u; -1: of all its uses. */
static int64_t sum_codes(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n, int u, share_fn share) {
    int64_t sum = 0;
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    for (int i = 0; i < step->n_codes; i++) {
        const mm_step_code *declared = &step->codes[i];
        const bool reads = declared->access == MM_READ;
        if (u >= 0 && declared->use != u) continue;
        const int32_t at =
            reads ? plan->bindings[n->first_binding + declared->use] : mm_node_code(plan, n, declared->use);
        if (at < 0 || (reads && !mm_use_is_coded(&step->uses[declared->use], &plan->segments[at]))) continue;
        const mm_segment *code = &plan->segments[at];
        if (mm_step_code_of(facts, step, declared->use, declared->access, code->codec, code->tensor) == declared)
            sum += share(plan, facts, declared, code);
    }
    return sum;
}

static int64_t work_of(const mm_plan *plan, const mm_graph_facts *facts, const mm_step_code *declared,
                       const mm_segment *code) {
    (void)plan;
    const int64_t elems = mm_facts_code(facts, code->codec, code->tensor)->strip_elems;
    return mm_align(declared->workspace_bytes + declared->workspace_strips * elems * (int64_t)sizeof(float));
}

bool mm_plan_is_lossy(const mm_plan *plan, const mm_graph_facts *facts) {
    for (int i = 0; i < plan->n_segments; i++)
        if (plan->segments[i].codec >= 0 && !facts->codecs[plan->segments[i].codec].lossless) return true;
    return false;
}

int64_t mm_node_work_bytes(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n) {
    const int64_t bytes = facts->variants[facts->variant_first[n->step] + n->variant].workspace_bytes;
    const int64_t more = sum_codes(plan, facts, n, -1, work_of);
    return more > 0 ? mm_align(bytes) + more : bytes;
}

static int64_t ns_of(const mm_plan *plan, const mm_graph_facts *facts, const mm_step_code *declared,
                     const mm_segment *code) {
    const mm_code_facts *c = mm_facts_code(facts, code->codec, code->tensor);
    const double bytes = (double)mm_graph_tensor(plan->graph, code->tensor)->bytes;
    const double pass = facts->memory_bytes_per_s > 0 ? bytes / (double)facts->memory_bytes_per_s * 1e9 : 0;
    const int64_t ns = declared->access == MM_READ ? c->decode_ns : c->encode_ns;
    const int64_t left = (double)ns > pass ? ns - (int64_t)pass : 0;
    return declared->access == MM_READ ? left * declared->passes : left;
}

int64_t mm_node_codes_ns(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n, int u) {
    return sum_codes(plan, facts, n, u, ns_of);
}
