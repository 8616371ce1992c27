/* Random work on several streams, ordered by events alone, against the same work done one after the other. */
#ifndef TESTS_DEVICE_DEVICE_DAG_H
#define TESTS_DEVICE_DEVICE_DAG_H

#include "mm/device/device.h"

typedef struct device_dag_config {
    uint64_t seed;
    int streams; /* at most 8 */
    int operations;
} device_dag_config;

/* Fills and copies between a few cells of device memory, each operation on a random stream, after a wait for the last
 * use of each cell that it touches. Each cell has one event, recorded again at every use while earlier waits for it are
 * queued. Fails the calling cmocka test if a cell ends with other bytes than it should. */
void device_dag_run(mm_device *device, const device_dag_config *config);

#endif
