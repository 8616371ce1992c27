/* A device as a GPU is seen from the CPU: its memory faults at any touch, and copies happen late, when a stream is
 * synchronised. It has what pools and heaps use, no more. */
#ifndef TESTS_BUFFERS_UNTOUCHABLE_H
#define TESTS_BUFFERS_UNTOUCHABLE_H

#include "mm/device/device.h"

mm_device *untouchable_create(void);

/* Where the CPU sees the bytes of a pool's memory all the same: the same pages, mapped elsewhere. */
uint8_t *untouchable_window(mm_device *device, const void *memory);

/* Calls of mm_device_charge_alloc. */
int untouchable_charges(mm_device *device);

/* Copies from its memory to the host's. */
int untouchable_copies_out(mm_device *device);

#endif
