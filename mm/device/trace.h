/* Names of what the host is doing, for a profiler's timeline: NVTX in builds with the CUDA toolkit, nothing in others.
 * The ranges of a thread nest. Cheap where nobody profiles. */
#ifndef MM_DEVICE_TRACE_H
#define MM_DEVICE_TRACE_H

/* "WHAT NAME": "forward conv1", "encode conv1.out". */
void mm_trace_push(const char *what, const char *name);
void mm_trace_pop(void);

#endif
