/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan_lines.h"

#include <string.h>

/* ---------------------------------------------------------------- words */

static const char *const sums[MM_SUM_PLACES] = {[MM_SUM_AT_RANKS] = "ranks",
                                                [MM_SUM_AT_ROOT] = "root",
                                                [MM_SUM_AT_DEVICE] = "device",
                                                [MM_SUM_IN_PLACE] = "in place"};

static const char *where(int value) { return value == MM_WHERE_HEAP ? "heap" : mm_memory_name((mm_memory)value); }
static const char *content(int value) { return mm_content_name((mm_content)value); }
static const char *category(int value) { return mm_category_name((mm_category)value); }
static const char *node(int value) { return mm_node_kind_name((mm_node_kind)value); }
static const char *stream(int value) { return mm_stream_id_name((mm_stream_id)value); }
static const char *sum_at(int value) { return sums[value]; }

const mm_graph_words mm_words_where = {where, MM_WHERES};
const mm_graph_words mm_words_content = {content, MM_CONTENTS};
const mm_graph_words mm_words_category = {category, MM_CATEGORIES};
const mm_graph_words mm_words_node = {node, MM_NODE_KINDS};
const mm_graph_words mm_words_stream = {stream, MM_STREAM_COUNT};
const mm_graph_words mm_words_sum_at = {sum_at, MM_SUM_PLACES};

const char *mm_plan_line_name(int line) {
#define WORD(name, word) word,
    static const char *const words[] = {MM_PLAN_LINES(WORD)};
#undef WORD
    return words[line];
}

/* ---------------------------------------------------------------- fields */

#define BYTES MM_PLAN_MOST_BYTES
#define RATE  (INT64_C(1) << 62)
#define CODE  (INT64_C(1) << 44) /* as in files of facts */
#define LINES MM_PLAN_MOST_LINES

#define NEEDS(of, member, kind, least, most)                                                                           \
    { #member, offsetof(of, member), MM_VALUE_##kind, true, 0, least, most }
#define MAY(of, member, kind, otherwise, least, most)                                                                  \
    { #member, offsetof(of, member), MM_VALUE_##kind, false, otherwise, least, most }
#define NAMED(key, of, member, kind, needed, otherwise, least, most)                                                   \
    { key, offsetof(of, member), MM_VALUE_##kind, needed, otherwise, least, most }
#define SEGMENT(key, of, member)                                                                                       \
    { key, offsetof(of, member), MM_VALUE_INT, false, -1, 0, LINES }

const mm_plan_field mm_plan_limits_fields[] = {NEEDS(mm_limits, device_bytes, LONG, 0, INT64_MAX),
                                               NEEDS(mm_limits, pinned_bytes, LONG, 0, INT64_MAX),
                                               NEEDS(mm_limits, base_bytes, LONG, 0, BYTES),
                                               NEEDS(mm_limits, pinned_base_bytes, LONG, 0, BYTES),
                                               MAY(mm_limits, disk_bytes, LONG, 0, 0, INT64_MAX),
                                               MAY(mm_limits, disk_base_bytes, LONG, 0, 0, BYTES),
                                               {0}};

const mm_plan_field mm_plan_home_fields[] = {NEEDS(mm_place, offset, LONG, 0, BYTES), {0}};

const mm_plan_field mm_plan_facts_fields[] = {
    NEEDS(mm_graph_facts, piece_bytes, LONG, 1, CODE),
    MAY(mm_graph_facts, out_bytes_per_s, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, in_bytes_per_s, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, out_both_bytes_per_s, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, in_both_bytes_per_s, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, memory_bytes_per_s, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, contention_permille, INT, 0, 0, MM_CONTENTION_MOST),
    MAY(mm_graph_facts, link_contention_permille, INT, 0, 0, MM_CONTENTION_MOST),
    MAY(mm_graph_facts, store_bytes_per_s, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, load_bytes_per_s, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, disk_ns, LONG, 0, 0, MM_ALLOC_NS_MOST),
    MAY(mm_graph_facts, host_sum_bytes_per_s, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, link_sharers, INT, 0, 0, MM_RANKS_MOST),
    MAY(mm_graph_facts, ranks, INT, 0, 0, MM_RANKS_MOST),
    MAY(mm_graph_facts, issue_ns, LONG, 0, 0, MM_ALLOC_NS_MOST),
    MAY(mm_graph_facts, alloc_ns, LONG, 0, 0, MM_ALLOC_NS_MOST),
    MAY(mm_graph_facts, cache_bytes, LONG, 0, 0, RATE),
    MAY(mm_graph_facts, far_ps_per_byte, LONG, 0, 0, MM_FAR_PS_MOST),
    MAY(mm_graph_facts, threads, INT, 0, 0, INT32_MAX),
    {0}};

const mm_plan_field mm_plan_codec_fields[] = {
    NEEDS(mm_codec_facts, lossless, BOOL, 0, 1),    NEEDS(mm_codec_facts, fixed_size, BOOL, 0, 1),
    NEEDS(mm_codec_facts, gives_value, BOOL, 0, 1), NEEDS(mm_codec_facts, gives_sign, BOOL, 0, 1),
    NEEDS(mm_codec_facts, drops_zeros, BOOL, 0, 1), {0}};

const mm_plan_field mm_plan_code_fields[] = {
    NEEDS(mm_code_facts, code_bytes, LONG, 1, CODE),          MAY(mm_code_facts, body_bound_bytes, LONG, 0, 0, CODE),
    MAY(mm_code_facts, body_reserve_bytes, LONG, 0, 0, CODE), MAY(mm_code_facts, body_typical_bytes, LONG, 0, 0, CODE),
    MAY(mm_code_facts, body_is_measured, BOOL, 0, 0, 1),      MAY(mm_code_facts, scratch_bytes, LONG, 0, 0, CODE),
    MAY(mm_code_facts, encode_ns, LONG, 0, 0, MM_NS_MOST),    MAY(mm_code_facts, decode_ns, LONG, 0, 0, MM_NS_MOST),
    MAY(mm_code_facts, split_rows, LONG, 0, 0, BYTES),        MAY(mm_code_facts, split_bytes, LONG, 0, 0, CODE),
    MAY(mm_code_facts, strip_elems, LONG, 0, 0, BYTES),       {0}};

const mm_plan_field mm_plan_variant_fields[] = {NEEDS(mm_variant, id, INT, INT32_MIN, INT32_MAX),
                                                NEEDS(mm_variant, deterministic, BOOL, 0, 1),
                                                NEEDS(mm_variant, workspace_bytes, LONG, 0, BYTES),
                                                MAY(mm_variant, ns, LONG, 0, 0, MM_NS_MOST),
                                                {0}};

const mm_plan_field mm_plan_count_fields[] = {NEEDS(mm_plan_counts, segments, INT, 0, LINES),
                                              NEEDS(mm_plan_counts, nodes, INT, 0, LINES),
                                              NEEDS(mm_plan_counts, pieces, INT, 0, LINES),
                                              {0}};

const mm_plan_field mm_plan_plan_fields[] = {
    NEEDS(mm_plan, base_bytes, LONG, 0, BYTES),           NEEDS(mm_plan, pinned_base_bytes, LONG, 0, BYTES),
    NEEDS(mm_plan, extent_bytes, LONG, 0, INT64_MAX),     NEEDS(mm_plan, external_bytes, LONG, 0, INT64_MAX),
    NEEDS(mm_plan, peak_bytes, LONG, 0, INT64_MAX),       NEEDS(mm_plan, pinned_bytes, LONG, 0, INT64_MAX),
    MAY(mm_plan, disk_bytes, LONG, 0, 0, INT64_MAX),      MAY(mm_plan, disk_base_bytes, LONG, 0, 0, BYTES),
    MAY(mm_plan, heap_offset, LONG, 0, 0, BYTES),         MAY(mm_plan, heap_bytes, LONG, 0, 0, BYTES),
    MAY(mm_plan, heap_code_bytes, LONG, 0, 0, BYTES),     MAY(mm_plan, keeps_all, BOOL, 0, 0, 1),
    MAY(mm_plan, code_region_bytes, LONG, 0, 0, BYTES),   MAY(mm_plan, buffer_region_bytes, LONG, 0, 0, BYTES),
    MAY(mm_plan, buffers, INT, 0, 0, INT32_MAX),          MAY(mm_plan, cut_short, BOOL, 0, 0, 1),
    MAY(mm_plan, defragmentations, INT, 0, 0, INT32_MAX), {0}};

const mm_plan_field mm_plan_segment_fields[] = {NEEDS(mm_segment, offset, LONG, 0, BYTES),
                                                NEEDS(mm_segment, bytes, LONG, 0, BYTES),
                                                SEGMENT("pool", mm_segment, pool),
                                                SEGMENT("spill", mm_segment, spill),
                                                {0}};

const mm_plan_field mm_plan_node_fields[] = {NAMED("number", mm_node, seq, INT, true, 0, 0, LINES),
                                             MAY(mm_node, step, INT, -1, 0, LINES),
                                             MAY(mm_node, variant, INT, 0, 0, INT32_MAX),
                                             SEGMENT("source", mm_node, src),
                                             SEGMENT("target", mm_node, dst),
                                             SEGMENT("work", mm_node, work),
                                             SEGMENT("stage", mm_node, stage),
                                             MAY(mm_node, throttle, INT, 0, 0, INT32_MAX),
                                             {0}};

const mm_plan_field mm_plan_piece_fields[] = {
    NEEDS(mm_piece, node, INT, 0, LINES),           NAMED("number", mm_piece, seq, INT, true, 0, 0, LINES),
    MAY(mm_piece, first_row, LONG, 0, 0, BYTES),    MAY(mm_piece, rows, LONG, 0, 0, BYTES),
    MAY(mm_piece, map_offset, LONG, 0, 0, BYTES),   MAY(mm_piece, stored_offset, LONG, 0, 0, BYTES),
    MAY(mm_piece, stored_bytes, LONG, 0, 0, BYTES), {0}};

int64_t mm_plan_field_get(const mm_plan_field *field, const void *of) {
    const char *at = (const char *)of + field->offset;
    int64_t number = 0;
    int small = 0;
    bool flag = false;
    switch (field->value) {
    case MM_VALUE_INT:
        memcpy(&small, at, sizeof small);
        return small;
    case MM_VALUE_LONG:
        memcpy(&number, at, sizeof number);
        return number;
    case MM_VALUE_BOOL:
        memcpy(&flag, at, sizeof flag);
        return flag;
    }
    return number;
}

void mm_plan_field_set(const mm_plan_field *field, void *of, int64_t value) {
    char *at = (char *)of + field->offset;
    const int small = (int)value;
    const bool flag = value != 0;
    switch (field->value) {
    case MM_VALUE_INT:
        memcpy(at, &small, sizeof small);
        break;
    case MM_VALUE_LONG:
        memcpy(at, &value, sizeof value);
        break;
    case MM_VALUE_BOOL:
        memcpy(at, &flag, sizeof flag);
        break;
    }
}
