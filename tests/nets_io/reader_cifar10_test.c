/* SPDX-License-Identifier: MIT */
/* CIFAR-10's files: small ones through the source, full-sized sparse ones through the public functions. */
#include "nets/io/reader_source.h"
#include "tests/nets_io/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define RECORDS      6
#define RECORD_BYTES 3073
#define FILE_BYTES   INT64_C(30730000)

static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

typedef scratch_folder folder;

static int label_of(int file, int record) { return (file * 3 + record) % 10; }
static uint8_t value_of(int file, int record, int channel, int pixel) {
    return (uint8_t)(file * 41 + record * 17 + channel * 101 + pixel * 7);
}

static void write_small(const char *dir, int file) {
    uint8_t *bytes = malloc(RECORDS * RECORD_BYTES);
    char path[PATH_MAX];
    assert_non_null(bytes);
    for (int r = 0; r < RECORDS; r++) {
        bytes[r * RECORD_BYTES] = (uint8_t)label_of(file, r);
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 1024; p++) bytes[r * RECORD_BYTES + 1 + c * 1024 + p] = value_of(file, r, c, p);
    }
    scratch_write(scratch_join(dir, names[file], path), bytes, RECORDS * RECORD_BYTES);
    free(bytes);
}

static void expect_sample(nets_source *source, int64_t index, int file, int record) {
    static const double mean[] = {0.4914, 0.4822, 0.4465}, deviation[] = {0.2470, 0.2435, 0.2616};
    float image[3072];
    int32_t label = -1;
    assert_int_equal(source->ops->read(source, index, image, &label), MM_OK);
    assert_int_equal(label, label_of(file, record));
    for (int p = 0; p < 1024; p++)
        for (int c = 0; c < 3; c++) {
            double expected = (value_of(file, record, c, p) / 255.0 - mean[c]) / deviation[c];
            assert_true(fabs(image[p * 3 + c] - expected) < 1e-6);
        }
}

static void records_become_normalised_channels_last_images(void **state) {
    const char *dir = ((folder *)*state)->path;
    nets_source *source;
    for (int file = 0; file < 6; file++) write_small(dir, file);
    assert_int_equal(nets_source_cifar10_open(dir, NETS_SPLIT_TRAIN, RECORDS, &source), MM_OK);
    assert_int_equal(source->samples, 5 * RECORDS);
    assert_int_equal(source->augment_pad, 4);
    for (int64_t i = 0; i < source->samples; i++) expect_sample(source, i, (int)i / RECORDS, (int)i % RECORDS);
    source->ops->close(source);
    assert_int_equal(nets_source_cifar10_open(dir, NETS_SPLIT_TEST, RECORDS, &source), MM_OK);
    assert_int_equal(source->samples, RECORDS);
    for (int r = 0; r < RECORDS; r++) expect_sample(source, r, 5, r);
    source->ops->close(source);
}

static void the_archives_folder_is_found_inside(void **state) {
    const char *dir = ((folder *)*state)->path;
    char inner[PATH_MAX];
    nets_source *source;
    assert_int_equal(mkdir(scratch_join(dir, "cifar-10-batches-bin", inner), 0777), 0);
    write_small(inner, 5);
    assert_int_equal(nets_source_cifar10_open(dir, NETS_SPLIT_TEST, RECORDS, &source), MM_OK);
    expect_sample(source, 1, 5, 1);
    source->ops->close(source);
}

/* Expects that the 3rd record of the 2nd file cannot be read, with this message. */
static void expect_damage(nets_source *source, mm_status expected, const char *path, const char *what) {
    float image[3072];
    int32_t label;
    assert_int_equal(source->ops->read(source, RECORDS + 1, image, &label), MM_OK);
    assert_int_equal(source->ops->read(source, RECORDS + 2, image, &label), expected);
    assert_non_null(strstr(mm_last_error(), path));
    assert_non_null(strstr(mm_last_error(), what));
}

static void label_out_of_range_names_file_and_record(void **state) {
    const char *dir = ((folder *)*state)->path;
    nets_source *source;
    char path[PATH_MAX];
    for (int file = 0; file < 5; file++) write_small(dir, file);
    FILE *file = fopen(scratch_join(dir, names[1], path), "r+b");
    assert_non_null(file);
    fseek(file, 2 * RECORD_BYTES, SEEK_SET);
    fputc(10, file);
    fclose(file);
    assert_int_equal(nets_source_cifar10_open(dir, NETS_SPLIT_TRAIN, RECORDS, &source), MM_OK);
    expect_damage(source, MM_ERR_FORMAT, path, "record 2 has label 10, expected 0 to 9");
    source->ops->close(source);
}

static void file_that_shrinks_in_use_is_an_error(void **state) {
    const char *dir = ((folder *)*state)->path;
    nets_source *source;
    char path[PATH_MAX];
    for (int file = 0; file < 5; file++) write_small(dir, file);
    assert_int_equal(nets_source_cifar10_open(dir, NETS_SPLIT_TRAIN, RECORDS, &source), MM_OK);
    assert_int_equal(truncate(scratch_join(dir, names[1], path), 2 * RECORD_BYTES + 100), 0);
    expect_damage(source, MM_ERR_IO, path, "shrank");
    source->ops->close(source);
}

static void reader_over_full_files(void **state) {
    const char *dir = ((folder *)*state)->path;
    char path[PATH_MAX], spec[PATH_MAX + 16];
    for (int file = 0; file < 6; file++) scratch_write_sparse(scratch_join(dir, names[file], path), FILE_BYTES);
    snprintf(spec, sizeof spec, "cifar10:%s", dir);
    nets_reader_options options = {.batch = 128, .split = NETS_SPLIT_TRAIN, .wanted = {32, 32, 3, 10}};
    nets_reader *reader;
    nets_reader_size size;
    assert_int_equal(nets_reader_create(spec, &options, &reader), MM_OK);
    nets_reader_size_get(reader, &size);
    assert_int_equal(size.samples, 50000);
    assert_int_equal(size.batches, 391);
    assert_int_equal(size.last, 80);
    nets_batch batch;
    assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
    assert_int_equal(batch.n, 128);
    nets_reader_destroy(reader);

    options.wanted.height = 224;
    assert_int_equal(nets_reader_create(spec, &options, &reader), MM_ERR_INVALID);
    options.wanted.height = 0;
    options.wanted.classes = 1000;
    assert_int_equal(nets_reader_create(spec, &options, &reader), MM_ERR_INVALID);
}

static void expect_refused(const char *dir, nets_split split, mm_status expected, const char *path, const char *what) {
    char spec[PATH_MAX + 16];
    nets_reader_options options = {.batch = 128, .split = split};
    nets_reader *reader;
    snprintf(spec, sizeof spec, "cifar10:%s", dir);
    assert_int_equal(nets_reader_create(spec, &options, &reader), expected);
    const char *message = mm_last_error();
    assert_non_null(strstr(message, path));
    assert_non_null(strstr(message, what));
    assert_non_null(strstr(message, "tools/fetch-cifar10"));
    assert_non_null(strstr(message, "--data synthetic"));
    assert_null(strchr(message, '\n'));
}

static void missing_and_truncated_files_are_named_with_sizes_and_remedy(void **state) {
    const char *dir = ((folder *)*state)->path;
    char path[PATH_MAX], nowhere[PATH_MAX];
    scratch_join(dir, "nowhere", nowhere);
    expect_refused(nowhere, NETS_SPLIT_TRAIN, MM_ERR_IO, scratch_join(nowhere, names[0], path), "No such file");
    for (int file = 0; file < 6; file++)
        if (file != 3) scratch_write_sparse(scratch_join(dir, names[file], path), FILE_BYTES);
    expect_refused(dir, NETS_SPLIT_TRAIN, MM_ERR_IO, scratch_join(dir, names[3], path), "30730000");
    scratch_write_sparse(path, FILE_BYTES - 1);
    expect_refused(dir, NETS_SPLIT_TRAIN, MM_ERR_FORMAT, path, "expected 30730000 bytes, found 30729999");
    scratch_write_sparse(scratch_join(dir, names[5], path), 0);
    expect_refused(dir, NETS_SPLIT_TEST, MM_ERR_FORMAT, path, "expected 30730000 bytes, found 0");
}

static void folder_is_required(void **state) {
    (void)state;
    nets_reader_options options = {.batch = 128};
    nets_reader *reader;
    assert_int_equal(nets_reader_create("cifar10", &options, &reader), MM_ERR_INVALID);
    assert_int_equal(nets_reader_create("cifar10:", &options, &reader), MM_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_become_normalised_channels_last_images, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(the_archives_folder_is_found_inside, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(label_out_of_range_names_file_and_record, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(file_that_shrinks_in_use_is_an_error, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(reader_over_full_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(missing_and_truncated_files_are_named_with_sizes_and_remedy, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(folder_is_required),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
