/* SPDX-License-Identifier: MIT */
/* The reader: a ring of batch buffers between the thread that fills them and the caller.
 *
 *      released        taken           produced
 *         v              v                v
 *   ...free | the caller's | ready | ready | being filled ...      counts; a batch's buffer is count % depth
 *
 * released <= taken <= produced <= released + depth. The caller has at most one batch that is not released. */
#include "nets/io/reader.h"

#include "mm/core/nearest.h"
#include "mm/core/status.h"
#include "nets/io/reader_augment.h"
#include "nets/io/reader_source.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PREFETCH 3
#define MAX_PREFETCH     16

static const nets_source_ops *const sources[] = {&nets_source_cifar10,   &nets_source_fashion_mnist,
                                                 &nets_source_synthetic, &nets_source_files,
                                                 &nets_source_text,      &nets_source_tokens};

#define N_SOURCES (sizeof sources / sizeof *sources)

typedef struct position {
    int64_t epoch, index;
} position;

typedef struct slot {
    float *images;
    int32_t *labels;
    nets_batch batch;
} slot;

struct nets_reader {
    nets_source *source;
    nets_reader_options options;
    nets_reader_size size;
    int64_t image_elems;
    int depth;
    slot slots[MAX_PREFETCH];
    pthread_t thread;

    /* Only the thread uses these. */
    int32_t *order; /* the samples' order in order_epoch; NULL: ascending */
    int64_t order_epoch;
    float *plain; /* an image before augmentation; NULL: images are not augmented */

    pthread_mutex_t lock; /* not held while samples are read */
    pthread_cond_t room;  /* signalled when a buffer is released, a seek is made or the thread must stop */
    pthread_cond_t ready; /* signalled when a batch was produced, or failed */
    int64_t released, taken, produced;
    position next;       /* what the thread fills next */
    uint64_t generation; /* counts seeks: a batch that was begun before one is dropped */
    mm_failure failure;  /* why `next` could not be filled */
    bool stopping;
};

/* ---------------------------------------------------------------- the thread */

static mm_status fill_sample(nets_reader *reader, int64_t epoch, int64_t sample, float *image_out,
                             int32_t *labels_out) {
    nets_source *source = reader->source;
    const int64_t *map = reader->options.label_map;
    if (map[0]) return source->ops->read_map(source, sample, map, image_out, labels_out);
    if (!reader->plain) return source->ops->read(source, sample, image_out, labels_out);
    MM_TRY(source->ops->read(source, sample, reader->plain, labels_out));
    nets_augmentation augmentation = nets_augmentation_draw(reader->options.seed, epoch, sample, source->augment_pad);
    nets_augmentation_apply(&augmentation, source->augment_pad, &source->image, reader->plain, image_out);
    return MM_OK;
}

static mm_status fill_batch(nets_reader *reader, position at, slot *slot_out) {
    const nets_reader_size *size = &reader->size;
    if (reader->order && reader->order_epoch != at.epoch) {
        nets_shuffle(reader->options.seed, at.epoch, size->samples, reader->order);
        reader->order_epoch = at.epoch;
    }
    bool epoch_end = at.index == size->batches - 1;
    int64_t first = at.index * reader->options.batch;
    int64_t n = epoch_end ? size->last : reader->options.batch;
    for (int64_t i = 0; i < n; i++) {
        int64_t sample = reader->order ? reader->order[first + i] : first + i;
        MM_TRY(fill_sample(reader, at.epoch, sample, slot_out->images + i * reader->image_elems,
                           slot_out->labels + i * size->labels));
    }
    slot_out->batch = (nets_batch){
        .images = slot_out->images,
        .labels = slot_out->labels,
        .n = n,
        .epoch = at.epoch,
        .index = at.index,
        .epoch_end = epoch_end,
    };
    return MM_OK;
}

static bool thread_has_work(const nets_reader *reader) {
    return reader->failure.status == MM_OK && reader->produced - reader->released < reader->depth;
}

static void publish(nets_reader *reader, position filled, mm_status status) {
    if (status != MM_OK) {
        mm_failure_save(&reader->failure, status);
    } else {
        bool epoch_end = filled.index == reader->size.batches - 1;
        reader->next = epoch_end ? (position){filled.epoch + 1, 0} : (position){filled.epoch, filled.index + 1};
        reader->produced++;
    }
    pthread_cond_signal(&reader->ready);
}

static void *thread_main(void *argument) {
    nets_reader *reader = argument;
    pthread_mutex_lock(&reader->lock);
    for (;;) {
        while (!reader->stopping && !thread_has_work(reader)) pthread_cond_wait(&reader->room, &reader->lock);
        if (reader->stopping) break;
        uint64_t generation = reader->generation;
        position at = reader->next;
        slot *free_slot = &reader->slots[reader->produced % reader->depth];
        pthread_mutex_unlock(&reader->lock);
        mm_status status = fill_batch(reader, at, free_slot);
        pthread_mutex_lock(&reader->lock);
        if (generation == reader->generation) publish(reader, at, status);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* ---------------------------------------------------------------- the caller */

mm_status nets_reader_next(nets_reader *reader, nets_batch *batch_out) {
    mm_status status = MM_OK;
    pthread_mutex_lock(&reader->lock);
    if (reader->released < reader->taken) {
        reader->released++;
        pthread_cond_signal(&reader->room);
    }
    while (reader->taken == reader->produced && reader->failure.status == MM_OK)
        pthread_cond_wait(&reader->ready, &reader->lock);
    if (reader->taken == reader->produced) {
        status = mm_failure_restore(&reader->failure);
    } else {
        *batch_out = reader->slots[reader->taken % reader->depth].batch;
        reader->taken++;
    }
    pthread_mutex_unlock(&reader->lock);
    return status;
}

mm_status nets_reader_seek(nets_reader *reader, int64_t epoch, int64_t index) {
    if (epoch < 0 || index < 0 || index >= reader->size.batches)
        return mm_fail(MM_ERR_INVALID, "seek to epoch %lld, batch %lld: an epoch has batches 0 to %lld",
                       (long long)epoch, (long long)index, (long long)reader->size.batches - 1);
    pthread_mutex_lock(&reader->lock);
    reader->generation++;
    reader->released = reader->taken = reader->produced = 0;
    reader->next = (position){epoch, index};
    reader->failure.status = MM_OK;
    pthread_cond_signal(&reader->room);
    pthread_mutex_unlock(&reader->lock);
    return MM_OK;
}

void nets_reader_size_get(const nets_reader *reader, nets_reader_size *size_out) { *size_out = reader->size; }

/* ---------------------------------------------------------------- life */

static mm_status size_of(const nets_source *source, const nets_reader_options *options, nets_reader_size *size_out) {
    int64_t full = source->samples / options->batch, rest = source->samples % options->batch;
    bool smaller_last = rest && !options->drop_last;
    if (full + smaller_last == 0)
        return mm_fail(MM_ERR_INVALID, "batch %lld: there are only %lld samples", (long long)options->batch,
                       (long long)source->samples);
    *size_out = (nets_reader_size){
        .samples = source->samples,
        .batches = full + smaller_last,
        .last = smaller_last ? rest : options->batch,
        .image = source->image,
        .labels = options->label_map[0] ? options->label_map[0] * options->label_map[1] : 1,
    };
    return MM_OK;
}

/* n elements of `size` bytes, 64-byte aligned; NULL if memory runs out or the size overflows. */
static void *array_alloc(int64_t n, int64_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(bytes, (size_t)63, &bytes)) return NULL;
    return aligned_alloc(64, bytes & ~(size_t)63);
}

static mm_status buffers_alloc(nets_reader *reader) {
    /* No batch is larger than all samples. */
    int64_t capacity = reader->size.samples < reader->options.batch ? reader->size.samples : reader->options.batch;
    bool failed = false;
    for (int i = 0; i < reader->depth; i++) {
        slot *s = &reader->slots[i];
        s->images = array_alloc(capacity, reader->image_elems * (int64_t)sizeof(float));
        s->labels = array_alloc(capacity, reader->size.labels * (int64_t)sizeof(int32_t));
        failed |= !s->images || !s->labels;
    }
    if (reader->options.split == NETS_SPLIT_TRAIN) {
        reader->order = array_alloc(reader->size.samples, sizeof(int32_t));
        failed |= !reader->order;
        reader->order_epoch = -1;
        if (reader->source->augment_pad) {
            reader->plain = array_alloc(reader->image_elems, sizeof(float));
            failed |= !reader->plain;
        }
    }
    if (failed)
        return mm_fail(MM_ERR_NOMEM, "reader: no memory for %d batches of %lld images", reader->depth,
                       (long long)capacity);
    return MM_OK;
}

/* Frees all but the thread, the lock and the conditions. */
static void reader_free(nets_reader *reader) {
    for (int i = 0; i < reader->depth; i++) {
        free(reader->slots[i].images);
        free(reader->slots[i].labels);
    }
    free(reader->order);
    free(reader->plain);
    reader->source->ops->close(reader->source);
    free(reader);
}

/* Blocks all signals on the reader's thread: they are for the caller's threads. */
static int thread_start(nets_reader *reader) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&reader->thread, NULL, thread_main, reader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static mm_status options_check(const nets_reader_options *options) {
    if (options->batch < 1) return mm_fail(MM_ERR_INVALID, "batch %lld: must be at least 1", (long long)options->batch);
    if (options->prefetch < 0 || options->prefetch > MAX_PREFETCH)
        return mm_fail(MM_ERR_INVALID, "prefetch %d: must be from 1 to %d, or 0", options->prefetch, MAX_PREFETCH);
    return MM_OK;
}

static mm_status label_map_check(const nets_source *source, const int64_t map[2]) {
    if (map[0] == 0 && map[1] == 0) return MM_OK;
    if (!source->ops->read_map)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "%s has one label for each image, but the network wants a label map of %lldx%lld",
                       source->ops->name, (long long)map[0], (long long)map[1]);
    if (map[0] < 1 || map[1] < 1 || map[0] > source->image.height || map[1] > source->image.width)
        return mm_fail(MM_ERR_INVALID, "a label map of %lldx%lld does not fit into images of %lldx%lld",
                       (long long)map[0], (long long)map[1], (long long)source->image.height,
                       (long long)source->image.width);
    return MM_OK;
}

mm_status nets_reader_create_over(nets_source *source, const nets_reader_options *options, nets_reader **reader_out) {
    nets_reader_size size;
    mm_status status = options_check(options);
    if (status == MM_OK) status = label_map_check(source, options->label_map);
    if (status == MM_OK) status = size_of(source, options, &size);
    nets_reader *reader = status == MM_OK ? calloc(1, sizeof *reader) : NULL;
    if (!reader) {
        source->ops->close(source);
        return status != MM_OK ? status : mm_fail(MM_ERR_NOMEM, "reader: no memory");
    }
    reader->source = source;
    reader->options = *options;
    reader->size = size;
    reader->image_elems = size.image.height * size.image.width * size.image.channels;
    reader->depth = options->prefetch ? options->prefetch : DEFAULT_PREFETCH;
    status = buffers_alloc(reader);
    if (status != MM_OK) goto err_free;
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->room, NULL);
    pthread_cond_init(&reader->ready, NULL);
    int error = thread_start(reader);
    if (error) {
        status = mm_fail(MM_ERR_NOMEM, "reader: no thread: %s", strerror(error));
        goto err_sync;
    }
    *reader_out = reader;
    return MM_OK;
err_sync:
    pthread_cond_destroy(&reader->ready);
    pthread_cond_destroy(&reader->room);
    pthread_mutex_destroy(&reader->lock);
err_free:
    reader_free(reader);
    return status;
}

void nets_reader_destroy(nets_reader *reader) {
    if (!reader) return;
    pthread_mutex_lock(&reader->lock);
    reader->stopping = true;
    pthread_cond_signal(&reader->room);
    pthread_mutex_unlock(&reader->lock);
    pthread_join(reader->thread, NULL);
    pthread_cond_destroy(&reader->ready);
    pthread_cond_destroy(&reader->room);
    pthread_mutex_destroy(&reader->lock);
    reader_free(reader);
}

/* ---------------------------------------------------------------- kinds of data */

static const nets_source_ops *find_source(const char *spec, size_t name_length) {
    for (size_t i = 0; i < N_SOURCES; i++)
        if (strlen(sources[i]->name) == name_length && strncmp(sources[i]->name, spec, name_length) == 0)
            return sources[i];
    return NULL;
}

mm_status nets_reader_create(const char *spec, const nets_reader_options *options, nets_reader **reader_out) {
    size_t name_length = strcspn(spec, ":");
    const char *argument = spec[name_length] ? spec + name_length + 1 : NULL;
    const nets_source_ops *ops = find_source(spec, name_length);
    if (!ops) {
        char known[256] = "";
        mm_nearest near = {.text = spec, .length = name_length};
        for (size_t i = 0, at = 0; i < N_SOURCES && at < sizeof known; i++) {
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", sources[i]->usage);
            mm_nearest_try(&near, sources[i]->name);
        }
        return mm_fail(MM_ERR_NOT_FOUND, "unknown data '%s'%s: there are %s", spec, MM_DID_YOU_MEAN(&near), known);
    }
    MM_TRY(options_check(options));
    nets_source *source;
    MM_TRY(ops->open(argument, options, &source));
    return nets_reader_create_over(source, options, reader_out);
}

bool nets_reader_has_test(const char *spec) {
    const nets_source_ops *ops = find_source(spec, strcspn(spec, ":"));
    return !ops || !ops->one_set;
}
