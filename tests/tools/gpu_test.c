/* SPDX-License-Identifier: MIT */
/* GPUs by name: what names are found, and what rates follow from data sheets and assumptions. */
#include <math.h>
#include <string.h>

#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tools/facts/facts_source.h"

static const gpu *find(const char *name) {
    const gpu *g = NULL;
    expect_ok(gpu_find(name, &g));
    return g;
}

TEST_CASE(names_are_found_as_users_and_drivers_write_them_) {
    static const char *const names[][2] = {
        {"RTX-4090", "RTX-4090"},
        {"rtx4090", "RTX-4090"},
        {"4090", "RTX-4090"},
        {"NVIDIA GeForce RTX 4090", "RTX-4090"},
        {"Tesla V100-SXM2-16GB", "V100-16"},
        {"NVIDIA A100-SXM4-80GB", "A100-80-SXM"},
        {"NVIDIA A100 80GB PCIe", "A100-80-PCIe"},
        {"NVIDIA H100 80GB HBM3", "H100-SXM"},
        {"NVIDIA GH200 480GB", "GH200-96"},
        {"NVIDIA TITAN X (Pascal)", "TITAN-X-Pascal"},
        {"a10", "A10"}, /* A100 begins so, too */
        {"t4", "T4"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_string_equal(find(names[i][0])->name, names[i][1]);
}

TEST_CASE(names_of_several_are_answered_with_all_of_them_) {
    const gpu *g = NULL;
    assert_int_equal(gpu_find("A100", &g), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "GPU 'A100' may be A100-40, A100-80-PCIe, A100-80-SXM: name one of them");
    assert_int_equal(gpu_find("a100 80gb", &g), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "GPU 'a100 80gb' may be A100-80-PCIe, A100-80-SXM: name one of them");
    assert_null(g);
}

TEST_CASE(names_that_are_not_known_are_refused_and_near_ones_suggested_) {
    static const char *const names[][2] = {
        {"RTX-4091", "(did you mean RTX-4090?)"}, {"h101", "(did you mean H100?)"}, {"b2", "(did you mean B200?)"}};
    const gpu *g = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(gpu_find(names[i][0], &g), MM_ERR_NOT_FOUND);
        if (!strstr(mm_last_error(), names[i][1])) fail_msg("%s", mm_last_error());
    }
    static const char *const others[] = {"", "-", "nvidia", "zzz",
                                         "a name that is longer than any name in the table, by far, and means nothing"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(gpu_find(others[i], &g), MM_ERR_NOT_FOUND);
        assert_null(strstr(mm_last_error(), "did you mean"));
    }
}

TEST_CASE(each_name_is_one_gpus_and_each_row_says_what_it_must_) {
    for (size_t i = 0; i < gpu_table_n; i++) {
        const gpu *g = &gpu_table[i];
        assert_ptr_equal(find(g->name), g);
        assert_true(g->memory_gib > 0 && g->bandwidth_gb_per_s > 0 && g->link_gb_per_s > 0 && g->fp32_tflops > 0);
        assert_true(g->source[0]);
        assert_true(gpu_budget_bytes(g) > 0);
        assert_true(strlen(g->name) + strlen("-est.") < MACHINE_NAME_CAPACITY);
    }
    for (size_t i = 0; i < gpu_assumptions_n; i++) assert_true(gpu_assumptions[i].source[0]);
}

TEST_CASE(every_gpu_gives_a_whole_machine_) {
    for (size_t i = 0; i < gpu_table_n; i++) {
        facts_source source;
        expect_ok(facts_source_open_gpu(gpu_table[i].name, &source));
        assert_true(source.is_machine);
        assert_string_equal(facts_source_estimate(&source), GPU_ESTIMATED);
        const bool bf16 = gpu_has_bf16(&gpu_table[i]);
        assert_int_equal(source.machine.lacks[MM_BF16], !bf16);
        if (bf16) assert_true(source.machine.rates[MM_BF16].conv >= source.machine.rates[MM_F32].conv / 2);
        assert_true(source.machine.n_codecs >= 11);
        facts_source_close(&source);
    }
}

static void near_to(const char *what, double value, double expected) {
    if (fabs(value - expected) > 0.01 * expected) fail_msg("%s is %g, not %g", what, value, expected);
}

TEST_CASE(the_measured_machines_come_back_from_their_names_) {
    facts_source h100, titanx;
    expect_ok(facts_source_open("H100-SXM", &h100)); /* there is no such file */
    expect_ok(facts_source_open("titan x maxwell", &titanx));
    /* tools/facts/h100.json */
    near_to("conv of f32", h100.machine.rates[MM_F32].conv, 1.6e14);
    near_to("linear of f32", h100.machine.rates[MM_F32].linear, 2.5e14);
    near_to("linear of bf16", h100.machine.rates[MM_BF16].linear, 6.5e14);
    near_to("attention of bf16", h100.machine.rates[MM_BF16].attention, 2.4e14);
    near_to("memory", h100.machine.memory_bytes_per_s, 2.97e12);
    near_to("link", (double)h100.machine.out_bytes_per_s, 54.9e9);
    near_to("both ways", (double)h100.machine.in_both_bytes_per_s, 43.7e9);
    assert_true(h100.machine.contention.known);
    /* tools/facts/titanx.json */
    near_to("conv", titanx.machine.rates[MM_F32].conv, 3.3e12);
    near_to("winograd", titanx.machine.rates[MM_F32].winograd, 6.6e12);
    near_to("memory", titanx.machine.memory_bytes_per_s, 2.5e11);
    near_to("link", (double)titanx.machine.out_bytes_per_s, 12e9);
    assert_false(titanx.machine.contention.known);
    facts_source_close(&h100);
    facts_source_close(&titanx);
}

/* Where the peak of TF32 is no higher than that of fp32, products on CUDA cores are faster. */
TEST_CASE(f32_maps_take_the_faster_units_) {
    facts_source a100, rtx;
    expect_ok(facts_source_open_gpu("A100-40", &a100));
    expect_ok(facts_source_open_gpu("RTX-3090", &rtx));
    near_to("A100's", a100.machine.rates[MM_F32].conv, 0.323 * 156e12);
    near_to("RTX 3090's", rtx.machine.rates[MM_F32].conv, 0.5 * 35.6e12);
    facts_source_close(&a100);
    facts_source_close(&rtx);
}

TEST_CASE(memory_is_less_than_sold_by_error_correction_and_driver_) {
    near_to("T4", (double)gpu_memory_bytes(find("T4")) / 0x1p30, 14.75);     /* with error correction */
    near_to("4090", (double)gpu_memory_bytes(find("4090")) / 0x1p30, 23.64); /* as PyTorch says */
    near_to("A100", (double)gpu_memory_bytes(find("A100-40")), 42405855232.0);
    near_to("H100", (double)gpu_memory_bytes(find("H100-SXM")), 85017493504.0);
    assert_int_equal(gpu_memory_bytes(find("T4")) - gpu_budget_bytes(find("T4")), INT64_C(1) << 30);
}
