/* SPDX-License-Identifier: MIT */
/* Named ranges of the calling thread for a profiler's timeline: NVTX in builds with the CUDA toolkit, nothing in
 * others. Ranges nest. They cost next to nothing without a profiler. */
#ifndef MM_DEVICE_TRACE_H
#define MM_DEVICE_TRACE_H

/* Opens the range "WHAT NAME", such as "forward conv1" or "encode conv1.out". */
void mm_trace_push(const char *what, const char *name);
void mm_trace_pop(void);

#endif
