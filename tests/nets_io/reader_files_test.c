/* SPDX-License-Identifier: MIT */
/* Users' own data: .npy files written here, byte for byte as NumPy writes them. */
#include "nets/io/npy.h"
#include "nets/io/reader_random.h"
#include "nets/io/reader_source.h"
#include "tests/nets_io/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ROUNDS = 200,
    IMAGES = 10,
    HEIGHT = 4,
    WIDTH = 3,
    CHANNELS = 2,
    PIXELS = HEIGHT * WIDTH,
    ELEMS = PIXELS * CHANNELS
};

typedef struct folder {
    char path[PATH_MAX], images[PATH_MAX], labels[PATH_MAX], argument[2 * PATH_MAX], spec[2 * PATH_MAX + 8];
    int n_fds;
} folder;

static int setup(void **state) {
    folder *f = malloc(sizeof *f);
    if (!f) return -1;
    f->n_fds = scratch_count("/proc/self/fd");
    scratch_create(f->path);
    scratch_join(f->path, "x.npy", f->images);
    scratch_join(f->path, "y.npy", f->labels);
    snprintf(f->argument, sizeof f->argument, "%s,%s", f->images, f->labels);
    snprintf(f->spec, sizeof f->spec, "files:%s", f->argument);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    folder *f = *state;
    scratch_remove(f->path);
    int left = scratch_count("/proc/self/fd") - f->n_fds;
    free(f);
    return left;
}

/* Writes a .npy file of version `major`, its header padded with spaces to a multiple of 64 bytes as NumPy does. */
static void write_npy(const char *path, int major, const char *dict, const void *elems, size_t n_bytes) {
    size_t before = major == 1 ? 10 : 12, length = (before + strlen(dict) + 1 + 63) / 64 * 64 - before;
    uint8_t *bytes = malloc(before + length + n_bytes);
    assert_non_null(bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)major, bytes[7] = 0;
    bytes[8] = (uint8_t)(length & 255), bytes[9] = (uint8_t)(length >> 8);
    if (major > 1) bytes[10] = bytes[11] = 0;
    memset(bytes + before, ' ', length);
    memcpy(bytes + before, dict, strlen(dict));
    bytes[before + length - 1] = '\n';
    memcpy(bytes + before + length, elems, n_bytes);
    scratch_write(path, bytes, before + length + n_bytes);
    free(bytes);
}

static const char IMAGES_DICT[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (10, 4, 3, 2), }";
static const char LABELS_DICT[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (10,), }";
static const char LONG_LABELS_DICT[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (10,), }";
static const char SMALL_LABELS_DICT[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (10,), }";
static const char MAPS_DICT[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (10, 4, 3), }";

static uint8_t pixel_of(int image, int elem) { return (uint8_t)(image * 25 + elem * 7); }
static int32_t label_of(int image) { return image % 5; }
static int32_t map_label_of(int image, int y, int x) { return (image + 2 * y + x) % 5; }

static void write_images(const folder *f, int major) {
    uint8_t images[IMAGES][ELEMS];
    for (int i = 0; i < IMAGES; i++)
        for (int e = 0; e < ELEMS; e++) images[i][e] = pixel_of(i, e);
    write_npy(f->images, major, IMAGES_DICT, images, sizeof images);
}

static void write_labels(const folder *f, int major) {
    int32_t labels[IMAGES];
    for (int i = 0; i < IMAGES; i++) labels[i] = label_of(i);
    write_npy(f->labels, major, LABELS_DICT, labels, sizeof labels);
}

static void write_maps(const folder *f) {
    int32_t maps[IMAGES][HEIGHT][WIDTH];
    for (int i = 0; i < IMAGES; i++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++) maps[i][y][x] = map_label_of(i, y, x);
    write_npy(f->labels, 1, MAPS_DICT, maps, sizeof maps);
}

static const nets_reader_options WANTED = {
    .batch = 4,
    .seed = 3,
    .wanted = {.height = HEIGHT, .width = WIDTH, .channels = CHANNELS, .classes = 5},
};

static void expect_image(const float *image, int index) {
    for (int e = 0; e < ELEMS; e++) assert_true(image[e] == (float)(pixel_of(index, e) / 127.5 - 1));
}

/* ---------------------------------------------------------------- what is good */

static void both_versions_become_normalised_images(void **state) {
    const folder *f = *state;
    for (int major = 1; major <= 2; major++) {
        nets_source *source;
        write_images(f, major);
        write_labels(f, 3 - major);
        assert_int_equal(nets_source_files.open(f->argument, &WANTED, &source), MM_OK);
        assert_int_equal(source->samples, IMAGES);
        assert_int_equal(source->augment_pad, 0);
        for (int i = 0; i < IMAGES; i++) {
            float image[ELEMS];
            int32_t label = -1;
            assert_int_equal(source->ops->read(source, i, image, &label), MM_OK);
            assert_int_equal(label, label_of(i));
            expect_image(image, i);
        }
        source->ops->close(source);
    }
}

/* The 2x2 labels are the middle of a map of 4x3: before the middle as many rows and columns are cut off as behind it,
 * or one fewer. */
static void labels_of_pixels_are_the_middles(void **state) {
    const folder *f = *state;
    nets_reader_options options = WANTED;
    options.label_map[0] = options.label_map[1] = 2;
    nets_source *source;
    write_images(f, 1);
    write_maps(f);
    assert_int_equal(nets_source_files.open(f->argument, &options, &source), MM_OK);
    for (int i = 0; i < IMAGES; i++) {
        float image[ELEMS];
        int32_t labels[4];
        assert_int_equal(source->ops->read_map(source, i, options.label_map, image, labels), MM_OK);
        expect_image(image, i);
        for (int k = 0; k < 4; k++) assert_int_equal(labels[k], map_label_of(i, 1 + k / 2, k % 2));
    }
    source->ops->close(source);
}

/* If no shape is asked for, it is the file's, and the greatest label gives the number of classes. */
static void shape_and_classes_come_from_the_files(void **state) {
    const folder *f = *state;
    nets_reader *reader;
    nets_reader_size size;
    write_images(f, 1);
    write_labels(f, 1);
    assert_int_equal(nets_reader_create(f->spec, &(nets_reader_options){.batch = 3}, &reader), MM_OK);
    nets_reader_size_get(reader, &size);
    assert_int_equal(size.samples, IMAGES);
    assert_int_equal(size.image.height, HEIGHT);
    assert_int_equal(size.image.channels, CHANNELS);
    assert_int_equal(size.image.classes, 5);
    nets_reader_destroy(reader);
    assert_false(nets_reader_has_test(f->spec));
    assert_true(nets_reader_has_test("synthetic"));
}

/* Which image batch->images[i] is, by its first element. */
static int index_of(const nets_batch *batch, int64_t i) {
    for (int image = 0; image < IMAGES; image++)
        if (batch->images[i * ELEMS] == (float)(pixel_of(image, 0) / 127.5 - 1)) return image;
    fail();
    return -1;
}

static void training_is_shuffled_by_seed_and_place_and_testing_goes_in_order(void **state) {
    const folder *f = *state;
    nets_reader *reader;
    nets_batch batch;
    nets_reader_options options = WANTED;
    int order[2][IMAGES], n = 0;
    write_images(f, 1);
    write_labels(f, 1);
    assert_int_equal(nets_reader_create(f->spec, &options, &reader), MM_OK);
    for (int b = 0; b < 6; b++) {
        assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
        for (int64_t i = 0; i < batch.n; i++, n++) {
            order[n / IMAGES][n % IMAGES] = index_of(&batch, i);
            assert_int_equal(batch.labels[i], label_of(index_of(&batch, i)));
        }
    }
    assert_int_equal(n, 2 * IMAGES);
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen = 0;
        for (int i = 0; i < IMAGES; i++) seen |= 1 << order[epoch][i];
        assert_int_equal(seen, (1 << IMAGES) - 1);
    }
    assert_int_equal(nets_reader_seek(reader, 1, 1), MM_OK);
    assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(index_of(&batch, i), order[1][4 + i]);
    nets_reader_destroy(reader);
    options.split = NETS_SPLIT_TEST;
    assert_int_equal(nets_reader_create(f->spec, &options, &reader), MM_OK);
    assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(index_of(&batch, i), i);
    nets_reader_destroy(reader);
}

/* ---------------------------------------------------------------- what is not */

/* One line names the file. */
static void expect_refused(const folder *f, const nets_reader_options *options, mm_status expected, const char *path,
                           const char *message) {
    nets_reader *reader;
    assert_int_equal(nets_reader_create(f->spec, options, &reader), expected);
    assert_null(strchr(mm_last_error(), '\n'));
    if (!strstr(mm_last_error(), path) || !strstr(mm_last_error(), message))
        fail_msg("it says '%s', expected '%s: %s'", mm_last_error(), path, message);
}

static void faults_of_the_arrays_are_refused_in_one_line(void **state) {
    const folder *f = *state;
    uint8_t elems[IMAGES * ELEMS + 1] = {0};
    static const struct {
        int major;
        const char *dict;
        size_t n_bytes;
        const char *message;
    } bad[] = {
        {3, IMAGES_DICT, 240, "is no .npy file of version 1 or 2: it is of another version"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 4, 3, 2), }", 240,
         "has elements of type '<f4', must be uint8 ('|u1'): save array.astype('|u1')"},
        {1, "{'descr': '|u1', 'fortran_order': True, 'shape': (10, 4, 3, 2), }", 240, "is in Fortran order"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (240,), }", 240,
         "has shape [240], must be [images, height, width, channels], or without channels"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 4, 3, 2), }", 0, "has shape [0, 4, 3, 2], must be"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }", 1, "has shape [], must be"},
        {1, IMAGES_DICT, 239, "has 367 bytes, its shape [10, 4, 3, 2] of uint8 takes 368"},
        {1, IMAGES_DICT, 241, "has 369 bytes, its shape [10, 4, 3, 2] of uint8 takes 368"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296, 3, 2), }", 240,
         "its shape [4294967296, 4294967296, 3, 2] is too large for any file"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,), }", 240, "its header is no"},
        {1, "{'descr': '|u1', 'fortran_order': False, }", 240, "its header is not that of an array of numbers"},
        {1, "{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (240,), }", 240,
         "its header is not that of an array"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }", 1, "its header is no"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (10, 2, 4, 3), }", 240,
         "the network wants 4x3x2 in 5; its channels come first: save numpy.transpose(array, (0, 2, 3, 1))"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (10, 3, 4, 2), }", 240,
         "has images of 3x4x2 in 5 classes, the network wants 4x3x2 in 5"},
    };
    write_labels(f, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_npy(f->images, bad[i].major, bad[i].dict, elems, bad[i].n_bytes);
        mm_status expected = strstr(bad[i].message, "network") ? MM_ERR_INVALID : MM_ERR_FORMAT;
        expect_refused(f, &WANTED, expected, f->images, bad[i].message);
    }
    scratch_write(f->images, "PNG", 3);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->images, "it is too short");
    scratch_write(f->images, "\x93NUMPX\1\0\4\0{}  ", 14);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->images, "it does not begin like one");
    scratch_write(f->images, "\x93NUMPY\1\0\5\0{}  ", 14);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->images, "it ends within its header");
    scratch_write(f->images, "\x93NUMPY\2\0\0\0\1\0{}", 14);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->images, "its header is too long");
    unlink(f->images);
    expect_refused(f, &WANTED, MM_ERR_IO, f->images, "No such file");
}

/* NumPy's default integer is int64; class numbers are often saved as uint8. */
static void labels_of_any_integer_type_are_the_same(void **state) {
    const folder *f = *state;
    nets_source *source;
    float image[ELEMS];
    int64_t wide[IMAGES];
    uint8_t small[IMAGES];
    for (int i = 0; i < IMAGES; i++) wide[i] = small[i] = (uint8_t)label_of(i);
    write_images(f, 1);
    for (int type = 0; type < 2; type++) {
        if (type == 0)
            write_npy(f->labels, 1, LONG_LABELS_DICT, wide, sizeof wide);
        else
            write_npy(f->labels, 1, SMALL_LABELS_DICT, small, sizeof small);
        assert_int_equal(nets_source_files.open(f->argument, &WANTED, &source), MM_OK);
        for (int i = 0; i < IMAGES; i++) {
            int32_t label = -1;
            assert_int_equal(source->ops->read(source, i, image, &label), MM_OK);
            assert_int_equal(label, label_of(i));
        }
        source->ops->close(source);
    }
}

static void images_without_channels_have_one(void **state) {
    const folder *f = *state;
    nets_reader_options wanted = WANTED;
    nets_source *source;
    float image[HEIGHT * WIDTH];
    int32_t label;
    uint8_t grey[IMAGES * HEIGHT * WIDTH];
    for (size_t i = 0; i < sizeof grey; i++) grey[i] = (uint8_t)i;
    wanted.wanted.channels = 1;
    write_npy(f->images, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (10, 4, 3), }", grey, sizeof grey);
    write_labels(f, 1);
    assert_int_equal(nets_source_files.open(f->argument, &wanted, &source), MM_OK);
    assert_int_equal(source->image.channels, 1);
    assert_int_equal(source->ops->read(source, 9, image, &label), MM_OK);
    assert_true(image[11] == (float)(119 / 127.5 - 1));
    source->ops->close(source);
}

static void labels_that_do_not_go_with_the_images_are_refused(void **state) {
    const folder *f = *state;
    int32_t labels[IMAGES * PIXELS + 1] = {0};
    nets_reader_options map = WANTED;
    map.label_map[0] = map.label_map[1] = 2;
    write_images(f, 1);
    static const int64_t large[IMAGES] = {[7] = (int64_t)1 << 32};
    write_npy(f->labels, 1, LONG_LABELS_DICT, large, sizeof large);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->labels, "image 7 has label 4294967296, must be from 0 to 4");
    write_npy(f->labels, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (10,), }", labels, 40);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->labels,
                   "has elements of type '<f4', must be uint8 ('|u1') or int32 ('<i4') or int64 ('<i8')");
    write_npy(f->labels, 1, "{'descr': '>i4', 'fortran_order': False, 'shape': (10,), }", labels, 40);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->labels, "has elements of type '>i4', must be uint8 ('|u1') or int32");
    write_npy(f->labels, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (11,), }", labels, 44);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->labels, "has labels for 11 images, ");
    write_maps(f);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->labels,
                   "has shape [10, 4, 3]; the network wants a label for each image");
    write_npy(f->labels, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (10, 3, 4), }", labels, 480);
    expect_refused(f, &map, MM_ERR_FORMAT, f->labels, "has labels of 3x4 pixels, the images of ");
    write_labels(f, 1);
    expect_refused(f, &map, MM_ERR_FORMAT, f->labels, "has shape [10]; the network wants a label for each pixel");
    labels[7] = 5;
    write_npy(f->labels, 1, LABELS_DICT, labels, 40);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->labels,
                   "image 7 has label 5, must be from 0 to 4: there are 5 classes");
    labels[7] = -1;
    write_npy(f->labels, 1, LABELS_DICT, labels, 40);
    expect_refused(f, &WANTED, MM_ERR_FORMAT, f->labels, "image 7 has label -1, must be from 0 to 4");
}

static void a_spec_that_is_not_two_paths_is_refused(void **state) {
    (void)state;
    static const char *const specs[] = {"files",        "files:",       "files:a.npy",
                                        "files:a.npy,", "files:,b.npy", "files:a,b,c"};
    nets_reader *reader;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        assert_int_equal(nets_reader_create(specs[i], &WANTED, &reader), MM_ERR_INVALID);
        assert_non_null(strstr(mm_last_error(), "files:IMAGES.npy,LABELS.npy"));
    }
}

static void a_file_that_changes_in_use_is_an_error(void **state) {
    const folder *f = *state;
    nets_source *source;
    float image[ELEMS];
    int32_t label, wrong = 99;
    write_images(f, 1);
    write_labels(f, 1);
    assert_int_equal(nets_source_files.open(f->argument, &WANTED, &source), MM_OK);
    FILE *file = fopen(f->labels, "r+b");
    assert_non_null(file);
    fseek(file, 128 + 4 * 2, SEEK_SET);
    fwrite(&wrong, sizeof wrong, 1, file);
    fclose(file);
    assert_int_equal(source->ops->read(source, 2, image, &label), MM_ERR_FORMAT);
    assert_non_null(strstr(mm_last_error(), "image 2 has label 99"));
    assert_int_equal(truncate(f->images, 128 + ELEMS), 0);
    assert_int_equal(source->ops->read(source, 0, image, &label), MM_OK);
    assert_int_equal(source->ops->read(source, 1, image, &label), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), "it shrank while in use"));
    source->ops->close(source);
}

static void damaged_headers_are_refused_or_read(void **state) {
    const folder *f = *state;
    size_t n_bytes;
    write_images(f, 2);
    write_labels(f, 1);
    uint8_t *good = scratch_read(f->images, &n_bytes);
    int refused = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t counter = 0;
        uint8_t bytes[1024];
        nets_npy npy;
        memcpy(bytes, good, n_bytes);
        for (uint64_t edits = 1 + nets_random_below(nets_random_at(round, counter++), 3); edits > 0; edits--) {
            size_t at = (size_t)nets_random_below(nets_random_at(round, counter++), 90);
            bytes[at] = (uint8_t)nets_random_below(nets_random_at(round, counter++), 256);
        }
        scratch_write(f->images, bytes, n_bytes);
        if (nets_npy_open(f->images, 1 << NETS_NPY_UINT8, &npy) == MM_OK) {
            nets_npy_close(&npy);
            continue;
        }
        refused++;
        assert_non_null(strstr(mm_last_error(), f->images));
    }
    assert_in_range(refused, ROUNDS / 2, ROUNDS - 1);
    free(good);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_versions_become_normalised_images, setup, teardown),
        cmocka_unit_test_setup_teardown(labels_of_pixels_are_the_middles, setup, teardown),
        cmocka_unit_test_setup_teardown(shape_and_classes_come_from_the_files, setup, teardown),
        cmocka_unit_test_setup_teardown(training_is_shuffled_by_seed_and_place_and_testing_goes_in_order, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(faults_of_the_arrays_are_refused_in_one_line, setup, teardown),
        cmocka_unit_test_setup_teardown(labels_of_any_integer_type_are_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(images_without_channels_have_one, setup, teardown),
        cmocka_unit_test_setup_teardown(labels_that_do_not_go_with_the_images_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_spec_that_is_not_two_paths_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_changes_in_use_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_headers_are_refused_or_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
