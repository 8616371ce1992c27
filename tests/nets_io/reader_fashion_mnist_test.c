/* SPDX-License-Identifier: MIT */
/* Fashion-MNIST's files: small ones through the source, plain and compressed, whole and damaged; full-sized ones
 * through the public functions. */
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
#include <zlib.h>

enum {
    SAMPLES = 5,
    PIXELS = 784,
    IMAGES_BYTES = 16 + SAMPLES * PIXELS,
    LABELS_BYTES = 8 + SAMPLES,
    FILE_CAPACITY = 8192
};

/* The content of a file, and its path. */
typedef struct content {
    uint8_t bytes[FILE_CAPACITY];
    size_t n_bytes;
    char path[PATH_MAX];
} content;

typedef struct folder {
    char path[PATH_MAX];
    content images, labels;
} folder;

static int setup(void **state) {
    folder *f = calloc(1, sizeof *f);
    if (!f) return -1;
    scratch_create(f->path);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    folder *f = *state;
    scratch_remove(f->path);
    free(f);
    return 0;
}

/* Pixel values. None is 0, and neighbouring ones differ. */
static uint8_t value_of(int64_t sample, int64_t y, int64_t x) {
    return (uint8_t)(1 + (sample * 41 + y * 28 + x) % 255);
}

static void content_save(const content *c) { scratch_write(c->path, c->bytes, c->n_bytes); }

static void content_compress(content *c) {
    uint8_t plain[FILE_CAPACITY];
    z_stream stream = {
        .next_in = plain, .avail_in = (uInt)c->n_bytes, .next_out = c->bytes, .avail_out = FILE_CAPACITY};
    memcpy(plain, c->bytes, c->n_bytes);
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    c->n_bytes = stream.total_out;
    assert_int_equal(deflateEnd(&stream), Z_OK);
}

static void contents_make(folder *f, const char *prefix, bool compressed) {
    static const uint8_t images_header[16] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 28, 0, 0, 0, 28};
    static const uint8_t labels_header[8] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
    char name[64];
    memcpy(f->images.bytes, images_header, sizeof images_header);
    memcpy(f->labels.bytes, labels_header, sizeof labels_header);
    for (int64_t i = 0; i < SAMPLES; i++) {
        f->labels.bytes[8 + i] = (uint8_t)(9 - i);
        for (int64_t p = 0; p < PIXELS; p++) f->images.bytes[16 + i * PIXELS + p] = value_of(i, p / 28, p % 28);
    }
    f->images.n_bytes = IMAGES_BYTES;
    f->labels.n_bytes = LABELS_BYTES;
    snprintf(name, sizeof name, "%s-images-idx3-ubyte%s", prefix, compressed ? ".gz" : "");
    scratch_join(f->path, name, f->images.path);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte%s", prefix, compressed ? ".gz" : "");
    scratch_join(f->path, name, f->labels.path);
    if (!compressed) return;
    content_compress(&f->images);
    content_compress(&f->labels);
}

/* Writes both files, whole. */
static folder *folder_fill(void **state, const char *prefix, bool compressed) {
    folder *f = *state;
    contents_make(f, prefix, compressed);
    content_save(&f->images);
    content_save(&f->labels);
    return f;
}

static mm_status source_open(const folder *f, nets_image_shape wanted, nets_source **source_out) {
    const nets_reader_options options = {.split = NETS_SPLIT_TRAIN, .batch = 1, .wanted = wanted};
    return nets_source_fashion_mnist_open(f->path, &options, SAMPLES, source_out);
}

/* How the image lies in the network's input. */
typedef struct expected {
    int64_t height, width, channels;
    int64_t top, left, side; /* of the image, in the input */
    int64_t enlarged, reduced;
} expected;

static double pixel_expected(const expected *e, int64_t sample, int64_t y, int64_t x) {
    double sum = 0;
    if (y < e->top || x < e->left || y >= e->top + e->side || x >= e->left + e->side) return (0 - 0.2860) / 0.3530;
    for (int64_t i = 0; i < e->reduced; i++)
        for (int64_t j = 0; j < e->reduced; j++)
            sum += value_of(sample, (y - e->top) / e->enlarged * e->reduced + i,
                            (x - e->left) / e->enlarged * e->reduced + j);
    return (sum / (double)(e->reduced * e->reduced) / 255 - 0.2860) / 0.3530;
}

static void expect_samples(const folder *f, const expected *e) {
    nets_source *source;
    float *image = malloc((size_t)(e->height * e->width * e->channels) * sizeof *image);
    assert_non_null(image);
    assert_int_equal(source_open(f, (nets_image_shape){e->height, e->width, e->channels, 10, false}, &source), MM_OK);
    assert_int_equal(source->samples, SAMPLES);
    for (int64_t i = SAMPLES - 1; i >= 0; i--) {
        int32_t label = -1;
        assert_int_equal(source->ops->read(source, i, image, &label), MM_OK);
        assert_int_equal(label, 9 - i);
        for (int64_t y = 0; y < e->height; y++)
            for (int64_t x = 0; x < e->width; x++)
                for (int64_t c = 0; c < e->channels; c++)
                    assert_true(fabs(image[(y * e->width + x) * e->channels + c] - pixel_expected(e, i, y, x)) < 1e-5);
    }
    source->ops->close(source);
    free(image);
}

static void images_are_centred_on_black_in_every_channel_and_normalised(void **state) {
    const folder *f = folder_fill(state, "train", true);
    expect_samples(f, &(expected){28, 28, 1, 0, 0, 28, 1, 1});
    expect_samples(f, &(expected){32, 32, 3, 2, 2, 28, 1, 1});
    expect_samples(f, &(expected){29, 40, 2, 0, 6, 28, 1, 1});
}

static void images_are_enlarged_to_the_largest_multiple_that_fits(void **state) {
    const folder *f = folder_fill(state, "train", false);
    expect_samples(f, &(expected){56, 56, 1, 0, 0, 56, 2, 1});
    expect_samples(f, &(expected){227, 230, 3, 1, 3, 224, 8, 1});
}

static void images_are_reduced_to_the_largest_part_that_fits(void **state) {
    const folder *f = folder_fill(state, "train", true);
    expect_samples(f, &(expected){27, 27, 1, 6, 6, 14, 1, 2});
    expect_samples(f, &(expected){14, 16, 3, 0, 1, 14, 1, 2});
    expect_samples(f, &(expected){8, 8, 1, 0, 0, 7, 1, 4});
    expect_samples(f, &(expected){1, 1, 1, 0, 0, 1, 1, 28});
}

static void a_shape_that_no_image_fits_is_refused(void **state) {
    const folder *f = folder_fill(state, "train", true);
    nets_source *source = NULL;
    assert_int_equal(source_open(f, (nets_image_shape){32, 32, 3, 1000, false}, &source), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "in 10 classes, the network wants 32x32x3 in 1000"));
    assert_int_equal(source_open(f, (nets_image_shape){1, 32, 1, 10, true}, &source), MM_ERR_INVALID);
    assert_int_equal(source_open(f, (nets_image_shape){1 << 16, 1 << 16, 3, 10, false}, &source), MM_ERR_INVALID);
    assert_int_equal(source_open(f, (nets_image_shape){-1, 32, 3, 10, false}, &source), MM_ERR_INVALID);
    assert_null(source);
}

/* ---------------------------------------------------------------- damaged files */

/* Expects a refusal in one line that names the damaged file and contains `what`. */
static void expect_refused(const folder *f, mm_status status, const content *damaged, const char *what) {
    nets_source *source = NULL;
    assert_int_equal(source_open(f, (nets_image_shape){0}, &source), status);
    assert_null(source);
    assert_non_null(strstr(mm_last_error(), damaged->path));
    assert_non_null(strstr(mm_last_error(), what));
    assert_null(strchr(mm_last_error(), '\n'));
}

static void a_missing_file_is_named_with_the_package(void **state) {
    folder *f = folder_fill(state, "train", true);
    assert_int_equal(unlink(f->labels.path), 0);
    expect_refused(f, MM_ERR_IO, &f->labels, "install Debian's package dataset-fashion-mnist");
    assert_int_equal(mkdir(f->labels.path, 0777), 0);
    expect_refused(f, MM_ERR_IO, &f->labels, "not a regular file");
}

/* Cuts plain and compressed files at every length. */
static void truncated_files_are_refused_wherever_they_end(void **state) {
    for (int compressed = 0; compressed < 2; compressed++) {
        folder *f = folder_fill(state, "train", compressed);
        const content whole = f->labels;
        for (size_t n = 0; n < whole.n_bytes; n++) {
            f->labels.n_bytes = n;
            content_save(&f->labels);
            /* A gzip stream's first byte alone does not identify it. */
            expect_refused(f, MM_ERR_FORMAT, &f->labels,
                           !compressed ? (n < 8 ? "within its header" : "of its 5 bytes")
                           : n < 2     ? "within its header"
                                       : "ends within its gzip data");
        }
        content_save(&whole);
        f->images.n_bytes -= 100;
        content_save(&f->images);
        expect_refused(f, MM_ERR_FORMAT, &f->images,
                       compressed ? "ends within its gzip data" : "ends after 3820 of its 3920 bytes");
        unlink(f->images.path);
        unlink(f->labels.path);
    }
}

/* Flips a bit of each byte behind gzip's header, most of which is ignored, up to the checksum at the end. */
static void damaged_gzip_streams_are_refused(void **state) {
    enum { GZIP_HEADER = 10 };
    folder *f = folder_fill(state, "train", true);
    for (size_t n = GZIP_HEADER; n < f->images.n_bytes; n++) {
        uint8_t *bytes = f->images.bytes;
        nets_source *source = NULL;
        bytes[n] ^= 4;
        content_save(&f->images);
        assert_int_equal(source_open(f, (nets_image_shape){0}, &source), MM_ERR_FORMAT);
        assert_null(source);
        assert_non_null(strstr(mm_last_error(), f->images.path));
        bytes[n] ^= 4;
    }
}

static void wrong_magic_counts_labels_and_rests_are_refused(void **state) {
    static const struct {
        bool labels;
        size_t at; /* beyond the end: appends a byte */
        uint8_t byte;
        const char *what;
    } cases[] = {
        {false, 3, 1, "begins with 0x00000801, must begin with 0x00000803"},
        {false, 2, 9, "begins with 0x00000903"},
        {true, 3, 3, "begins with 0x00000803, must begin with 0x00000801"},
        {false, 7, SAMPLES + 1, "holds 6x28x28 bytes, must hold 5x28x28"},
        {false, 4, 0xff, "holds 4278190085x28x28 bytes"},
        {false, 15, 27, "holds 5x28x27 bytes"},
        {true, 7, SAMPLES - 1, "holds 4 bytes, must hold 5"},
        {true, 8 + 3, 10, "image 3 has label 10, must be from 0 to 9"},
        {false, IMAGES_BYTES, 0, "goes on behind its 3920 bytes"},
        {true, LABELS_BYTES, 0, "goes on behind its 5 bytes"},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const bool compressed = i % 2;
        folder *f = folder_fill(state, "train", false);
        content *damaged = cases[i / 2].labels ? &f->labels : &f->images;
        unlink(damaged->path);
        damaged->bytes[cases[i / 2].at] = cases[i / 2].byte;
        if (cases[i / 2].at == damaged->n_bytes) damaged->n_bytes++;
        if (compressed) {
            content_compress(damaged);
            strcat(damaged->path, ".gz");
        }
        content_save(damaged);
        expect_refused(f, MM_ERR_FORMAT, damaged, cases[i / 2].what);
        unlink(damaged->path);
    }
}

static void bytes_behind_a_gzip_stream_are_refused(void **state) {
    folder *f = folder_fill(state, "train", true);
    f->labels.n_bytes++;
    content_save(&f->labels);
    expect_refused(f, MM_ERR_FORMAT, &f->labels, "goes on behind its 5 bytes");
}

/* ---------------------------------------------------------------- through the public functions */

/* Writes files of full size that are all zeros (sparse) behind their headers. */
static void write_black(const char *dir, const char *prefix, uint32_t samples) {
    const uint8_t header[16] = {0, 0, 8, 3, 0, 0, (uint8_t)(samples >> 8), (uint8_t)samples, 0, 0, 0, 28, 0, 0, 0, 28};
    for (int rank = 1; rank <= 3; rank += 2) {
        char name[64], path[PATH_MAX];
        snprintf(name, sizeof name, "%s-%s-ubyte", prefix, rank == 3 ? "images-idx3" : "labels-idx1");
        scratch_write_sparse(scratch_join(dir, name, path),
                             rank == 3 ? 16 + (int64_t)samples * PIXELS : 8 + (int64_t)samples);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fwrite(header, (size_t)(4 + 4 * rank), 1, file), 1);
        assert_int_equal(fseek(file, 3, SEEK_SET), 0);
        assert_int_equal(fputc(rank, file), rank);
        assert_int_equal(fclose(file), 0);
    }
}

static void reader_over_full_files(void **state) {
    const char *dir = ((folder *)*state)->path;
    char spec[PATH_MAX + 16];
    snprintf(spec, sizeof spec, "fashion-mnist:%s", dir);
    write_black(dir, "train", 60000);
    write_black(dir, "t10k", 10000);
    for (int split = 0; split < 2; split++) {
        const nets_reader_options options = {
            .batch = 128, .split = split ? NETS_SPLIT_TEST : NETS_SPLIT_TRAIN, .wanted = {32, 32, 3, 10, false}};
        nets_reader *reader;
        nets_reader_size size;
        nets_batch batch;
        assert_int_equal(nets_reader_create(spec, &options, &reader), MM_OK);
        nets_reader_size_get(reader, &size);
        assert_int_equal(size.samples, split ? 10000 : 60000);
        assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
        for (int64_t i = 0; i < batch.n * 32 * 32 * 3; i++) assert_true(fabs(batch.images[i] + 0.2860 / 0.3530) < 1e-6);
        nets_reader_destroy(reader);
    }
    assert_true(nets_reader_has_test(spec));
}

static void labels_of_pixels_and_an_empty_folder_are_refused(void **state) {
    const char *dir = ((folder *)*state)->path;
    char spec[PATH_MAX + 16];
    snprintf(spec, sizeof spec, "fashion-mnist:%s", dir);
    write_black(dir, "train", 60000);
    const nets_reader_options options = {.batch = 1, .wanted = {32, 32, 3, 10, false}, .label_map = {32, 32}};
    nets_reader *reader;
    assert_int_equal(nets_reader_create(spec, &options, &reader), MM_ERR_UNSUPPORTED);
    assert_int_equal(nets_reader_create("fashion-mnist:", &options, &reader), MM_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(images_are_centred_on_black_in_every_channel_and_normalised, setup, teardown),
        cmocka_unit_test_setup_teardown(images_are_enlarged_to_the_largest_multiple_that_fits, setup, teardown),
        cmocka_unit_test_setup_teardown(images_are_reduced_to_the_largest_part_that_fits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_shape_that_no_image_fits_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_file_is_named_with_the_package, setup, teardown),
        cmocka_unit_test_setup_teardown(truncated_files_are_refused_wherever_they_end, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_gzip_streams_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_magic_counts_labels_and_rests_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_behind_a_gzip_stream_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(reader_over_full_files, setup, teardown),
        cmocka_unit_test_setup_teardown(labels_of_pixels_and_an_empty_folder_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
