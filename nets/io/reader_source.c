/* SPDX-License-Identifier: MIT */
/* Checks of images' shapes that several kinds of data share. */
#include "nets/io/reader_source.h"

#include "mm/core/status.h"

#define MAX_ELEMS (INT64_C(1) << 28)

mm_status nets_source_check_wanted(const char *name, const nets_image_shape *image, const nets_image_shape *wanted) {
    if (wanted->tokens)
        return mm_fail(MM_ERR_INVALID, "%s has images, but the network wants tokens: give text:FILE or tokens:FILE",
                       name);
    if ((wanted->height == 0 || wanted->height == image->height) &&
        (wanted->width == 0 || wanted->width == image->width) &&
        (wanted->channels == 0 || wanted->channels == image->channels) &&
        (wanted->classes == 0 || wanted->classes == image->classes))
        return MM_OK;
    return mm_fail(
        MM_ERR_INVALID, "%s has images of %lldx%lldx%lld in %lld classes, the network wants %lldx%lldx%lld in %lld",
        name, (long long)image->height, (long long)image->width, (long long)image->channels, (long long)image->classes,
        (long long)wanted->height, (long long)wanted->width, (long long)wanted->channels, (long long)wanted->classes);
}

mm_status nets_source_check_elems(const char *name, const nets_image_shape *image) {
    int64_t elems;
    if (image->height >= 1 && image->width >= 1 && image->channels >= 1 &&
        !__builtin_mul_overflow(image->height, image->width, &elems) &&
        !__builtin_mul_overflow(elems, image->channels, &elems) && elems <= MAX_ELEMS)
        return MM_OK;
    return mm_fail(MM_ERR_INVALID, "%s: images of %lldx%lldx%lld: at most %lld elements", name,
                   (long long)image->height, (long long)image->width, (long long)image->channels, (long long)MAX_ELEMS);
}
