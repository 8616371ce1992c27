/* SPDX-License-Identifier: MIT */
/* The contract of a kind of data: a source of single samples, of which the reader makes batches.
 *
 * An implementation embeds nets_source as its first member, and is listed in reader.c's table. */
#ifndef NETS_IO_READER_SOURCE_H
#define NETS_IO_READER_SOURCE_H

#include "nets/io/reader.h"

/* The most samples of a set. Chosen: an epoch's order of them takes 512 MiB, and some seconds to shuffle. */
enum { NETS_SAMPLES_MOST = 1 << 27 };

typedef struct nets_source nets_source;

typedef struct nets_source_ops {
    const char *name;  /* a spec begins with it */
    const char *usage; /* the form of a spec */

    bool one_set; /* the data is not divided into a training and a test set: either split is all of the data */

    /* Opens options->split. `argument`: the spec's text behind the name and colon; NULL: there is none. Reports every
     * failure that can be found without reading all images. */
    mm_status (*open)(const char *argument, const nets_reader_options *options, nets_source **source_out);

    /* Reads sample `index`, of 0..samples-1: height * width * channels normalised floats, and its label in
     * 0..classes-1. The same index gives the same bits. One thread at a time calls it. */
    mm_status (*read)(nets_source *source, int64_t index, float *image_out, int32_t *label_out);

    /* Reads an image with a label for each pixel of its middle, which has map[0] rows and map[1] columns, at most the
     * image's. Before the middle are as many rows and columns as behind it, or one fewer. The image may differ from
     * that of `read`. Such samples are not augmented. NULL: there are no labels for pixels. */
    mm_status (*read_map)(nets_source *source, int64_t index, const int64_t map[2], float *image_out,
                          int32_t *labels_out);

    void (*close)(nets_source *source);
} nets_source_ops;

struct nets_source {
    const nets_source_ops *ops;
    int64_t samples;        /* 1 to INT32_MAX */
    nets_image_shape image; /* every member above 0 */
    int64_t augment_pad;    /* padding for the augmentation of training images; 0: they are not augmented */
};

extern const nets_source_ops nets_source_cifar10;
extern const nets_source_ops nets_source_fashion_mnist;
extern const nets_source_ops nets_source_files;
extern const nets_source_ops nets_source_synthetic;
extern const nets_source_ops nets_source_text;
extern const nets_source_ops nets_source_tokens;

/* Opens CIFAR-10 files of `records` samples each, which are 10000 in the real data. */
mm_status nets_source_cifar10_open(const char *dir, nets_split split, int64_t records, nets_source **source_out);

/* Opens Fashion-MNIST files of `samples` samples, which are 60000 or 10000 in the real data. */
mm_status nets_source_fashion_mnist_open(const char *dir, const nets_reader_options *options, int64_t samples,
                                         nets_source **source_out);

/* MM_ERR_INVALID: `wanted` names another shape than `image`, the only one of the data called `name`. */
mm_status nets_source_check_wanted(const char *name, const nets_image_shape *image, const nets_image_shape *wanted);

/* MM_ERR_INVALID: data called `name`, which takes the network's image shape, cannot have images of no elements, or of
 * more than 2^28. */
mm_status nets_source_check_elems(const char *name, const nets_image_shape *image);

/* Makes a reader over an open source and takes ownership of the source, also on failure. */
mm_status nets_reader_create_over(nets_source *source, const nets_reader_options *options, nets_reader **reader_out);

#endif
