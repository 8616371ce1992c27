/* SPDX-License-Identifier: MIT */
/* A device whose memory the CPU cannot reach, as a GPU's: any access faults, and copies happen late, when a stream is
 * synchronised. It implements only what pools and heaps use. */
#ifndef TESTS_BUFFERS_UNTOUCHABLE_H
#define TESTS_BUFFERS_UNTOUCHABLE_H

#include "mm/device/contract/device.h"

mm_device *untouchable_create(void);

/* A readable mapping of the same pages, for the test. */
uint8_t *untouchable_window(mm_device *device, const void *memory);

/* Number of calls of mm_device_charge_alloc. */
int untouchable_charges(mm_device *device);

/* Number of copies from its memory to the host. */
int untouchable_copies_out(mm_device *device);

#endif
