/* SPDX-License-Identifier: MIT */
/* Readers: batches of labelled images, or of rows of tokens, for training and testing, prepared ahead by a thread.
 *
 * Images are f32 NHWC, normalised per channel; labels are i32 from 0. A training reader shuffles every epoch and
 * augments some data (CIFAR-10: pad 4, random crop, random horizontal flip, as He et al. 2015). Both use a
 * counter-based generator keyed by (seed, epoch, sample), so a batch depends only on the seed, its epoch and its
 * index, never on threads, prefetch depth or earlier reads. A test reader goes in order and augments nothing.
 *
 * Threads: one thread at a time may call a reader; the reader's own thread fills the next batches meanwhile. */
#ifndef NETS_IO_READER_H
#define NETS_IO_READER_H

#include "mm/mm.h"

typedef struct nets_reader nets_reader;

typedef enum nets_split { NETS_SPLIT_TRAIN, NETS_SPLIT_TEST } nets_split;

typedef struct nets_image_shape {
    int64_t height, width, channels, classes;
    bool tokens; /* a sample is `width` tokens: numbers below `classes`, as floats */
} nets_image_shape;

typedef struct nets_reader_options {
    nets_split split;
    int64_t batch;           /* images a batch, from 1 */
    uint64_t seed;           /* seeds shuffling and augmentation */
    bool drop_last;          /* leave out an epoch's last batch if it is smaller */
    int prefetch;            /* batch buffers, the caller's own included: 1 to 16; 0: 3, chosen */
    nets_image_shape wanted; /* what the network takes; members of 0 are taken from the data. Data of one fixed shape
                                refuses any other */
    int64_t label_map[2];    /* height and width of the image's middle whose pixels each have a label; {0, 0}: one label
                                for each image. Data without labels for pixels refuses it */
} nets_reader_options;

typedef struct nets_reader_size {
    int64_t samples; /* of the split */
    int64_t batches; /* of an epoch, the smaller last one included unless dropped */
    int64_t last;    /* images in an epoch's last batch */
    nets_image_shape image;
    int64_t labels; /* of an image: 1, or one for each pixel of the label map */
} nets_reader_size;

/* A batch. The reader owns its arrays; they are valid until the next call of next, seek or destroy. */
typedef struct nets_batch {
    const float *images;   /* n * height * width * channels, 64-byte aligned */
    const int32_t *labels; /* n * labels of an image, row by row */
    int64_t n;             /* `batch`, or fewer in an epoch's last one */
    int64_t epoch;         /* from 0 */
    int64_t index;         /* within the epoch, from 0 */
    bool epoch_end;        /* the epoch's last batch */
} nets_batch;

/* Opens data and starts to prepare its first batch. `spec` is "cifar10:DIR", where DIR or DIR/cifar-10-batches-bin
 * holds the files of the binary version; "fashion-mnist" or "fashion-mnist:DIR"; "synthetic" or "synthetic:samples=N";
 * "files:IMAGES.npy,LABELS.npy"; or "text:FILE" or "tokens:FILE", for networks of tokens.
 * MM_ERR_NOT_FOUND: unknown kind of data. MM_ERR_INVALID: an option or the argument is out of range.
 * MM_ERR_UNSUPPORTED: the data has no labels for pixels. MM_ERR_IO: a file is missing or unreadable. MM_ERR_FORMAT: a
 * file has the wrong size, or is damaged. */
MM_CHECKED mm_status nets_reader_create(const char *spec, const nets_reader_options *options, nets_reader **reader_out);

/* Stops the reader's thread and frees everything. NULL is legal. */
void nets_reader_destroy(nets_reader *reader);

void nets_reader_size_get(const nets_reader *reader, nets_reader_size *size_out);

/* Gives the next batch; after an epoch's last one, the first of the next epoch. Blocks until it is prepared. MM_ERR_IO,
 * MM_ERR_FORMAT (a label out of range): preparing it failed. Batches before it are still given; later calls return the
 * same error until a seek. */
MM_CHECKED mm_status nets_reader_next(nets_reader *reader, nets_batch *batch_out);

/* Makes batch `index` of `epoch` the next one. It is the same batch that reading up to there gives. MM_ERR_INVALID: out
 * of range. */
MM_CHECKED mm_status nets_reader_seek(nets_reader *reader, int64_t epoch, int64_t index);

/* Whether this kind of data has a test set of its own. If not, a test set is other data of the same kind, opened with
 * NETS_SPLIT_TEST. True for unknown data. */
bool nets_reader_has_test(const char *spec);

#endif
