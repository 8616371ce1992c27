/* SPDX-License-Identifier: MIT */
/* Products with weights, norms of tokens, and attention. */
#include <math.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

static const onnx_dim NONE = {0};

/* ---------------------------------------------------------------- products with weights */

/* A weight [in, out] as it stands in the product, or [out, in] if `by_output`. */
static mm_status product(onnx_import *m, const onnx_node *node, onnx_tensor *weight, bool by_output,
                         onnx_tensor *bias) {
    onnx_value *in, *out = onnx_out(m, node, 0);
    int whole, draft;
    MM_TRY(onnx_in_map(m, node, 0, &in));
    MM_TRY(onnx_whole(m, node, in, &whole));
    if (!weight || weight->rank != 2 || !weight->real)
        return onnx_refuse(m, node, "its weight must be a constant matrix");
    if (bias && (!bias->real || bias->elems != weight->dims[by_output ? 0 : 1]))
        return onnx_refuse(m, node, "its bias must have a number for each output");
    const nets_shape before = *onnx_shape(m, whole);
    const onnx_dim sample = onnx_dim_sample(&before), channels = onnx_dim_of(nets_shape_channels(&before), 1);
    onnx_view view = in->view;
    const onnx_dim *last = &view.dims[view.rank - 1];
    nets_attrs attrs = {.out_channels = weight->dims[by_output ? 0 : 1], .bias = bias};
    const bool all = view.rank > 0 && onnx_dim_equal(last, &sample);
    if (view.rank < 1 || (!all && !onnx_dim_equal(last, &channels)))
        return onnx_refuse(m, node,
                           "its input's last dimension is neither the channels nor a whole sample in torch's order");
    /* An exporter that transposed a matrix gave it no name; then it is torch's, by output. */
    const bool stored_by_output = by_output != weight->transposed, named = onnx_module_name(weight->name);
    attrs.by_output = !all && (stored_by_output || !named);
    const nets_op_kind op = all ? NETS_LINEAR : NETS_PROJECT;
    MM_TRY(onnx_draft_add(m, node, op, &attrs, &whole, 1, weight, &draft));
    m->drafts[draft].params[0] = (onnx_param){weight, (all || attrs.by_output) != by_output};
    m->drafts[draft].params[1] = (onnx_param){bias, false};
    view.dims[view.rank - 1] = NONE;
    if (!onnx_view_move(&view, &before, onnx_shape(m, draft))) return onnx_refuse(m, node, "its input is not in order");
    view.dims[view.rank - 1] = onnx_dim_of(attrs.out_channels, 1);
    onnx_give_map(out, draft, &view);
    return MM_OK;
}

static mm_status matmul(onnx_import *m, const onnx_node *node) {
    const onnx_value *first = onnx_in(m, node, 0), *second = onnx_in(m, node, 1);
    onnx_tensor *weight;
    if (!first || !second) return onnx_refuse(m, node, "an input is missing");
    if (first->kind != ONNX_CONSTANT && second->kind != ONNX_CONSTANT) return onnx_attention_product(m, node);
    MM_TRY(onnx_in_constant(m, node, 1, &weight));
    return product(m, node, weight, false, NULL);
}

static mm_status gemm(onnx_import *m, const onnx_node *node) {
    onnx_tensor *weight, *bias;
    MM_TRY(onnx_in_constant(m, node, 1, &weight));
    MM_TRY(onnx_in_constant(m, node, 2, &bias));
    if (onnx_attr_real(node, "alpha", 1) != 1 || (bias && onnx_attr_real(node, "beta", 1) != 1) ||
        onnx_attr_int(node, "transA", 0))
        return onnx_refuse(m, node, "alpha and beta must be 1, and transA 0");
    return product(m, node, weight, onnx_attr_int(node, "transB", 0), bias);
}

/* ---------------------------------------------------------------- constants added, or multiplied with */

/* Whether a constant, broadcast over a view, has one number for each of the map's channels. */
static bool is_for_channels(const onnx_import *m, const onnx_value *map, const onnx_tensor *constant) {
    const int64_t channels = nets_shape_channels(onnx_shape(m, map->draft));
    const onnx_dim wanted = onnx_dim_of(channels, 1);
    if (!constant->real || constant->elems != channels || constant->rank > map->view.rank) return false;
    for (int d = 0; d < constant->rank; d++) {
        const onnx_dim *dim = &map->view.dims[map->view.rank - constant->rank + d];
        if (constant->dims[d] == channels && onnx_dim_equal(dim, &wanted)) return true;
    }
    return false;
}

/* Whether it has one for each token's channels: [tokens, channels] behind dimensions of 1. */
static bool is_for_tokens(const onnx_import *m, const onnx_value *map, const onnx_tensor *constant) {
    const nets_shape *shape = onnx_shape(m, map->draft);
    const int rank = map->view.rank;
    const onnx_dim channels = onnx_dim_of(nets_shape_channels(shape), 1);
    const onnx_dim tokens = onnx_dim_of(nets_shape_rows(shape), nets_shape_channels(shape));
    return constant->real && constant->rank >= 2 && constant->rank <= rank && rank >= 2 &&
           constant->elems == nets_shape_elems(shape) &&
           constant->dims[constant->rank - 1] == nets_shape_channels(shape) &&
           constant->dims[constant->rank - 2] == nets_shape_rows(shape) &&
           onnx_dim_equal(&map->view.dims[rank - 1], &channels) && onnx_dim_equal(&map->view.dims[rank - 2], &tokens);
}

mm_status onnx_add_constant(onnx_import *m, const onnx_node *node, onnx_value *map, onnx_tensor *constant) {
    onnx_value *out = onnx_out(m, node, 0);
    onnx_draft *draft = &m->drafts[map->draft];
    nets_attrs *attrs = &draft->layer.attrs;
    const nets_op_kind op = draft->layer.op;
    const bool sole = map->sole && map->uses == 1 && draft->kind == ONNX_LAYER && onnx_is_identity(map->function);
    if (sole && is_for_channels(m, map, constant)) {
        const bool takes = op == NETS_CONV || op == NETS_CONV_TRANSPOSE || op == NETS_LINEAR || op == NETS_PROJECT;
        if ((takes && !attrs->bias) || (draft->affine_pending && !draft->params[1].tensor)) {
            attrs->bias = takes;
            draft->params[1].tensor = constant;
            onnx_give_view(out, map, &map->view);
            return MM_OK;
        }
    }
    if (is_for_tokens(m, map, constant)) {
        if (sole && op == NETS_CLASS_TOKEN && !draft->params[1].tensor) {
            draft->params[1].tensor = constant;
            onnx_give_view(out, map, &map->view);
            return MM_OK;
        }
        int whole, added;
        MM_TRY(onnx_whole(m, node, map, &whole));
        MM_TRY(onnx_draft_add(m, node, NETS_POSITION, NULL, &whole, 1, constant, &added));
        m->drafts[added].params[0].tensor = constant;
        onnx_give_map(out, added, &map->view);
        return MM_OK;
    }
    return onnx_refuse(m, node, "adds a constant of %lld numbers that is neither a bias nor positions of tokens",
                       (long long)constant->elems);
}

mm_status onnx_scale_channels(onnx_import *m, const onnx_node *node, onnx_value *map, onnx_tensor *constant) {
    onnx_draft *draft = &m->drafts[map->draft];
    if (map->sole && map->uses == 1 && draft->affine_pending && !draft->params[0].tensor &&
        onnx_is_identity(map->function) && is_for_channels(m, map, constant)) {
        draft->params[0].tensor = constant;
        onnx_give_view(onnx_out(m, node, 0), map, &map->view);
        return MM_OK;
    }
    return onnx_refuse(m, node, "multiplies a map by a constant of %lld numbers; no layer here does",
                       (long long)constant->elems);
}

/* The class token and its positions come one after the other; the draft waits for the positions. */
mm_status onnx_class_token(onnx_import *m, const onnx_node *node, int axis) {
    onnx_tensor *token;
    onnx_value *in;
    int whole, draft;
    MM_TRY(onnx_in_constant(m, node, 0, &token));
    MM_TRY(onnx_in_map(m, node, 1, &in));
    MM_TRY(onnx_whole(m, node, in, &whole));
    const nets_shape before = *onnx_shape(m, whole);
    const int64_t c = nets_shape_channels(&before);
    const onnx_dim channels = onnx_dim_of(c, 1), tokens = onnx_dim_of(nets_shape_rows(&before), c);
    const int rank = in->view.rank;
    bool fits = rank >= 2 && axis == rank - 2 && onnx_dim_equal(&in->view.dims[rank - 1], &channels) &&
                onnx_dim_equal(&in->view.dims[axis], &tokens) && token->real && token->rank == rank &&
                token->dims[axis] == 1 && token->dims[rank - 1] == c && token->elems == m->batch * c;
    for (int64_t i = c; fits && i < token->elems; i++) fits = token->reals[i] == token->reals[i % c];
    if (!fits) return onnx_refuse(m, node, "layers here join channels, or put one learned token before a map's tokens");
    if (m->batch > 1) MM_TRY(onnx_tensor_gather(&m->tensors, token, 0, 1, &c, &(int64_t){1}, &token));
    MM_TRY(onnx_draft_add(m, node, NETS_CLASS_TOKEN, NULL, &whole, 1, token, &draft));
    m->drafts[draft].params[0].tensor = token;
    const nets_shape *shape = onnx_shape(m, draft);
    onnx_view view = in->view;
    view.dims[axis] = NONE;
    if (!onnx_view_move(&view, &before, shape)) return onnx_refuse(m, node, "its tokens are not in order");
    view.dims[axis] = onnx_dim_of(nets_shape_rows(shape), c);
    onnx_give_map(onnx_out(m, node, 0), draft, &view);
    return MM_OK;
}

/* ---------------------------------------------------------------- norms */

static mm_status norm(onnx_import *m, const onnx_node *node) {
    const bool rms = strcmp(node->op, "RMSNormalization") == 0;
    const nets_attrs attrs = {.eps = (float)onnx_attr_real(node, "epsilon", 1e-5)};
    onnx_tensor *weight, *bias = NULL;
    onnx_value *in;
    int axis, whole, draft;
    MM_TRY(onnx_in_map(m, node, 0, &in));
    MM_TRY(onnx_axis(m, node, onnx_attr_int(node, "axis", -1), in->view.rank, &axis));
    MM_TRY(onnx_whole(m, node, in, &whole));
    MM_TRY(onnx_in_constant(m, node, 1, &weight));
    if (!rms) MM_TRY(onnx_in_constant(m, node, 2, &bias));
    const onnx_dim channels = onnx_dim_of(nets_shape_channels(onnx_shape(m, whole)), 1);
    if (axis != in->view.rank - 1 || !onnx_dim_equal(&in->view.dims[axis], &channels))
        return onnx_refuse(m, node,
                           "layers here normalise the channels of each token; its last axis is not the channels");
    MM_TRY(onnx_draft_add(m, node, rms ? NETS_RMS_NORM : NETS_LAYER_NORM, &attrs, &whole, 1, weight, &draft));
    m->drafts[draft].params[0].tensor = weight;
    m->drafts[draft].params[1].tensor = bias;
    onnx_give_map(onnx_out(m, node, 0), draft, &in->view);
    return MM_OK;
}

/* ---------------------------------------------------------------- attention */

/* Reads a view [..., tokens, depth] of some channels as heads of attention; `flipped`: [..., depth, tokens]. */
static bool heads_of(const onnx_import *m, const onnx_value *value, bool flipped, onnx_attention *a) {
    const nets_shape *shape = onnx_shape(m, value->draft);
    const int64_t channels = nets_shape_channels(shape), rows = nets_shape_rows(shape);
    const int rank = value->view.rank;
    if (rank < 2) return false;
    const onnx_dim *tokens = &value->view.dims[rank - (flipped ? 1 : 2)],
                   *depth = &value->view.dims[rank - (flipped ? 2 : 1)];
    const onnx_dim all = onnx_dim_of(rows, channels);
    a->tokens = rows;
    a->depth = onnx_dim_size(depth);
    const onnx_dim unit = onnx_dim_of(a->depth, 1);
    if (!onnx_dim_equal(tokens, &all) || !onnx_dim_equal(depth, &unit)) return false;
    onnx_view before = {.rank = rank - 2}, flat;
    memcpy(before.dims, value->view.dims, (size_t)(rank - 2) * sizeof *before.dims);
    const int64_t n = onnx_view_elems(&before);
    if (n % m->batch) return false;
    a->heads = n / m->batch;
    /* samples, then heads side by side */
    if (!onnx_view_reshape(&before, 2, (int64_t[]){m->batch, a->heads}, &flat)) return false;
    const onnx_dim samples = onnx_dim_of(m->batch, rows * channels), heads = onnx_dim_of(a->heads, a->depth);
    return onnx_dim_equal(&flat.dims[0], &samples) && onnx_dim_equal(&flat.dims[1], &heads) &&
           value->view.offset + a->heads * a->depth <= channels;
}

static const char NOT_HEADS[] = "layers here multiply maps with weights, and queries, keys and values of attention: "
                                "[..., tokens, depth] of heads side by side";

/* A view of queries, keys or values that a number may still multiply. */
static mm_status in_heads(onnx_import *m, const onnx_node *node, int i, bool flipped, onnx_attention *a,
                          onnx_value **value_out, double *factor_out) {
    MM_TRY(onnx_in_map(m, node, i, value_out));
    if (m->drafts[(*value_out)->draft].kind == ONNX_LAYER && onnx_is_factor((*value_out)->function, factor_out) &&
        heads_of(m, *value_out, flipped, a))
        return MM_OK;
    return onnx_refuse(m, node, "%s", NOT_HEADS);
}

static mm_status scores(onnx_import *m, const onnx_node *node) {
    onnx_attention q, k;
    onnx_value *queries, *keys, *out = onnx_out(m, node, 0);
    double of_q, of_k;
    MM_TRY(in_heads(m, node, 0, false, &q, &queries, &of_q));
    MM_TRY(in_heads(m, node, 1, true, &k, &keys, &of_k));
    if (q.heads != k.heads || q.depth != k.depth || q.tokens != k.tokens)
        return onnx_refuse(m, node, "queries and keys differ in heads, depth or tokens");
    out->kind = ONNX_SCORES;
    out->function[0] = of_q * of_k;
    out->attention = q;
    out->attention.drafts[0] = queries->draft;
    out->attention.drafts[1] = keys->draft;
    out->attention.offsets[0] = queries->view.offset;
    out->attention.offsets[1] = keys->view.offset;
    out->attention.queries = queries->view;
    out->attention.causal = false;
    return MM_OK;
}

/* The layer that attention reads: queries, keys and values side by side. */
static mm_status join_heads(onnx_import *m, const onnx_node *node, const onnx_attention *a, int *draft_out) {
    const int64_t width = a->heads * a->depth;
    const int first = a->drafts[0];
    if (a->drafts[1] == first && a->drafts[2] == first) {
        *draft_out = first;
        if (a->offsets[0] == 0 && a->offsets[1] == width && a->offsets[2] == 2 * width &&
            nets_shape_channels(onnx_shape(m, first)) == 3 * width)
            return MM_OK;
        return onnx_refuse(m, node, "queries, keys and values do not lie in this order, heads side by side");
    }
    for (int i = 0; i < 3; i++)
        if (a->offsets[i] || nets_shape_channels(onnx_shape(m, a->drafts[i])) != width)
            return onnx_refuse(m, node, "queries, keys and values are three maps, or parts of one; these are neither");
    return onnx_join(m, node, a->drafts, 3, draft_out);
}

/* Shares times values. */
static mm_status attend(onnx_import *m, const onnx_node *node, const onnx_attention *shares) {
    onnx_attention a = *shares, v;
    onnx_value *values;
    double factor;
    int joined, draft;
    MM_TRY(in_heads(m, node, 1, false, &v, &values, &factor));
    if (v.heads != a.heads || v.depth != a.depth || v.tokens != a.tokens || factor != 1)
        return onnx_refuse(m, node, "values differ from queries in heads, depth or tokens");
    a.drafts[2] = values->draft;
    a.offsets[2] = values->view.offset;
    MM_TRY(join_heads(m, node, &a, &joined));
    const nets_attrs attrs = {.heads = a.heads, .full = !a.causal};
    MM_TRY(onnx_draft_add(m, node, NETS_ATTENTION, &attrs, &joined, 1, NULL, &draft));
    onnx_view view = a.queries;
    view.offset = 0;
    if (!onnx_view_move(&view, onnx_shape(m, a.drafts[0]), onnx_shape(m, draft)))
        return onnx_refuse(m, node, "%s", NOT_HEADS);
    onnx_give_map(onnx_out(m, node, 0), draft, &view);
    return MM_OK;
}

mm_status onnx_attention_product(onnx_import *m, const onnx_node *node) {
    const onnx_value *first = onnx_in(m, node, 0);
    return first->kind == ONNX_SHARES ? attend(m, node, &first->attention) : scores(m, node);
}

static mm_status check_scale(onnx_import *m, const onnx_node *node, const onnx_attention *a, double scale) {
    const double wanted = 1 / sqrt((double)a->depth);
    if (fabs(scale - wanted) <= 1e-5 * wanted) return MM_OK;
    return onnx_refuse(m, node, "attention scales by %g; layers here by 1 / sqrt(%lld)", scale, (long long)a->depth);
}

mm_status onnx_attention_shares(onnx_import *m, const onnx_node *node) {
    const onnx_value *in = onnx_in(m, node, 0);
    const int rank = in->attention.queries.rank;
    onnx_value *out = onnx_out(m, node, 0);
    int axis;
    MM_TRY(onnx_axis(m, node, onnx_attr_int(node, "axis", -1), rank, &axis));
    if (axis != rank - 1 || strcmp(node->op, "Softmax") != 0)
        return onnx_refuse(m, node, "attention's softmax is over keys");
    MM_TRY(check_scale(m, node, &in->attention, in->function[0]));
    out->kind = ONNX_SHARES;
    out->attention = in->attention;
    return MM_OK;
}

/* What a mask [..., tokens, tokens] lets through: nothing but keys up to the query (causal), or everything. `adds`: a
 * number is added to each score; else scores are kept where it is not 0, or, `negated`, where it is. */
static mm_status read_mask(onnx_import *m, const onnx_node *node, const onnx_tensor *mask, bool adds, bool negated,
                           onnx_attention *a) {
    const int64_t t = a->tokens, plane = t * t;
    bool causal = true, full = true;
    if (mask->elems == 1 || mask->rank < 2 || mask->dims[mask->rank - 1] != t || mask->dims[mask->rank - 2] != t)
        return onnx_refuse(m, node, "attention's mask is not of %lld queries and keys", (long long)t);
    for (int64_t i = 0; i < mask->elems; i++) {
        const double value = onnx_tensor_at(mask, i);
        const bool ahead = i % plane % t > i % plane / t;
        const bool seen = adds ? value == 0 : (value != 0) != negated;
        if (adds && value != 0 && !(value <= -1e4))
            return onnx_refuse(m, node, "attention's mask adds %g to a score", value);
        causal = causal && seen == !ahead;
        full = full && seen;
    }
    if (!causal && !full)
        return onnx_refuse(m, node, "attention's mask is neither causal nor empty; layers here have these two");
    a->causal = a->causal || (causal && !full);
    return MM_OK;
}

mm_status onnx_attention_arithmetic(onnx_import *m, const onnx_node *node, bool *done_out) {
    onnx_value *in[3] = {onnx_in(m, node, 0), onnx_in(m, node, 1), onnx_in(m, node, 2)}, *out = onnx_out(m, node, 0);
    const bool where = strcmp(node->op, "Where") == 0;
    onnx_tensor *constant;
    *done_out = true;
    /* Where(IsNaN(shares), 0, shares): no share is NaN, since each query sees itself. */
    if (where && in[0]->kind == ONNX_IS_NAN && in[2] && in[2]->kind == ONNX_SHARES) {
        out->kind = ONNX_SHARES;
        out->attention = in[2]->attention;
        return MM_OK;
    }
    if (where) {
        const int which = in[1] && in[1]->kind == ONNX_SCORES ? 1 : 2;
        if (!in[which] || in[which]->kind != ONNX_SCORES) return *done_out = false, MM_OK;
        double other;
        MM_TRY(onnx_in_number(m, node, 3 - which, 0, &other));
        MM_TRY(onnx_in_constant(m, node, 0, &constant));
        if (!(other <= -1e4)) return onnx_refuse(m, node, "attention's mask makes scores %g", other);
        *out =
            (onnx_value){.name = out->name, .uses = out->uses, .kind = ONNX_SCORES, .attention = in[which]->attention};
        out->function[0] = in[which]->function[0];
        return read_mask(m, node, constant, false, which == 2, &out->attention);
    }
    const int which = in[0] && in[0]->kind == ONNX_SCORES ? 0 : 1;
    if (!in[which] || in[which]->kind != ONNX_SCORES) return *done_out = false, MM_OK;
    MM_TRY(onnx_in_constant(m, node, 1 - which, &constant));
    out->kind = ONNX_SCORES;
    out->attention = in[which]->attention;
    out->function[0] = in[which]->function[0];
    if (strcmp(node->op, "Add") == 0) return read_mask(m, node, constant, true, false, &out->attention);
    if (constant->elems != 1) return onnx_refuse(m, node, "attention's scores are scaled by one number");
    if (strcmp(node->op, "Mul") == 0)
        out->function[0] *= onnx_tensor_at(constant, 0);
    else if (strcmp(node->op, "Div") == 0 && which == 0)
        out->function[0] /= onnx_tensor_at(constant, 0);
    else
        return onnx_refuse(m, node, "attention's scores are scaled and masked only");
    return MM_OK;
}

/* ONNX's own operation, from version 23 on: queries, keys and values [n, heads, tokens, depth], or [n, tokens, width]
 * with the number of heads as an attribute. */
static mm_status attention(onnx_import *m, const onnx_node *node) {
    const int64_t heads = onnx_attr_int(node, "q_num_heads", 0);
    onnx_value kept[3], *in[3], *out = onnx_out(m, node, 0);
    onnx_attention a = {0}, each;
    onnx_tensor *mask;
    double factor;
    for (int i = 4; i < node->n_inputs; i++)
        if (onnx_in(m, node, i)) return onnx_refuse(m, node, "earlier keys and values are not supported");
    for (int i = 1; i < node->n_outputs; i++)
        if (onnx_out(m, node, i) && onnx_out(m, node, i)->uses)
            return onnx_refuse(m, node, "its output %d is not computed", i);
    for (int i = 0; i < 3; i++) {
        MM_TRY(onnx_in_map(m, node, i, &in[i]));
        kept[i] = *in[i];
        const int64_t dims[] = {m->batch, onnx_dim_size(&in[i]->view.dims[1]), heads,
                                heads ? onnx_dim_size(&in[i]->view.dims[2]) / heads : 0};
        onnx_view split;
        if (in[i]->view.rank == 3) { /* heads apart, before tokens */
            if (heads < 1 || !onnx_view_reshape(&in[i]->view, 4, dims, &split))
                return onnx_refuse(m, node, "%s", NOT_HEADS);
            kept[i].view = onnx_view_transpose(&split, (int[]){0, 2, 1, 3});
        }
        if (!onnx_is_factor(kept[i].function, &factor) || factor != 1 || !heads_of(m, &kept[i], false, &each) ||
            (i && (each.heads != a.heads || each.depth != a.depth || each.tokens != a.tokens)))
            return onnx_refuse(m, node, "%s", NOT_HEADS);
        if (i == 0) a = each;
        a.drafts[i] = kept[i].draft;
        a.offsets[i] = kept[i].view.offset;
    }
    if (onnx_attr_given(node, "scale")) MM_TRY(check_scale(m, node, &a, onnx_attr_real(node, "scale", 0)));
    if (onnx_attr_given(node, "softcap") && onnx_attr_real(node, "softcap", 0) != 0)
        return onnx_refuse(m, node, "softcap is not supported");
    a.causal = onnx_attr_int(node, "is_causal", 0);
    MM_TRY(onnx_in_constant(m, node, 3, &mask));
    if (mask) MM_TRY(read_mask(m, node, mask, mask->real, false, &a));
    int joined, draft;
    MM_TRY(join_heads(m, node, &a, &joined));
    const nets_attrs attrs = {.heads = a.heads, .full = !a.causal};
    MM_TRY(onnx_draft_add(m, node, NETS_ATTENTION, &attrs, &joined, 1, NULL, &draft));
    onnx_view view = kept[0].view;
    view.offset = 0;
    if (!onnx_view_move(&view, onnx_shape(m, a.drafts[0]), onnx_shape(m, draft)))
        return onnx_refuse(m, node, "%s", NOT_HEADS);
    if (in[0]->view.rank == 3) { /* heads together again */
        view = onnx_view_transpose(&view, (int[]){0, 2, 1, 3});
        const int64_t dims[] = {m->batch, a.tokens, a.heads * a.depth};
        onnx_view joined_view;
        if (!onnx_view_reshape(&view, 3, dims, &joined_view)) return onnx_refuse(m, node, "%s", NOT_HEADS);
        view = joined_view;
    }
    onnx_give_map(out, draft, &view);
    return MM_OK;
}

const onnx_op onnx_token_ops[] = {
    {"MatMul", matmul, NULL},         {"Gemm", gemm, NULL},           {"LayerNormalization", norm, NULL},
    {"RMSNormalization", norm, NULL}, {"Attention", attention, NULL}, {NULL, NULL, NULL},
};
