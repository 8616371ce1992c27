/* The contract of a kind of data: where single samples come from. The reader makes batches of them.
 *
 * An implementation embeds nets_source as its first member, and is listed in reader.c's table. */
#ifndef NETS_IO_READER_SOURCE_H
#define NETS_IO_READER_SOURCE_H

#include "nets/io/reader.h"

typedef struct nets_source nets_source;

typedef struct nets_source_ops {
    const char *name;    /* what a spec begins with */
    const char *usage;   /* how a spec is written */
    const char *summary; /* one line */

    bool one_set; /* it is no training and test set: it is read whole as whichever it is opened for */

    /* Opens options->split. `argument`: what follows the name's colon in the spec, NULL if nothing does. Every failure
     * that can be found without reading all images is found here. */
    mm_status (*open)(const char *argument, const nets_reader_options *options, nets_source **source_out);

    /* Sample `index` of 0..samples-1: height * width * channels normalised floats, NHWC, and its label in
     * 0..classes-1. The same index gives the same bits. Called by one thread at a time. */
    mm_status (*read)(nets_source *source, int64_t index, float *image_out, int32_t *label_out);

    /* An image with a label for each pixel of its middle, `map` {height, width} of them, which is no larger than the
     * image: the rows and columns before the middle are as many as after it, or one fewer. The image may be another
     * than read's. NULL: cannot. Such samples are not augmented. */
    mm_status (*read_map)(nets_source *source, int64_t index, const int64_t map[2], float *image_out,
                          int32_t *labels_out);

    void (*close)(nets_source *source);
} nets_source_ops;

struct nets_source {
    const nets_source_ops *ops;
    int64_t samples;        /* 1 to INT32_MAX */
    nets_image_shape image; /* no member 0 */
    int64_t augment_pad;    /* training images are padded by it, cropped and flipped; 0: left as they are */
};

extern const nets_source_ops nets_source_cifar10;
extern const nets_source_ops nets_source_files;
extern const nets_source_ops nets_source_synthetic;

/* CIFAR-10 files of `records` samples each instead of 10000. */
mm_status nets_source_cifar10_open(const char *dir, nets_split split, int64_t records, nets_source **source_out);

/* MM_ERR_INVALID if `wanted` names another shape than `image`, the only one that data of this `name` has. */
mm_status nets_source_check_wanted(const char *name, const nets_image_shape *image, const nets_image_shape *wanted);

/* A reader over an open source, which it owns from here on, also on failure. */
mm_status nets_reader_create_over(nets_source *source, const nets_reader_options *options, nets_reader **reader_out);

#endif
