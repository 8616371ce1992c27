/* SPDX-License-Identifier: MIT */
/* Private to the emulated cuDNN: descriptors of its graph API. Attributes are checked against a table when they are
 * set. */
#ifndef TESTS_CUDA_EMULATION_CUDNN_DESCRIPTOR_H
#define TESTS_CUDA_EMULATION_CUDNN_DESCRIPTOR_H

#include <cudnn.h>
#include <stdbool.h>

enum { DNN_ATTRIBUTES = 8, DNN_KNOBS = 2, DNN_OPERATIONS = 32, DNN_TENSORS = 64 };

typedef struct dnn_attribute {
    cudnnBackendAttributeName_t name;
    int64_t count;
    void *values;
} dnn_attribute;

typedef struct dnn_descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    int n;
    dnn_attribute set[DNN_ATTRIBUTES];
    /* the following fields are set in the descriptor of an engine, and in descriptors made from it: */
    const struct dnn_descriptor *graph;
    int64_t engine;
    int64_t knobs[DNN_KNOBS]; /* a knob's choice: its type and value; a configuration: its knobs' values */
    int n_knobs;
} dnn_descriptor;

/* The attribute; NULL: it was not set. */
const dnn_attribute *dnn_find(const dnn_descriptor *of, cudnnBackendAttributeName_t name);

/* The values of an attribute that was set. */
const void *dnn_values(const dnn_descriptor *of, cudnnBackendAttributeName_t name);
int64_t dnn_number(const dnn_descriptor *of, cudnnBackendAttributeName_t name);
const dnn_descriptor *dnn_reference(const dnn_descriptor *of, cudnnBackendAttributeName_t name);

/* Whether all mandatory attributes were set. */
bool dnn_complete(const dnn_descriptor *of);

#endif
