/* SPDX-License-Identifier: MIT */
/* How fast CPUs update weights: the rate of steps on the host (host_bytes_per_s). */
#ifndef TOOLS_MEASURE_HOST_UPDATES_H
#define TOOLS_MEASURE_HOST_UPDATES_H

#include "nets/contract/backend.h"

/* The bytes a second that AdamW's update on the backend's threads reads and writes: the median of a few updates of more
 * weights than caches hold. Takes 256 MiB. The backend is that of device host. MM_ERR_NOMEM. */
MM_CHECKED mm_status host_updates_measure(nets_backend *backend, double *bytes_per_s_out);

#endif
