/* SPDX-License-Identifier: MIT */
/* Conformance suite of devices: tests through mm/device/contract/device.h alone. */
#ifndef TESTS_DEVICE_DEVICE_SUITE_H
#define TESTS_DEVICE_DEVICE_SUITE_H

/* Runs the suite on a device; returns the number of failed tests. */
int device_suite_run(const char *device_name);

#endif
