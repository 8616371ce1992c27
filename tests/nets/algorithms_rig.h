/* SPDX-License-Identifier: MIT */
/* Rig for tests of how the CUDA backend chooses algorithms, on the emulation. Include it after <cmocka.h>. */
#ifndef TESTS_NETS_ALGORITHMS_RIG_H
#define TESTS_NETS_ALGORITHMS_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/cuda/choose/algorithm_cache.h"
#include "tests/nets/cuda_rig.h"

/* A convolution for which the emulated libraries have several algorithms. */
static const nets_op_desc CONV __attribute__((unused)) = {
    .kind = NETS_CONV,
    .attrs = {.out_channels = 16, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .dilation = {1, 1}, .groups = 1},
    .x = {{4, {8, 12, 12, 8}}},
    .y = {4, {8, 12, 12, 16}},
    .n_inputs = 1,
    .training = true,
    .wants_dx = true,
};

typedef struct algorithms_rig {
    char path[256];
    nets_backend_config config;
    int warnings;
    const char *looked_for;
    int found;            /* messages that contain looked_for */
    const char *stops_at; /* a message that contains it stops the backend (nets_backend_config.stop) */
    volatile int stop;
} algorithms_rig;

static inline void algorithms_note(void *ctx, mm_log_level level, const char *message) {
    algorithms_rig *f = ctx;
    f->warnings += level == MM_LOG_WARNING;
    f->found += f->looked_for && strstr(message, f->looked_for);
    if (f->stops_at && strstr(message, f->stops_at)) f->stop = 1;
}

static inline int algorithms_setup(void **state) {
    const char *folder = getenv("TEST_TMPDIR");
    algorithms_rig *f = calloc(1, sizeof *f);
    if (!f || cuda_rig_setup(state) != 0) return -1;
    snprintf(f->path, sizeof f->path, "%s/algorithms.%ld", folder ? folder : "/tmp", (long)getpid());
    f->config = (nets_backend_config){.workspace_limit_bytes = 1 << 20, .log = {algorithms_note, f, MM_LOG_WARNING}};
    *state = f;
    return 0;
}

static inline int algorithms_teardown(void **state) {
    algorithms_rig *f = *state;
    unlink(f->path);
    free(f);
    return cuda_rig_teardown(state);
}

/* Workspace of one phase of an op, on a new backend. */
static inline int64_t algorithms_workspace(const algorithms_rig *f, const nets_op_desc *desc, mm_phase phase) {
    nets_backend *backend;
    nets_op *op;
    if (nets_backend_open("cuda", &f->config, &backend) != MM_OK) fail_msg("%s", mm_last_error());
    if (nets_op_create(backend, desc, &op) != MM_OK) fail_msg("%s", mm_last_error());
    int64_t bytes = nets_op_workspace_bytes(op, phase);
    nets_op_destroy(op);
    nets_backend_close(backend);
    return bytes;
}

/* Creating the op ends when the log has `stops_at`: as interrupted, without the memory that timing takes, and with no
 * choice kept. The log had `looked_for` so many times. A backend that is not stopped creates it afterwards. */
static inline void algorithms_expect_stopped(algorithms_rig *f, const nets_op_desc *desc, const char *stops_at,
                                             int found) {
    nets_backend *backend;
    nets_op *op;
    const size_t before = cuda_emulation_alive_get().device_bytes;
    f->config.stop = &f->stop;
    f->config.algorithms_path = f->path;
    f->config.log.level = MM_LOG_DEBUG;
    f->stops_at = stops_at;
    f->stop = f->found = 0;
    assert_int_equal(nets_backend_open("cuda", &f->config, &backend), MM_OK);
    assert_int_equal(nets_op_create(backend, desc, &op), MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "interrupted"));
    assert_int_equal(f->found, found);
    assert_int_equal(f->warnings, 0);
    assert_int_equal(access(f->path, F_OK), -1);
    f->stops_at = NULL;
    f->stop = 0;
    if (nets_op_create(backend, desc, &op) != MM_OK) fail_msg("%s", mm_last_error());
    assert_true(f->found > found);
    assert_int_equal(access(f->path, F_OK), 0);
    nets_op_destroy(op);
    nets_backend_close(backend);
    assert_int_equal(cuda_emulation_alive_get().device_bytes, before);
    assert_int_equal(cuda_emulation_dnn_descriptors(), 0);
    unlink(f->path);
}

/* Replaces the file's choices for an output (deterministic, within the configured limit) by this single one. */
static inline void algorithms_keep_instead(const algorithms_rig *f, const nets_conv_shape *shape,
                                           const nets_conv_choice *choice) {
    const int64_t limit = f->config.workspace_limit_bytes;
    const nets_conv_terms terms = {true, limit, limit};
    char line[256];
    nets_algorithm_cache choices;
    FILE *file = fopen(f->path, "r");
    assert_non_null(file);
    for (int i = 0; i < 2; i++) assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    line[strcspn(line, " ")] = '\0'; /* the line starts with the device's name */
    assert_int_equal(nets_algorithm_cache_init(&choices, &f->config, line), MM_OK);
    assert_non_null(nets_algorithm_cache_find(&choices, shape, &terms));
    const nets_conv_pareto front = {1, {*choice}};
    assert_int_equal(nets_algorithm_cache_store(&choices, shape, &terms, &front), MM_OK);
    nets_algorithm_cache_fini(&choices);
}

#endif
