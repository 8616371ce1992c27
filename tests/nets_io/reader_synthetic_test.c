/* SPDX-License-Identifier: MIT */
#include "nets/io/reader.h"
#include "tests/core/test_case.h"

#include <stdlib.h>
#include <string.h>

static nets_reader *open_reader(const char *spec, nets_reader_options options) {
    nets_reader *reader;
    assert_int_equal(nets_reader_create(spec, &options, &reader), MM_OK);
    return reader;
}

static nets_batch next_of(nets_reader *reader) {
    nets_batch batch;
    assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
    return batch;
}

TEST_CASE(defaults_are_those_of_a_small_cifar10) {
    nets_reader_size train, test;
    nets_reader *reader = open_reader("synthetic", (nets_reader_options){.batch = 64});
    nets_reader_size_get(reader, &train);
    nets_reader_destroy(reader);
    reader = open_reader("synthetic", (nets_reader_options){.batch = 64, .split = NETS_SPLIT_TEST});
    nets_reader_size_get(reader, &test);
    nets_reader_destroy(reader);
    assert_int_equal(train.samples, 5000);
    assert_int_equal(test.samples, 1000);
    assert_int_equal(train.image.height, 32);
    assert_int_equal(train.image.width, 32);
    assert_int_equal(train.image.channels, 3);
    assert_int_equal(train.image.classes, 10);
}

TEST_CASE(any_shape_is_filled_with_finite_values) {
    static const nets_image_shape shapes[] = {
        {1, 1, 1, 1, false}, {1, 7, 2, 3, false}, {5, 3, 4, 7, false}, {17, 2, 1, 1000, false}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        nets_reader_options options = {.batch = 9, .split = NETS_SPLIT_TEST, .wanted = shapes[s]};
        nets_reader *reader = open_reader("synthetic:samples=61", options);
        nets_reader_size size;
        nets_reader_size_get(reader, &size);
        assert_int_equal(size.samples, 13);
        assert_memory_equal(&size.image, &shapes[s], offsetof(nets_image_shape, tokens)); /* padding follows tokens */
        assert_int_equal(size.image.tokens, shapes[s].tokens);
        nets_batch batch = next_of(reader);
        for (int64_t i = 0; i < 9 * shapes[s].height * shapes[s].width * shapes[s].channels; i++)
            assert_true(batch.images[i] >= -2 && batch.images[i] < 2);
        for (int64_t i = 0; i < 9; i++) assert_int_equal(batch.labels[i], i % shapes[s].classes);
        nets_reader_destroy(reader);
    }
}

TEST_CASE(data_is_the_same_for_every_seed_and_differs_between_splits) {
    enum { ELEMS = 32 * 32 * 3 };
    nets_reader *first =
        open_reader("synthetic", (nets_reader_options){.batch = 10, .split = NETS_SPLIT_TEST, .seed = 1});
    nets_reader *second =
        open_reader("synthetic", (nets_reader_options){.batch = 10, .split = NETS_SPLIT_TEST, .seed = 2});
    nets_batch a = next_of(first), b = next_of(second);
    assert_memory_equal(a.images, b.images, 10 * ELEMS * sizeof(float));

    /* All training samples in one batch, which includes sample 0. */
    nets_reader *train = open_reader("synthetic:samples=20", (nets_reader_options){.batch = 20});
    nets_batch c = next_of(train);
    int of_class_0 = 0;
    for (int i = 0; i < 20; i++) {
        assert_memory_not_equal(a.images, c.images + i * ELEMS, ELEMS * sizeof(float));
        of_class_0 += c.labels[i] == 0;
    }
    assert_int_equal(of_class_0, 2);
    nets_reader_destroy(first);
    nets_reader_destroy(second);
    nets_reader_destroy(train);
}

/* The class whose mean training image is nearest. */
static int nearest(const float *image, const float *means, int64_t elems, int classes) {
    int best = -1;
    double best_distance = 0;
    for (int k = 0; k < classes; k++) {
        double distance = 0;
        for (int64_t i = 0; i < elems; i++) {
            double d = image[i] - means[k * elems + i];
            distance += d * d;
        }
        if (best < 0 || distance < best_distance) {
            best = k;
            best_distance = distance;
        }
    }
    return best;
}

TEST_CASE(classes_learned_from_training_are_found_in_test) {
    enum { SIDE = 16, ELEMS = SIDE * SIDE * 3, CLASSES = 8, PER_CLASS = 50 };
    nets_image_shape shape = {SIDE, SIDE, 3, CLASSES, false};
    float *means = calloc(CLASSES * ELEMS, sizeof *means);
    assert_non_null(means);
    nets_reader *train = open_reader("synthetic:samples=400", (nets_reader_options){.batch = 32, .wanted = shape});
    for (nets_batch batch = {0}; !batch.epoch_end;) {
        batch = next_of(train);
        for (int64_t i = 0; i < batch.n; i++)
            for (int e = 0; e < ELEMS; e++)
                means[batch.labels[i] * ELEMS + e] += batch.images[i * ELEMS + e] / PER_CLASS;
    }
    nets_reader_destroy(train);
    nets_reader *test = open_reader("synthetic:samples=400",
                                    (nets_reader_options){.batch = 32, .split = NETS_SPLIT_TEST, .wanted = shape});
    int right = 0, all = 0;
    for (nets_batch batch = {0}; !batch.epoch_end;) {
        batch = next_of(test);
        for (int64_t i = 0; i < batch.n; i++, all++)
            right += nearest(batch.images + i * ELEMS, means, ELEMS, CLASSES) == batch.labels[i];
    }
    nets_reader_destroy(test);
    free(means);
    assert_int_equal(all, 80);
    assert_in_range(right, 78, 80);
}

/* Four test samples of 24x20x2 in 3 classes with this map of labels. */
static nets_batch open_map(int64_t height, int64_t width, nets_reader **reader_out) {
    const nets_reader_options options = {
        .batch = 4, .split = NETS_SPLIT_TEST, .wanted = {24, 20, 2, 3}, .label_map = {height, width}};
    *reader_out = open_reader("synthetic:samples=20", options);
    nets_reader_size size;
    nets_reader_size_get(*reader_out, &size);
    assert_int_equal(size.labels, height * width);
    return next_of(*reader_out);
}

/* Noise is in [-1, 1), so pixels of one class differ by less than 2 in every channel, in every image. */
TEST_CASE(pixels_of_one_label_are_of_one_colour) {
    nets_reader *reader;
    nets_batch batch = open_map(24, 20, &reader);
    int counts[3] = {0};
    for (int c = 0; c < 2; c++) {
        float low[3] = {9, 9, 9}, high[3] = {-9, -9, -9};
        double sum[3] = {0};
        memset(counts, 0, sizeof counts);
        for (int64_t i = 0; i < 4 * 24 * 20; i++) {
            int32_t label = batch.labels[i];
            assert_in_range(label, 0, 2);
            float value = batch.images[2 * i + c];
            low[label] = value < low[label] ? value : low[label];
            high[label] = value > high[label] ? value : high[label];
            sum[label] += (double)value;
            counts[label]++;
        }
        for (int k = 0; k < 3; k++) {
            assert_true(counts[k] > 0 && high[k] - low[k] < 2);
            double colour = sum[k] / counts[k];
            assert_true(high[k] - colour < 1.2 && colour - low[k] < 1.2);
        }
    }
    nets_reader_destroy(reader);
}

TEST_CASE(a_smaller_map_has_the_labels_of_the_middle) {
    nets_reader *whole, *middle;
    nets_batch a = open_map(24, 20, &whole), b = open_map(9, 14, &middle);
    assert_memory_equal(a.images, b.images, 4 * 24 * 20 * 2 * sizeof(float));
    for (int n = 0; n < 4; n++)
        for (int y = 0; y < 9; y++)
            assert_memory_equal(b.labels + (n * 9 + y) * 14, a.labels + (n * 24 + y + 7) * 20 + 3,
                                14 * sizeof(int32_t));
    nets_reader_destroy(whole);
    nets_reader_destroy(middle);
}

TEST_CASE(maps_larger_than_the_image_are_refused) {
    static const int64_t maps[][2] = {{33, 32}, {32, 33}, {0, 4}, {4, 0}, {-1, -1}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        const nets_reader_options options = {.batch = 1, .label_map = {maps[i][0], maps[i][1]}};
        nets_reader *reader;
        assert_int_equal(nets_reader_create("synthetic", &options, &reader), MM_ERR_INVALID);
        assert_non_null(strstr(mm_last_error(), "images of 32x32"));
    }
}

TEST_CASE(bad_arguments_are_refused) {
    static const char *const specs[] = {"synthetic:",
                                        "synthetic:samples=",
                                        "synthetic:samples=0",
                                        "synthetic:samples=-3",
                                        "synthetic:samples=9x",
                                        "synthetic:count=3",
                                        "synthetic:samples=99999999999999999999"};
    nets_reader_options options = {.batch = 1};
    nets_reader *reader;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        assert_int_equal(nets_reader_create(specs[i], &options, &reader), MM_ERR_INVALID);
    static const nets_image_shape shapes[] = {
        {-1, 1, 1, 1, false}, {INT64_MAX, INT64_MAX, 1, 1, false}, {1, 1, 1, -1, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        options.wanted = shapes[i];
        assert_int_equal(nets_reader_create("synthetic", &options, &reader), MM_ERR_INVALID);
    }
}
