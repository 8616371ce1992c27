/* SPDX-License-Identifier: MIT */
/* Measures a device's speed, using only the device contract (mm/device/contract/) and codecs. */
#ifndef TOOLS_MEASURE_DEVICE_SPEED_H
#define TOOLS_MEASURE_DEVICE_SPEED_H

#include "mm/device/contract/device.h"

enum { DEVICE_CODECS_MAX = 16 };

typedef struct device_codec_speed {
    char spec[64];
    int64_t encode, decode; /* bytes of the map per second; decode 0: the codec has none */
} device_codec_speed;

/* Bytes per second. */
typedef struct device_speed {
    int64_t out, in; /* copies between device and pinned memory, the other direction idle */
    int64_t both;    /* each direction while both are busy */
    int64_t pinned;  /* allocation of pinned memory; on the host its pages are not touched yet */
    int64_t copy;    /* copies within the device; each byte is read and written */
    int n_codecs;
    device_codec_speed codec[DEVICE_CODECS_MAX];
} device_speed;

/* Measures all figures. Takes about a second, and some hundred MB on the device. */
MM_CHECKED mm_status device_speed_measure(mm_device *device, device_speed *speed_out);

/* Measures only the link: out, in, both. The rest is 0. */
MM_CHECKED mm_status device_speed_link(mm_device *device, device_speed *speed_out);

/* Measures one codec. MM_ERR_UNSUPPORTED: its code can be larger than the map. */
MM_CHECKED mm_status device_speed_codec(mm_device *device, const char *spec, device_codec_speed *speed_out);

#endif
