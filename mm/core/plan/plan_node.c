/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan_node.h"

const char *mm_stream_id_name(mm_stream_id id) {
#define WORD(name, word) word,
    static const char *const names[] = {MM_STREAMS(WORD)};
#undef WORD
    return (unsigned)id < MM_STREAM_COUNT ? names[id] : "unknown";
}

#define TRAITS(name, word, stream, cost, src, dst, carries_on)                                                         \
    {word, MM_STREAM_##stream, MM_COST_##cost, MM_END_##src, MM_END_##dst, MM_NODE_##carries_on},
const mm_node_traits mm_node_table[MM_NODE_KINDS] = {MM_NODES(TRAITS)};
#undef TRAITS

const char *mm_node_kind_name(mm_node_kind kind) {
    return (unsigned)kind < MM_NODE_KINDS ? mm_node_table[kind].word : "unknown";
}
