/* What every codec must do, checked through pipeline/codec/codec.h alone, on the device that it is for. */
#ifndef TESTS_CODEC_CODEC_SUITE_H
#define TESTS_CODEC_CODEC_SUITE_H

/* Runs the suite on the codec of that spec; returns how many tests failed. Without the device's hardware all are
 * skipped. */
int codec_suite_run(const char *spec, const char *device_name);

#endif
