/* SPDX-License-Identifier: MIT */
/* Runs random tasks on several streams, ordered by events alone, and compares with a sequential run. */
#ifndef TESTS_DEVICE_DEVICE_DAG_H
#define TESTS_DEVICE_DEVICE_DAG_H

#include "mm/device/contract/device.h"

typedef struct device_dag_config {
    uint64_t seed;
    int streams; /* at most 8 */
    int operations;
} device_dag_config;

/* Fills a few cells of device memory, and copies between them. Each operation runs on a random stream, after waits for
 * the last uses of its cells. Each cell has one event, which is recorded again at each use while waits for it are
 * queued. Fails the calling cmocka test if a cell ends with wrong bytes. */
void device_dag_run(mm_device *device, const device_dag_config *config);

#endif
