/* A device that fails once, on purpose: the linker puts these functions in the place of the device contract's
 * (--wrap), in front of the host device. Calls are counted from device_fault_set on, whatever their kind and thread. */
#ifndef TESTS_SUITE_DEVICE_FAULT_H
#define TESTS_SUITE_DEVICE_FAULT_H

#include "mm/device/device.h"

typedef enum device_fault {
    DEVICE_FAULT_NONE,
    DEVICE_FAULT_CALL,        /* the call fails: reserve, stream and event create, record, wait, copy, fill, checksum,
                          launch */
    DEVICE_FAULT_TASK,        /* the call succeeds, but a task before its work fails when it runs */
    DEVICE_FAULT_DELAY,       /* a task before its work takes long */
    DEVICE_FAULT_MEMORY_CALL, /* as CALL and TASK, but what fails says that memory ran out */
    DEVICE_FAULT_MEMORY_TASK,
} device_fault;

/* What they fail with, MM_ERR_DEVICE or MM_ERR_NOMEM, says this. */
extern const char device_fault_message[];

enum { DEVICE_FAULT_NEW_PLACE = 0 };

/* The nth call (from 1) of those that can, from now on, has the fault; then no other. DEVICE_FAULT_NEW_PLACE: the first
 * that comes from a place in the code that has not had its fault so since device_fault_forget_places. */
void device_fault_set(device_fault fault, int nth);
void device_fault_forget_places(void);
/* While paused, calls are not counted. */
void device_fault_pause(bool paused);
/* Whether it has happened. */
bool device_fault_happened(void);

/* From now on no unplanned allocation succeeds, or all do that can. */
void device_fault_heaps(bool fail);

/* From now on a reservation of more than so many bytes fails with MM_ERR_NOMEM, whatever mm_device_memory_info says;
 * 0: as the device has it. */
void device_fault_give(mm_memory_kind kind, int64_t bytes);

#endif
