/* Inside the emulated cuDNN: descriptors of its graph API. What is set is checked against a table of what each may
 * have. */
#ifndef TESTS_CUDA_EMULATION_CUDNN_DESCRIPTOR_H
#define TESTS_CUDA_EMULATION_CUDNN_DESCRIPTOR_H

#include <cudnn.h>
#include <stdbool.h>

enum { DNN_ATTRIBUTES = 8, DNN_KNOBS = 2 };

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
    /* Of an engine and what is made from it, also where the library gave it: */
    const struct dnn_descriptor *graph;
    int64_t engine;
    int64_t knobs[DNN_KNOBS]; /* a knob's choice: its type and value */
    int n_knobs;
} dnn_descriptor;

/* What was set; NULL: nothing. */
const dnn_attribute *dnn_find(const dnn_descriptor *of, cudnnBackendAttributeName_t name);

/* The values of one that has been set. */
const void *dnn_values(const dnn_descriptor *of, cudnnBackendAttributeName_t name);
int64_t dnn_number(const dnn_descriptor *of, cudnnBackendAttributeName_t name);
const dnn_descriptor *dnn_reference(const dnn_descriptor *of, cudnnBackendAttributeName_t name);

/* Whether all was set that must be. */
bool dnn_complete(const dnn_descriptor *of);

#endif
