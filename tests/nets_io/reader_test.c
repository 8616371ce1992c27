/* SPDX-License-Identifier: MIT */
/* The reader over a source made for these tests: 4x4 images whose pixels tell their sample and position. */
#include "mm/core/status.h"
#include "nets/io/reader_augment.h"
#include "nets/io/reader_source.h"
#include "tests/device/host_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>

#define SIDE    4
#define PIXELS  (SIDE * SIDE)
#define PAD     2
#define SAMPLES 23

typedef struct fake {
    nets_source source;
    int64_t fails_at; /* this sample cannot be read; -1: none */
    sem_t *was_read;  /* posted at each read */
    sem_t *may_read;  /* waited for at each read */
    int *times_closed;
} fake;

static float pixel_of(int64_t sample, int64_t pixel) { return (float)(1 + sample * PIXELS + pixel); }

static mm_status fake_read(nets_source *source, int64_t index, float *image_out, int32_t *label_out) {
    fake *f = (fake *)source;
    if (f->was_read) sem_post(f->was_read);
    if (f->may_read) sem_wait(f->may_read);
    if (index == f->fails_at) return mm_fail(MM_ERR_FORMAT, "sample %d is damaged", (int)index);
    for (int p = 0; p < PIXELS; p++) image_out[p] = pixel_of(index, p);
    *label_out = (int32_t)index;
    return MM_OK;
}

static void fake_close(nets_source *source) {
    fake *f = (fake *)source;
    if (f->times_closed) ++*f->times_closed;
    free(f);
}

static const nets_source_ops fake_ops = {.name = "fake", .read = fake_read, .close = fake_close};

static fake *fake_create(int64_t augment_pad) {
    fake *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->source = (nets_source){.ops = &fake_ops, .samples = SAMPLES, .image = {SIDE, SIDE, 1, SAMPLES}};
    f->source.augment_pad = augment_pad;
    f->fails_at = -1;
    return f;
}

static nets_reader *reader_over(fake *f, nets_reader_options options) {
    nets_reader *reader;
    assert_int_equal(nets_reader_create_over(&f->source, &options, &reader), MM_OK);
    return reader;
}

static nets_batch next_of(nets_reader *reader) {
    nets_batch batch;
    assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
    return batch;
}

/* Digest of a batch's content (FNV-1a): equal bits give equal digests. */
static uint64_t digest_of(const nets_batch *batch) {
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    const uint8_t *bytes = (const uint8_t *)batch->images;
    for (size_t i = 0; i < (size_t)batch->n * PIXELS * sizeof(float); i++)
        digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    for (int64_t i = 0; i < batch->n; i++) digest = (digest ^ (uint64_t)batch->labels[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* *state: the number of threads without any reader. */
static int group_setup(void **state) {
    static int threads;
    host_threads_settle(NULL);
    threads = host_threads();
    *state = &threads;
    return 0;
}

static int check_threads(void **state) {
    host_threads_wait(*(int *)*state);
    return 0;
}

static void test_split_goes_in_order_and_ends_with_a_smaller_batch(void **state) {
    (void)state;
    nets_reader *reader = reader_over(fake_create(PAD), (nets_reader_options){.split = NETS_SPLIT_TEST, .batch = 5});
    nets_reader_size size;
    nets_reader_size_get(reader, &size);
    assert_int_equal(size.samples, SAMPLES);
    assert_int_equal(size.batches, 5);
    assert_int_equal(size.last, 3);
    for (int64_t epoch = 0; epoch < 2; epoch++)
        for (int64_t index = 0; index < 5; index++) {
            nets_batch batch = next_of(reader);
            assert_int_equal(batch.epoch, epoch);
            assert_int_equal(batch.index, index);
            assert_int_equal(batch.n, index == 4 ? 3 : 5);
            assert_int_equal(batch.epoch_end, index == 4);
            for (int64_t i = 0; i < batch.n; i++) {
                assert_int_equal(batch.labels[i], index * 5 + i);
                for (int p = 0; p < PIXELS; p++)
                    assert_true(batch.images[i * PIXELS + p] == pixel_of(index * 5 + i, p));
            }
        }
    nets_reader_destroy(reader);
}

static void drop_last_leaves_the_smaller_batch_out(void **state) {
    (void)state;
    nets_reader *reader =
        reader_over(fake_create(0), (nets_reader_options){.split = NETS_SPLIT_TEST, .batch = 5, .drop_last = true});
    nets_reader_size size;
    nets_reader_size_get(reader, &size);
    assert_int_equal(size.batches, 4);
    assert_int_equal(size.last, 5);
    for (int i = 0; i < 4; i++) {
        nets_batch batch = next_of(reader);
        assert_int_equal(batch.n, 5);
        assert_int_equal(batch.epoch_end, i == 3);
    }
    nets_batch batch = next_of(reader);
    assert_int_equal(batch.epoch, 1);
    assert_int_equal(batch.labels[0], 0);
    nets_reader_destroy(reader);
}

/* Reads an epoch's labels, in order. */
static void read_labels(nets_reader *reader, int32_t labels_out[static SAMPLES]) {
    int64_t n = 0;
    nets_batch batch;
    do {
        batch = next_of(reader);
        memcpy(labels_out + n, batch.labels, (size_t)batch.n * sizeof *labels_out);
        n += batch.n;
    } while (!batch.epoch_end);
    assert_int_equal(n, SAMPLES);
}

static void training_shuffles_every_epoch_anew_by_the_seed(void **state) {
    (void)state;
    int32_t orders[3][SAMPLES], again[SAMPLES], other[SAMPLES];
    nets_reader *reader = reader_over(fake_create(0), (nets_reader_options){.batch = 4, .seed = 7});
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[SAMPLES] = {false};
        read_labels(reader, orders[epoch]);
        for (int i = 0; i < SAMPLES; i++) {
            assert_in_range(orders[epoch][i], 0, SAMPLES - 1);
            assert_false(seen[orders[epoch][i]]);
            seen[orders[epoch][i]] = true;
        }
    }
    nets_reader_destroy(reader);
    assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_not_equal(orders[1], orders[2], sizeof orders[0]);

    reader = reader_over(fake_create(0), (nets_reader_options){.batch = 9, .seed = 7});
    read_labels(reader, again);
    nets_reader_destroy(reader);
    assert_memory_equal(orders[0], again, sizeof again);

    reader = reader_over(fake_create(0), (nets_reader_options){.batch = 4, .seed = 8});
    read_labels(reader, other);
    nets_reader_destroy(reader);
    assert_memory_not_equal(orders[0], other, sizeof other);
}

static void every_order_is_as_likely_as_any_other(void **state) {
    (void)state;
    enum { EPOCHS = 4800 };
    int times[4 * 4 * 4] = {0}; /* counts of orders of four samples, by their first three */
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        int32_t order[4];
        nets_shuffle(1, epoch, 4, order);
        times[(order[0] * 4 + order[1]) * 4 + order[2]]++;
    }
    int orders = 0;
    for (int i = 0; i < 4 * 4 * 4; i++) {
        if (times[i] == 0) continue;
        orders++;
        assert_in_range(times[i], EPOCHS / 24 - 70, EPOCHS / 24 + 70);
    }
    assert_int_equal(orders, 24);
}

/* Whether `image` is the sample's, padded by PAD, cut at (top, left) and then mirrored or not. */
static bool is_cut(const float *image, int64_t sample, int top, int left, bool flip) {
    float padded[SIDE + 2 * PAD][SIDE + 2 * PAD] = {{0}};
    for (int p = 0; p < PIXELS; p++) padded[PAD + p / SIDE][PAD + p % SIDE] = pixel_of(sample, p);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            if (image[y * SIDE + x] != padded[top + y][left + (flip ? SIDE - 1 - x : x)]) return false;
    return true;
}

static void augmentation_cuts_and_mirrors_in_every_way_and_no_other(void **state) {
    (void)state;
    enum { WAYS = 2 * PAD + 1, EPOCHS = 40 };
    int seen[WAYS][WAYS][2] = {{{0}}};
    nets_reader *reader = reader_over(fake_create(PAD), (nets_reader_options){.batch = 6, .seed = 3});
    for (int64_t epoch = 0; epoch < EPOCHS;) {
        nets_batch batch = next_of(reader);
        for (int64_t i = 0; i < batch.n; i++) {
            int matches = 0;
            for (int way = 0; way < WAYS * WAYS * 2; way++) {
                int top = way / 2 / WAYS, left = way / 2 % WAYS, flip = way % 2;
                if (!is_cut(batch.images + i * PIXELS, batch.labels[i], top, left, flip)) continue;
                seen[top][left][flip]++;
                matches++;
            }
            assert_int_equal(matches, 1);
        }
        epoch = batch.epoch + batch.epoch_end;
    }
    nets_reader_destroy(reader);
    /* 920 draws among 50 ways to cut and mirror: each comes about 18 times. */
    for (int way = 0; way < WAYS * WAYS * 2; way++)
        assert_in_range(seen[way / 2 / WAYS][way / 2 % WAYS][way % 2], 4, 45);
}

static void batches_are_equal_at_any_prefetch_depth(void **state) {
    (void)state;
    enum { BATCHES = 30 };
    uint64_t expected[BATCHES];
    static const int depths[] = {0, 1, 2, 5, 16};
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        nets_reader_options options = {.batch = 4, .seed = 11, .prefetch = depths[d]};
        nets_reader *reader = reader_over(fake_create(PAD), options);
        for (int i = 0; i < BATCHES; i++) {
            nets_batch batch = next_of(reader);
            uint64_t digest = digest_of(&batch);
            if (d == 0) expected[i] = digest;
            assert_true(digest == expected[i]);
        }
        nets_reader_destroy(reader);
    }
    for (int i = 1; i < BATCHES; i++) assert_true(expected[i] != expected[i - 1]);
}

static void seek_gives_the_batch_that_reading_on_gives(void **state) {
    (void)state;
    enum { PER_EPOCH = 6, EPOCHS = 4 };
    uint64_t expected[EPOCHS * PER_EPOCH];
    nets_reader *reader = reader_over(fake_create(PAD), (nets_reader_options){.batch = 4, .seed = 5});
    for (int i = 0; i < EPOCHS * PER_EPOCH; i++) {
        nets_batch batch = next_of(reader);
        expected[i] = digest_of(&batch);
    }
    static const int targets[] = {0, 13, 12, 23, 5, 6, 6, 1};
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        assert_int_equal(nets_reader_seek(reader, targets[t] / PER_EPOCH, targets[t] % PER_EPOCH), MM_OK);
        for (int i = targets[t]; i < targets[t] + (int)t % 3 && i < EPOCHS * PER_EPOCH; i++) {
            nets_batch batch = next_of(reader);
            assert_int_equal(batch.epoch, i / PER_EPOCH);
            assert_int_equal(batch.index, i % PER_EPOCH);
            assert_true(digest_of(&batch) == expected[i]);
        }
    }
    assert_int_equal(nets_reader_seek(reader, 0, PER_EPOCH), MM_ERR_INVALID);
    assert_int_equal(nets_reader_seek(reader, -1, 0), MM_ERR_INVALID);
    assert_int_equal(nets_reader_seek(reader, 0, -1), MM_ERR_INVALID);
    nets_reader_destroy(reader);
}

static void sem_wait_times(sem_t *semaphore, int times) {
    for (int i = 0; i < times; i++) sem_wait(semaphore);
}

static void seek_throws_away_the_batch_being_filled(void **state) {
    (void)state;
    sem_t was_read, may_read;
    sem_init(&was_read, 0, 0);
    sem_init(&may_read, 0, 0);
    fake *f = fake_create(0);
    f->was_read = &was_read;
    f->may_read = &may_read;
    nets_reader *reader = reader_over(f, (nets_reader_options){.split = NETS_SPLIT_TEST, .batch = 4});
    sem_wait_times(&was_read, 1);
    assert_int_equal(nets_reader_seek(reader, 3, 2), MM_OK);
    for (int i = 0; i < 1000; i++) sem_post(&may_read);
    nets_batch batch = next_of(reader);
    assert_int_equal(batch.epoch, 3);
    assert_int_equal(batch.labels[0], 8);
    nets_reader_destroy(reader);
    sem_destroy(&was_read);
    sem_destroy(&may_read);
}

static void callers_batch_is_left_alone_while_others_are_filled(void **state) {
    (void)state;
    sem_t was_read;
    sem_init(&was_read, 0, 0);
    fake *f = fake_create(0);
    f->was_read = &was_read;
    nets_reader *reader = reader_over(f, (nets_reader_options){.split = NETS_SPLIT_TEST, .batch = 4, .prefetch = 2});
    nets_batch batch = next_of(reader);
    sem_wait_times(&was_read, 8);
    for (int i = 0; i < 4; i++) assert_int_equal(batch.labels[i], i);
    nets_batch following = next_of(reader);
    sem_wait_times(&was_read, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(following.labels[i], 4 + i);
    /* The ring is full: the thread waits for room. */
    int reads;
    sem_getvalue(&was_read, &reads);
    assert_int_equal(reads, 0);
    nets_reader_destroy(reader);
    sem_destroy(&was_read);
}

static void failure_comes_after_the_good_batches_and_stays_until_a_seek(void **state) {
    (void)state;
    fake *f = fake_create(0);
    f->fails_at = 10;
    nets_reader *reader = reader_over(f, (nets_reader_options){.split = NETS_SPLIT_TEST, .batch = 4, .prefetch = 8});
    for (int round = 0; round < 2; round++) {
        nets_batch batch = {.n = -1};
        assert_int_equal(next_of(reader).index, 0);
        assert_int_equal(next_of(reader).index, 1);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(nets_reader_next(reader, &batch), MM_ERR_FORMAT);
            assert_string_equal(mm_last_error(), "sample 10 is damaged");
            assert_int_equal(batch.n, -1);
        }
        assert_int_equal(nets_reader_seek(reader, 0, 3), MM_OK);
        assert_int_equal(next_of(reader).index, 3);
        assert_int_equal(nets_reader_seek(reader, 1, 0), MM_OK);
    }
    nets_reader_destroy(reader);
}

static void destroy_with_a_full_ring(void **state) {
    (void)state;
    sem_t was_read;
    sem_init(&was_read, 0, 0);
    fake *f = fake_create(0);
    f->was_read = &was_read;
    nets_reader *reader = reader_over(f, (nets_reader_options){.batch = 4, .prefetch = 3});
    sem_wait_times(&was_read, 12);
    nets_reader_destroy(reader);
    sem_destroy(&was_read);
}

static void destroy_at_once_and_after_a_failure(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++) nets_reader_destroy(reader_over(fake_create(PAD), (nets_reader_options){.batch = 8}));
    fake *f = fake_create(0);
    f->fails_at = 0;
    nets_reader *reader = reader_over(f, (nets_reader_options){.split = NETS_SPLIT_TEST, .batch = 8});
    nets_batch batch;
    assert_int_equal(nets_reader_next(reader, &batch), MM_ERR_FORMAT);
    nets_reader_destroy(reader);
    nets_reader_destroy(NULL);
}

static void *open_gate(void *semaphore) {
    for (int i = 0; i < 100; i++) sem_post(semaphore);
    return NULL;
}

static void destroy_while_the_thread_is_blocked_in_the_source(void **state) {
    (void)state;
    sem_t was_read, may_read;
    sem_init(&was_read, 0, 0);
    sem_init(&may_read, 0, 0);
    int times_closed = 0;
    fake *f = fake_create(0);
    f->was_read = &was_read;
    f->may_read = &may_read;
    f->times_closed = &times_closed;
    nets_reader *reader = reader_over(f, (nets_reader_options){.batch = 4});
    sem_wait_times(&was_read, 1);
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_gate, &may_read), 0);
    nets_reader_destroy(reader);
    assert_int_equal(times_closed, 1);
    pthread_join(opener, NULL);
    sem_destroy(&was_read);
    sem_destroy(&may_read);
}

static void a_batch_larger_than_the_data_is_all_of_it(void **state) {
    (void)state;
    nets_reader_options options = {.split = NETS_SPLIT_TEST, .batch = INT64_MAX};
    nets_reader *reader = reader_over(fake_create(0), options);
    nets_batch batch = next_of(reader);
    assert_int_equal(batch.n, SAMPLES);
    assert_true(batch.epoch_end);
    nets_reader_destroy(reader);
}

static void impossible_options_are_refused_and_the_source_closed(void **state) {
    (void)state;
    static const nets_reader_options impossible[] = {
        {.batch = 0},
        {.batch = -5},
        {.batch = SAMPLES + 1, .drop_last = true},
        {.batch = 4, .prefetch = -1},
        {.batch = 4, .prefetch = 17},
    };
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        int times_closed = 0;
        fake *f = fake_create(0);
        f->times_closed = &times_closed;
        nets_reader *reader = NULL;
        assert_int_equal(nets_reader_create_over(&f->source, &impossible[i], &reader), MM_ERR_INVALID);
        assert_null(reader);
        assert_int_equal(times_closed, 1);
    }
}

static void labels_of_pixels_are_refused_by_data_that_has_none(void **state) {
    (void)state;
    int times_closed = 0;
    fake *f = fake_create(0);
    f->times_closed = &times_closed;
    const nets_reader_options options = {.batch = 1, .label_map = {SIDE, SIDE}};
    nets_reader *reader;
    assert_int_equal(nets_reader_create_over(&f->source, &options, &reader), MM_ERR_UNSUPPORTED);
    assert_string_equal(mm_last_error(), "fake has one label for each image, but the network wants a label map of 4x4");
    assert_int_equal(times_closed, 1);
}

static void unknown_data_is_refused_naming_what_there_is(void **state) {
    (void)state;
    nets_reader *reader;
    nets_reader_options options = {.batch = 1};
    assert_int_equal(nets_reader_create("cifar:/x", &options, &reader), MM_ERR_NOT_FOUND);
    assert_string_equal(mm_last_error(),
                        "unknown data 'cifar:/x' (did you mean cifar10?): there are cifar10:DIR, fashion-mnist[:DIR], "
                        "synthetic[:samples=N], files:IMAGES.npy,LABELS.npy, text:FILE, tokens:FILE");
    assert_int_equal(nets_reader_create("", &options, &reader), MM_ERR_NOT_FOUND);
    assert_int_equal(nets_reader_create("synthetic2", &options, &reader), MM_ERR_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_split_goes_in_order_and_ends_with_a_smaller_batch, check_threads),
        cmocka_unit_test_teardown(drop_last_leaves_the_smaller_batch_out, check_threads),
        cmocka_unit_test_teardown(training_shuffles_every_epoch_anew_by_the_seed, check_threads),
        cmocka_unit_test(every_order_is_as_likely_as_any_other),
        cmocka_unit_test_teardown(augmentation_cuts_and_mirrors_in_every_way_and_no_other, check_threads),
        cmocka_unit_test_teardown(batches_are_equal_at_any_prefetch_depth, check_threads),
        cmocka_unit_test_teardown(seek_gives_the_batch_that_reading_on_gives, check_threads),
        cmocka_unit_test_teardown(seek_throws_away_the_batch_being_filled, check_threads),
        cmocka_unit_test_teardown(callers_batch_is_left_alone_while_others_are_filled, check_threads),
        cmocka_unit_test_teardown(failure_comes_after_the_good_batches_and_stays_until_a_seek, check_threads),
        cmocka_unit_test_teardown(destroy_with_a_full_ring, check_threads),
        cmocka_unit_test_teardown(destroy_at_once_and_after_a_failure, check_threads),
        cmocka_unit_test_teardown(destroy_while_the_thread_is_blocked_in_the_source, check_threads),
        cmocka_unit_test_teardown(a_batch_larger_than_the_data_is_all_of_it, check_threads),
        cmocka_unit_test_teardown(impossible_options_are_refused_and_the_source_closed, check_threads),
        cmocka_unit_test_teardown(labels_of_pixels_are_refused_by_data_that_has_none, check_threads),
        cmocka_unit_test_teardown(unknown_data_is_refused_naming_what_there_is, check_threads),
    };
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
