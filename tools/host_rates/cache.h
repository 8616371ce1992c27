/* SPDX-License-Identifier: MIT */
/* The file of host_rates.h, as host_rates_open reads it. */
#ifndef TOOLS_HOST_RATES_CACHE_H
#define TOOLS_HOST_RATES_CACHE_H

#include "tools/host_rates/host_rates.h"

/* Reads the rates of the target's host. *path_out is also set on failure. MM_ERR_NOT_FOUND: nothing was measured, with
 * so many threads; MM_ERR_FORMAT, MM_ERR_IO: the file is of another machine or version, or cannot be read: the message
 * says what differs, and what to do. MM_ERR_NOMEM. */
MM_CHECKED mm_status host_cache_read(const target *target, char path_out[PATH_MAX], machine *machine_out,
                                     char measured_out[16]);

#endif
