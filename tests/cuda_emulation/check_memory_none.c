/* SPDX-License-Identifier: MIT */
/* No checker of kernels in this build. */
#include "tests/cuda_emulation/check_memory.h"

void check_memory_made(const void *base, size_t bytes, check_kind kind) { (void)base, (void)bytes, (void)kind; }
void check_memory_gone(const void *base) { (void)base; }
void check_memory_opened(const void *at, size_t bytes, bool open) { (void)at, (void)bytes, (void)open; }
void check_memory_written(const void *at, size_t bytes) { (void)at, (void)bytes; }
