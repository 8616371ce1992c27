/* How fast a device is, by the clock: a moment for each figure, through the device contract alone. */
#ifndef TOOLS_DEVICE_SPEED_H
#define TOOLS_DEVICE_SPEED_H

#include "mm/device/device.h"

enum { DEVICE_CODECS_MAX = 16 };

typedef struct device_codec_speed {
    char spec[64];
    int64_t encode, decode; /* of raw bytes a second; decode 0: there is none */
} device_codec_speed;

/* Bytes a second. */
typedef struct device_speed {
    int64_t out, in; /* between device and pinned memory, one way alone */
    int64_t both;    /* each way while both are busy */
    int64_t pinned;  /* how fast pinned memory is got; the host's is not touched yet */
    int64_t copy;    /* within the device: bytes copied, each of which is read and written */
    int n_codecs;
    device_codec_speed codec[DEVICE_CODECS_MAX];
} device_speed;

/* Takes about a second, and some hundred MB of the device. */
MM_CHECKED mm_status device_speed_measure(mm_device *device, device_speed *speed_out);

/* The link alone: out, in, both; the rest is 0. */
MM_CHECKED mm_status device_speed_link(mm_device *device, device_speed *speed_out);

/* One codec alone. MM_ERR_UNSUPPORTED: its code can be larger than the map. */
MM_CHECKED mm_status device_speed_codec(mm_device *device, const char *spec, device_codec_speed *speed_out);

#endif
