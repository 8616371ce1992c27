/* SPDX-License-Identifier: MIT */
/* Files of made-up trees of /proc and /sys. */
#ifndef TESTS_DEVICE_MADE_FILE_H
#define TESTS_DEVICE_MADE_FILE_H

/* Writes a file below the folder `root`; makes the folders of `path`, which begins with "/". Fails the test if it
 * cannot. */
void made_file(const char *root, const char *path, const char *text);

#endif
