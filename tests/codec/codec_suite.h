/* SPDX-License-Identifier: MIT */
/* Conformance suite of codecs. It uses them only through pipeline/codec/codec.h. */
#ifndef TESTS_CODEC_CODEC_SUITE_H
#define TESTS_CODEC_CODEC_SUITE_H

/* Runs the suite on a codec and a device; returns the number of failed tests. All are skipped if the device's hardware
 * is absent. */
int codec_suite_run(const char *spec, const char *device_name);

#endif
