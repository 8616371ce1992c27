/* SPDX-License-Identifier: MIT */
#include "nets/io/onnx/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

static const onnx_op *const TABLES[] = {onnx_element_ops, onnx_image_ops, onnx_join_ops,
                                        onnx_part_ops,    onnx_shape_ops, onnx_token_ops};

static const onnx_op *op_of(const onnx_node *node) {
    const char *domain = node->proto->domain;
    if (domain && *domain && strcmp(domain, "ai.onnx") != 0) return NULL;
    for (size_t t = 0; t < sizeof TABLES / sizeof *TABLES; t++)
        for (const onnx_op *op = TABLES[t]; op->name; op++)
            if (strcmp(op->name, node->op) == 0) return op;
    return NULL;
}

/* Names all operations that have no layer, each with its first node, so that one knows at once what is missing. */
static mm_status check_ops(const onnx_import *m) {
    char text[320];
    size_t length = 0;
    int missing = 0;
    for (int i = 0; i < m->n_nodes; i++) {
        const onnx_node *node = &m->nodes[i];
        if (op_of(node)) continue;
        bool seen = false;
        for (int k = 0; k < i && !seen; k++) seen = !op_of(&m->nodes[k]) && strcmp(m->nodes[k].op, node->op) == 0;
        if (seen) continue;
        const int n = snprintf(text + length, sizeof text - length, "%s%.40s (node %.60s)", missing ? ", " : "",
                               node->op, node->name);
        if (missing++ > 16 || length + (size_t)n >= sizeof text) break;
        length += (size_t)n;
        text[length] = '\0';
    }
    if (!missing) return MM_OK;
    text[length] = '\0';
    return mm_fail(MM_ERR_UNSUPPORTED, "%s: no layer here computes %s ('mm nets --ops' lists those that there are)",
                   m->path, text);
}

static mm_status take_node(onnx_import *m, const onnx_node *node) {
    const onnx_op *op = op_of(node);
    bool constant = true;
    for (int i = 0; i < node->n_inputs; i++) {
        const onnx_value *value = onnx_in(m, node, i);
        if (value && value->kind == ONNX_UNKNOWN)
            return onnx_refuse(m, node, "no earlier node gives its input %.64s", value->name);
        constant = constant && (!value || value->kind == ONNX_CONSTANT);
    }
    if (!onnx_in(m, node, 0) && strcmp(op->name, "Constant") != 0)
        return onnx_refuse(m, node, "its first input is missing");
    if (!onnx_out(m, node, 0)) return onnx_refuse(m, node, "it has no output");
    for (int i = 0; i < node->n_outputs; i++)
        if (onnx_out(m, node, i) && onnx_out(m, node, i)->kind != ONNX_UNKNOWN)
            return onnx_refuse(m, node, "its output %.64s is given twice", onnx_out(m, node, i)->name);
    const onnx_handler handler = constant ? op->constants : op->maps;
    if (!handler)
        return onnx_refuse(m, node, constant ? "it is not computed of constants alone" : "no layer here computes it");
    const mm_status status = handler(m, node);
    /* Failures of helpers do not know the node. */
    return status == MM_OK || strstr(mm_last_error(), m->path) ? status : onnx_refused(m, node, status);
}

static mm_status import(onnx_import *m, nets_net **net_out) {
    MM_TRY(onnx_model_link(m));
    MM_TRY(check_ops(m));
    for (int i = 0; i < m->n_nodes; i++) MM_TRY(take_node(m, &m->nodes[i]));
    return onnx_build(m, net_out);
}

static void fini(onnx_import *m) {
    if (m->model) onnx__model_proto__free_unpacked(m->model, NULL);
    onnx_tensors_fini(&m->tensors);
    mm_names_fini(&m->names);
    mm_names_fini(&m->layer_names);
    mm_names_fini(&m->param_names);
    for (onnx_text *next, *text = m->texts; text; text = next) {
        next = text->next;
        free(text);
    }
    free(m->values);
    free(m->links);
    free(m->nodes);
    free(m->drafts);
    free(m->joined);
    free(m->initializers);
}

mm_status nets_onnx_parse(const char *path, const uint8_t *data, int64_t bytes, nets_net **net_out) {
    onnx_import m = {.path = path};
    mm_status status = onnx_model_unpack(&m, data, bytes);
    if (status == MM_OK) status = import(&m, net_out);
    fini(&m);
    return status;
}

/* Splits "net.onnx,classes=10". False: the path has no such end. */
static bool split_classes(const char *path, char file_out[4096], int64_t *classes_out) {
    static const char key[] = ",classes=";
    const char *at = strstr(path, key), *number = at ? at + sizeof key - 1 : NULL;
    if (!at || at == path || (size_t)(at - path) >= 4096 || number[strspn(number, "0123456789")] || !*number ||
        strlen(number) > 9)
        return false;
    memcpy(file_out, path, (size_t)(at - path));
    file_out[at - path] = '\0';
    *classes_out = strtoll(number, NULL, 10);
    return *classes_out > 0;
}

mm_status nets_onnx_load(const char *path, nets_net **net_out) {
    char file[4096];
    onnx_import m = {.path = path};
    uint8_t *data;
    int64_t bytes;
    if (split_classes(path, file, &m.classes)) m.path = file;
    MM_TRY(onnx_file_read(m.path, &data, &bytes));
    mm_status status = onnx_model_unpack(&m, data, bytes);
    free(data); /* before weights are read, since both are large */
    if (status == MM_OK) status = import(&m, net_out);
    fini(&m);
    return status;
}
