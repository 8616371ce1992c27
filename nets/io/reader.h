/* Readers: batches of labelled images for training and testing, prepared ahead by a thread.
 *
 * Images are f32 NHWC, normalised per channel; labels are i32 from 0. A training reader shuffles every epoch and, where
 * the data is augmented (CIFAR-10: pad 4, random crop, random horizontal flip, as He et al. 2015), does so from a
 * counter-based generator keyed by (seed, epoch, sample): a batch depends on the seed and its place alone, never on
 * threads, prefetch depth or what was read before. A test reader goes in order and augments nothing.
 *
 * Threads: a reader is driven by one thread at a time; its own thread fills the next batches meanwhile. */
#ifndef NETS_IO_READER_H
#define NETS_IO_READER_H

#include "mm/mm.h"

typedef struct nets_reader nets_reader;

typedef enum nets_split { NETS_SPLIT_TRAIN, NETS_SPLIT_TEST } nets_split;

typedef struct nets_image_shape {
    int64_t height, width, channels, classes;
} nets_image_shape;

typedef struct nets_reader_options {
    nets_split split;
    int64_t batch;           /* images a batch, from 1 */
    uint64_t seed;           /* of shuffling and augmentation */
    bool drop_last;          /* leave out an epoch's last batch if it is smaller */
    int prefetch;            /* batch buffers, the caller's own included: 1 to 16; 0: 3 */
    nets_image_shape wanted; /* what the network takes. A member of 0: as the data has it. Data of one fixed shape
                                refuses any other */
    int64_t label_map[2];    /* a label for each pixel of the image's middle of this height and width; {0, 0}: one
                                label an image. Data without such labels refuses it */
} nets_reader_options;

typedef struct nets_reader_size {
    int64_t samples; /* of the split */
    int64_t batches; /* an epoch, the smaller last one included unless dropped */
    int64_t last;    /* images in the epoch's last batch */
    nets_image_shape image;
    int64_t labels; /* an image: 1, or the label map's pixels */
} nets_reader_size;

/* A batch, borrowed from the reader until its next call of next, seek or destroy. */
typedef struct nets_batch {
    const float *images;   /* n * height * width * channels, 64-byte aligned */
    const int32_t *labels; /* n * labels of an image, row by row */
    int64_t n;             /* `batch`, or fewer in an epoch's last one */
    int64_t epoch;         /* from 0 */
    int64_t index;         /* within the epoch, from 0 */
    bool epoch_end;        /* the epoch's last batch */
} nets_batch;

/* Opens data and starts to prepare its first batch. `spec`: "cifar10:DIR", where DIR or DIR/cifar-10-batches-bin holds
 * the binary version's files; "synthetic" or "synthetic:samples=N"; "files:IMAGES.npy,LABELS.npy" (nets_reader_list).
 * MM_ERR_NOT_FOUND: unknown data. MM_ERR_INVALID: options or argument. MM_ERR_UNSUPPORTED: no labels of pixels.
 * MM_ERR_IO: a missing or unreadable file. MM_ERR_FORMAT: a file of a wrong size. */
MM_CHECKED mm_status nets_reader_create(const char *spec, const nets_reader_options *options, nets_reader **reader_out);

/* Stops and joins the thread, frees. NULL is legal. */
void nets_reader_destroy(nets_reader *reader);

void nets_reader_size_get(const nets_reader *reader, nets_reader_size *size_out);

/* The next batch; after an epoch's last one, the first of the next epoch. Blocks until it is prepared.
 * A failure to prepare it (MM_ERR_IO, MM_ERR_FORMAT: a label out of range) is returned here, after the batches before
 * it, and again until a seek. */
MM_CHECKED mm_status nets_reader_next(nets_reader *reader, nets_batch *batch_out);

/* The next batch will be `index` of `epoch`, the same as if the reader had come there by itself.
 * MM_ERR_INVALID: out of range. */
MM_CHECKED mm_status nets_reader_seek(nets_reader *reader, int64_t epoch, int64_t index);

/* Whether data of this kind has a test set of its own. Without one, the test set is other data of the same kind, opened
 * for NETS_SPLIT_TEST. True of unknown data. */
bool nets_reader_has_test(const char *spec);

/* How the i-th kind of data is written ("cifar10:DIR") and a line about it; NULL past the last. Static strings. */
const char *nets_reader_list(size_t i, const char **summary_out);

#endif
