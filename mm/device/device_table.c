/* The one table of devices. A device that needs more than this machine's C library is an entry behind a define of its
 * own, MM_DEVICE_<NAME>, that BUILD sets (with the sources and the libraries it needs) when its flag is on: no other
 * file knows which devices a build has. */
#include <string.h>

#include "mm/device/device_host.h"

#ifdef MM_DEVICE_CUDA
extern const mm_device_ops mm_device_cuda_ops; /* device_cuda.h, which needs CUDA's headers */
#endif

static const mm_device_ops *const devices[] = {
    &mm_device_host_ops,
#ifdef MM_DEVICE_CUDA
    &mm_device_cuda_ops,
#endif
};

const mm_device_ops *mm_device_table(size_t i) { return i < sizeof devices / sizeof devices[0] ? devices[i] : NULL; }

const char *mm_device_absent(const char *name) {
#ifndef MM_DEVICE_CUDA
    if (strcmp(name, "cuda") == 0) return "build with --config=cuda, which needs the CUDA toolkit";
#endif
    (void)name;
    return NULL;
}
