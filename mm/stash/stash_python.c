/* SPDX-License-Identifier: MIT */
/* The deleter of DLPack tensors that Python releases. */
#include "mm/mm.h"

/* DLManagedTensor of dlpack.h, version 0.x, as far as it is needed here. */
typedef struct dl_managed {
    struct {
        void *data;
        int32_t device_type, device_id, ndim;
        uint8_t code, bits;
        uint16_t lanes;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } tensor;
    void *manager_ctx;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

_Static_assert(sizeof(dl_managed) == 64, "DLManagedTensor has 64 bytes");

void mm_stash_python_deleter(void *managed) {
    const mm_stash_python *python = ((const dl_managed *)managed)->manager_ctx;
    void *kind, *value, *trace;
    if (!python->is_alive()) return;
    const int state = python->lock();
    python->fetch(&kind, &value, &trace);
    python->deleted(managed);
    python->restore(kind, value, trace);
    python->unlock(state);
}
