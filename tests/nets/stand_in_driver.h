/* SPDX-License-Identifier: MIT */
/* What tests ask the stand-in driver (libcuda.so.1), beside what cuDNN asks it. */
#ifndef TESTS_NETS_STAND_IN_DRIVER_H
#define TESTS_NETS_STAND_IN_DRIVER_H

enum { STAND_IN_KERNELS = 64, STAND_IN_NAME = 256 };

/* The kernels that were asked for by name since the last stand_in_forget: the first STAND_IN_KERNELS, and as many
 * characters of each name as fit. Returns how many. The names are the driver's. */
int stand_in_kernels(const char *names_out[STAND_IN_KERNELS]);
void stand_in_forget(void);

#endif
