/* SPDX-License-Identifier: MIT */
/* Threads of the library, as the operating system's scheduler sees them. */
#ifndef MM_DEVICE_HOST_THREAD_H
#define MM_DEVICE_HOST_THREAD_H

/* For a thread that sleeps most of the time, and whose short work others wait for: asks that it runs soon after it
 * wakes, before threads that compute for long. Its share of the CPU stays the same. It asks Linux's fair scheduler for
 * a shorter time slice (0.1 ms; from version 6.12 on); on other systems it does nothing. */
void mm_thread_run_soon(void);

#endif
