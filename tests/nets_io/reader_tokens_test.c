/* SPDX-License-Identifier: MIT */
/* Texts and tokens: samples follow each other, the label of a token is the next token, the last tenth is for
 * testing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/io/reader.h"
#include "tests/nets_io/scratch.h"

enum { CONTEXT = 7, TOKENS = 1000 };

static char dir[PATH_MAX], path[PATH_MAX], spec[PATH_MAX + 16];

static uint8_t byte_at(int64_t i) { return (uint8_t)(i * 37 % 251); }

static void write_text(const char *kind, int64_t n, int64_t each) {
    uint8_t *bytes = calloc((size_t)(n * each) + 1, 1);
    assert_non_null(bytes);
    for (int64_t i = 0; i < n; i++) bytes[i * each] = byte_at(i);
    snprintf(spec, sizeof spec, "%s:%s", kind, path);
    scratch_write(path, bytes, (size_t)(n * each));
    free(bytes);
}

static int setup(void **state) {
    (void)state;
    scratch_create(dir);
    scratch_join(dir, "text", path);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    scratch_remove(dir);
    return 0;
}

static nets_reader_options options_of(int64_t vocabulary, nets_split split) {
    return (nets_reader_options){
        .split = split,
        .batch = 4,
        .seed = 1,
        .wanted = {.height = 1, .width = CONTEXT, .channels = 1, .classes = vocabulary, .tokens = true},
        .label_map = {1, CONTEXT}};
}

static nets_reader *open_reader(int64_t vocabulary, nets_split split) {
    const nets_reader_options options = options_of(vocabulary, split);
    nets_reader *reader;
    if (nets_reader_create(spec, &options, &reader) != MM_OK) fail_msg("%s", mm_last_error());
    return reader;
}

static void expect_refused(int64_t vocabulary, nets_split split, mm_status status, const char *message) {
    const nets_reader_options options = options_of(vocabulary, split);
    nets_reader *reader;
    char expected[PATH_MAX + 256];
    assert_int_equal(nets_reader_create(spec, &options, &reader), status);
    snprintf(expected, sizeof expected, "%s: %s", path, message);
    assert_string_equal(mm_last_error(), expected);
}

/* Reads an epoch; checks that it has each sample in [first, first + samples * CONTEXT] once. */
static void expect_epoch(nets_reader *reader, int64_t first, bool in_order) {
    nets_reader_size size;
    nets_batch batch;
    int64_t seen[TOKENS / CONTEXT] = {0}, at = 0;
    nets_reader_size_get(reader, &size);
    do {
        assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
        for (int64_t i = 0; i < batch.n; i++, at++) {
            const float *tokens = batch.images + i * CONTEXT;
            const int32_t *labels = batch.labels + i * CONTEXT;
            int64_t sample = 0;
            while (sample < size.samples && (float)byte_at(first + sample * CONTEXT) != tokens[0]) sample++;
            assert_true(sample < size.samples);
            assert_true(!in_order || sample == at);
            seen[sample]++;
            for (int64_t k = 0; k < CONTEXT; k++) {
                assert_true(tokens[k] == (float)byte_at(first + sample * CONTEXT + k));
                assert_int_equal(labels[k], byte_at(first + sample * CONTEXT + k + 1));
            }
        }
    } while (!batch.epoch_end);
    assert_int_equal(at, size.samples);
    for (int64_t i = 0; i < size.samples; i++) assert_int_equal(seen[i], 1);
}

static void an_epoch_reads_each_token_of_its_part_once(void **state) {
    static const char *const kinds[] = {"text", "tokens"};
    (void)state;
    for (int64_t each = 1; each <= 2; each++) {
        write_text(kinds[each - 1], TOKENS, each);
        nets_reader *train = open_reader(256, NETS_SPLIT_TRAIN), *test = open_reader(256, NETS_SPLIT_TEST);
        nets_reader_size size;
        nets_reader_size_get(train, &size);
        assert_int_equal(size.samples, (TOKENS * 9 / 10 - 1) / CONTEXT);
        assert_int_equal(size.labels, CONTEXT);
        nets_reader_size_get(test, &size);
        assert_int_equal(size.samples, (TOKENS / 10 - 1) / CONTEXT);
        expect_epoch(train, 0, false);
        expect_epoch(test, TOKENS * 9 / 10, true);
        nets_reader_destroy(train);
        nets_reader_destroy(test);
    }
}

static void what_cannot_be_read_as_tokens_is_refused(void **state) {
    (void)state;
    write_text("text", 8, 1);
    expect_refused(256, NETS_SPLIT_TEST, MM_ERR_INVALID,
                   "has 8 tokens, of which evaluation takes 0: too short for a context of 7 and one token more");
    write_text("text", 7, 1);
    expect_refused(256, NETS_SPLIT_TRAIN, MM_ERR_INVALID,
                   "has 7 tokens, of which training takes 7: too short for a context of 7 and one token more");
    write_text("tokens", 100, 2);
    expect_refused(200, NETS_SPLIT_TRAIN, MM_ERR_INVALID,
                   "token 6 is 222, must be from 0 to 199: the network has a vocabulary of 200");
    scratch_write(path, "odd", 3);
    expect_refused(200, NETS_SPLIT_TRAIN, MM_ERR_FORMAT, "has 3 bytes, must be of 16-bit tokens");
    const nets_reader_options images = {.batch = 1, .wanted = {8, 8, 3, 10, false}};
    nets_reader *reader;
    write_text("text", 100, 1);
    assert_int_equal(nets_reader_create(spec, &images, &reader), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "has tokens, each with a label; the network takes 8x8x3 and 1 labels"));
}

static void a_missing_file_is_named(void **state) {
    const nets_reader_options options = options_of(256, NETS_SPLIT_TRAIN);
    nets_reader *reader;
    (void)state;
    assert_int_equal(nets_reader_create("text:/nowhere/t", &options, &reader), MM_ERR_IO);
    assert_string_equal(mm_last_error(), "cannot read /nowhere/t: No such file or directory");
    assert_int_equal(nets_reader_create("text", &options, &reader), MM_ERR_INVALID);
}

static void synthetic_tokens_are_of_the_vocabulary_and_can_be_learned(void **state) {
    nets_batch batch;
    int64_t follow = 0, n = 0;
    (void)state;
    snprintf(spec, sizeof spec, "synthetic:samples=64");
    nets_reader *reader = open_reader(50, NETS_SPLIT_TRAIN);
    do {
        assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
        for (int64_t i = 0; i < batch.n * CONTEXT; i++, n++) {
            const int64_t token = (int64_t)batch.images[i];
            assert_true(token >= 0 && token < 50 && (float)token == batch.images[i]);
            assert_true(batch.labels[i] >= 0 && batch.labels[i] < 50);
            follow += batch.labels[i] == (5 * token + 3) % 50;
        }
    } while (!batch.epoch_end);
    assert_true(follow > n * 3 / 4);
    nets_reader_destroy(reader);
}

/* A sample of one token has one label, as an image has. */
static void a_context_of_one_token_has_the_next_token_as_its_label(void **state) {
    static const char *const kinds[] = {"text", "tokens", "synthetic"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        const bool synthetic = k == 2;
        nets_reader_options options = options_of(256, NETS_SPLIT_TEST);
        nets_reader_size size;
        nets_reader *reader;
        nets_batch batch;
        int64_t follow = 0, n = 0;
        options.wanted.width = 1;
        memset(options.label_map, 0, sizeof options.label_map);
        write_text(kinds[k], TOKENS, 1 + (k == 1));
        if (synthetic) snprintf(spec, sizeof spec, "synthetic:samples=256");
        assert_int_equal(nets_reader_create(spec, &options, &reader), MM_OK);
        nets_reader_size_get(reader, &size);
        assert_int_equal(size.labels, 1);
        do {
            assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
            for (int64_t i = 0; i < batch.n; i++, n++) {
                const int64_t token = (int64_t)batch.images[i];
                assert_true((float)token == batch.images[i]);
                assert_true(synthetic || token == byte_at(TOKENS * 9 / 10 + n));
                follow += batch.labels[i] == (synthetic ? (5 * token + 3) % 256 : byte_at(TOKENS * 9 / 10 + n + 1));
            }
        } while (!batch.epoch_end);
        assert_int_equal(n, size.samples);
        assert_true(synthetic ? follow > n / 2 : follow == n);
        nets_reader_destroy(reader);
    }
}

/* Such as a network that tells a text's kind. */
static void a_row_of_synthetic_tokens_may_have_one_label(void **state) {
    nets_reader_options options = options_of(50, NETS_SPLIT_TRAIN);
    nets_reader *reader;
    nets_batch batch;
    (void)state;
    memset(options.label_map, 0, sizeof options.label_map);
    assert_int_equal(nets_reader_create("synthetic:samples=8", &options, &reader), MM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
        for (int64_t t = 0; t < batch.n * CONTEXT; t++) assert_true(batch.images[t] == (float)(int)batch.images[t]);
        for (int64_t t = 0; t < batch.n; t++) assert_in_range(batch.labels[t], 0, 49);
    }
    nets_reader_destroy(reader);
}

static void data_of_images_is_refused_for_a_network_of_tokens(void **state) {
    const nets_reader_options options = options_of(256, NETS_SPLIT_TRAIN);
    nets_reader *reader;
    (void)state;
    snprintf(spec, sizeof spec, "cifar10:%s", dir);
    assert_int_equal(nets_reader_create(spec, &options, &reader), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(),
                        "cifar10 has images, but the network wants tokens: give text:FILE or tokens:FILE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_reads_each_token_of_its_part_once),
        cmocka_unit_test(what_cannot_be_read_as_tokens_is_refused),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(synthetic_tokens_are_of_the_vocabulary_and_can_be_learned),
        cmocka_unit_test(a_context_of_one_token_has_the_next_token_as_its_label),
        cmocka_unit_test(a_row_of_synthetic_tokens_may_have_one_label),
        cmocka_unit_test(data_of_images_is_refused_for_a_network_of_tokens),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
