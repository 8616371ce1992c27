/* SPDX-License-Identifier: MIT */
/* The kernels of MM_PTX, found by the address of what gcc compiled. */
#ifndef TESTS_CUDA_EMULATION_PTX_PTX_LIBRARY_H
#define TESTS_CUDA_EMULATION_PTX_PTX_LIBRARY_H

#include "tests/cuda_emulation/ptx/ptx_module.h"

namespace ptx {

/* The decoded kernel, and counts a launch of it. name: for messages. Thread-safe. Ends the program if there is none. */
const kernel &library_find(const void *function, const char *name);

/* How often lanes of a warp met at different instructions so far (ptx_run.cc). */
long split_meetings();

} // namespace ptx

#endif
