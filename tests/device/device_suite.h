/* What every device must do, checked through mm/device/device.h alone. */
#ifndef TESTS_DEVICE_DEVICE_SUITE_H
#define TESTS_DEVICE_DEVICE_SUITE_H

/* Runs the suite on the device of that name; returns how many tests failed. */
int device_suite_run(const char *device_name);

#endif
