/* SPDX-License-Identifier: MIT */
/* Makes one call of the device contract fail: the linker redirects the contract's functions here (--wrap). Calls of all
 * kinds and threads are counted, from device_fault_set on. */
#ifndef TESTS_SUITE_DEVICE_FAULT_H
#define TESTS_SUITE_DEVICE_FAULT_H

#include "mm/device/contract/device.h"

typedef enum device_fault {
    DEVICE_FAULT_NONE,
    DEVICE_FAULT_CALL,  /* the call fails: reserve, stream and event create, record, wait, copy, fill, checksum, mark,
                          launch */
    DEVICE_FAULT_TASK,  /* the call succeeds, but a task enqueued before its own fails */
    DEVICE_FAULT_DELAY, /* the call succeeds, but a task enqueued before its own takes long */
    DEVICE_FAULT_MEMORY_CALL, /* like CALL and TASK, but with MM_ERR_NOMEM */
    DEVICE_FAULT_MEMORY_TASK,
} device_fault;

/* The message of each injected failure, whose status is MM_ERR_DEVICE or MM_ERR_NOMEM. */
extern const char device_fault_message[];

enum { DEVICE_FAULT_NEW_PLACE = 0 };

/* From now on, gives the fault to the nth call (from 1) that can have it, and to no other. DEVICE_FAULT_NEW_PLACE: to
 * the first call from a place in the code where no call has had a fault since device_fault_forget_places. */
void device_fault_set(device_fault fault, int nth);
void device_fault_forget_places(void);
/* Calls are not counted while paused. */
void device_fault_pause(bool paused);
bool device_fault_happened(void);

/* fail: from now on all allocations from heaps fail. */
void device_fault_heaps(bool fail);

/* From now on, reservations of more than `bytes` fail with MM_ERR_NOMEM, whatever mm_device_memory_info says. bytes 0:
 * there is no such limit. */
void device_fault_give(mm_memory_kind kind, int64_t bytes);

#endif
