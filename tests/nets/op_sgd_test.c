/* The update step against its formula, the schedule, the initial values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/init.h"
#include "nets/op.h"
#include "nets/schedule.h"
#include "nets/zoo.h"

enum { N = 37 };

static void update_follows_torch_for_three_steps(void **state) {
    (void)state;
    mm_device *device;
    mm_stream *stream;
    nets_backend *backend;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(mm_stream_create(device, "sgd", 0, &stream), MM_OK);
    assert_int_equal(nets_backend_open("host", NULL, &backend), MM_OK);

    float w[N], v[N], g[N];
    double expected_w[N], expected_v[N];
    for (int i = 0; i < N; i++) {
        expected_w[i] = w[i] = 0.1f * (float)(i - 18);
        expected_v[i] = v[i] = 0;
    }
    uint32_t rng[4] = {1, 2, UINT32_MAX - 1, 4};
    const nets_sgd_param param = {.weight = w, .momentum = v, .gradient = g, .elems = N};
    for (int step = 0; step < 3; step++) {
        double lr = 0.1 / (1 + step);
        const float rate = (float)lr;
        for (int i = 0; i < N; i++) {
            g[i] = sinf((float)(i + step));
            expected_v[i] = 0.9 * expected_v[i] + g[i] + 0.01 * expected_w[i];
            expected_w[i] -= lr * expected_v[i];
        }
        const nets_sgd_args args = {.params = &param,
                                    .n_params = 1,
                                    .lr = &rate,
                                    .sgd = {.momentum = 0.9f, .weight_decay = 0.01f},
                                    .rng = rng};
        assert_int_equal(backend->ops->sgd(backend, &args, stream), MM_OK);
        assert_int_equal(mm_stream_sync(stream), MM_OK);
        for (int i = 0; i < N; i++) assert_true(fabs(w[i] - expected_w[i]) < 1e-6 && fabs(v[i] - expected_v[i]) < 1e-6);
    }
    assert_memory_equal(rng, ((const uint32_t[4]){1, 2, 1, 5}), sizeof rng);
    nets_backend_close(backend);
    mm_stream_destroy(stream);
    mm_device_destroy(device);
}

static void schedule_steps_at_its_iterations(void **state) {
    (void)state;
    const nets_schedule schedule = {.rate = 0.1f, .factor = 0.1f, .n = 2, .at = {100, 150}};
    assert_int_equal(nets_schedule_check(&schedule), MM_OK);
    assert_true(nets_schedule_rate(&schedule, 0) == 0.1f);
    assert_true(nets_schedule_rate(&schedule, 99) == 0.1f);
    assert_true(fabsf(nets_schedule_rate(&schedule, 100) - 0.01f) < 1e-8f);
    assert_true(fabsf(nets_schedule_rate(&schedule, 1000) - 0.001f) < 1e-9f);
}

static void schedule_out_of_order_or_not_positive_is_refused(void **state) {
    (void)state;
    const nets_schedule bad[] = {
        {.rate = 0},
        {.rate = NAN},
        {.rate = 0.1f, .n = 1, .factor = -1},
        {.rate = 0.1f, .n = 2, .factor = 0.1f, .at = {5, 5}},
        {.rate = 0.1f, .n = NETS_SCHEDULE_STEPS + 1, .factor = 0.1f},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(nets_schedule_check(&bad[i]), MM_ERR_INVALID);
}

static float *init_of(const nets_net *net, const char *name, uint64_t seed, int64_t *n_out) {
    int param = nets_net_find_param(net, name);
    assert_true(param >= 0);
    *n_out = nets_net_param(net, param)->elems;
    float *values = malloc((size_t)*n_out * sizeof *values);
    assert_non_null(values);
    nets_init_param(net, param, seed, values);
    return values;
}

static void moments(const float *values, int64_t n, double *mean_out, double *deviation_out) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += values[i];
    for (int64_t i = 0; i < n; i++) squares += (values[i] - sum / (double)n) * (values[i] - sum / (double)n);
    *mean_out = sum / (double)n;
    *deviation_out = sqrt(squares / (double)n);
}

static void initial_convolutions_are_kaiming_normal_by_fan_out(void **state) {
    (void)state;
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    int64_t n;
    double mean, deviation, expected = sqrt(2.0 / (64 * 9));
    float *values = init_of(net, "layer3.1.conv1.weight", 3, &n);
    assert_int_equal(n, 64 * 64 * 9);
    moments(values, n, &mean, &deviation);
    assert_true(fabs(mean) < 0.02 * expected && fabs(deviation - expected) < 0.02 * expected);
    free(values);
    values = init_of(net, "fc.weight", 3, &n);
    for (int64_t i = 0; i < n; i++) assert_true(fabsf(values[i]) <= 1.0f / 8);
    moments(values, n, &mean, &deviation);
    assert_true(fabs(deviation - 1 / (8 * sqrt(3.0))) < 0.1 / 8);
    free(values);
    values = init_of(net, "layer1.0.bn1.running_var", 3, &n);
    for (int64_t i = 0; i < n; i++) assert_true(values[i] == 1);
    free(values);
    values = init_of(net, "layer1.0.bn1.bias", 3, &n);
    for (int64_t i = 0; i < n; i++) assert_true(values[i] == 0);
    free(values);
    nets_net_destroy(net);
}

static void initial_values_depend_on_seed_and_name_alone(void **state) {
    (void)state;
    nets_net *small, *large;
    assert_int_equal(nets_zoo_build("resnet20", &small), MM_OK);
    assert_int_equal(nets_zoo_build("resnet32", &large), MM_OK);
    int64_t n;
    float *a = init_of(small, "layer2.1.conv2.weight", 1, &n), *same = init_of(large, "layer2.1.conv2.weight", 1, &n);
    float *seed = init_of(small, "layer2.1.conv2.weight", 2, &n),
          *name = init_of(small, "layer2.2.conv2.weight", 1, &n);
    size_t bytes = (size_t)n * sizeof *a;
    assert_memory_equal(a, same, bytes);
    assert_memory_not_equal(a, seed, bytes);
    assert_memory_not_equal(a, name, bytes);
    free(a);
    free(same);
    free(seed);
    free(name);
    nets_net_destroy(small);
    nets_net_destroy(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_follows_torch_for_three_steps),
        cmocka_unit_test(schedule_steps_at_its_iterations),
        cmocka_unit_test(schedule_out_of_order_or_not_positive_is_refused),
        cmocka_unit_test(initial_convolutions_are_kaiming_normal_by_fan_out),
        cmocka_unit_test(initial_values_depend_on_seed_and_name_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
