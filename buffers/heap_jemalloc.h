/* SPDX-License-Identifier: MIT */
/* Private to the heap: jemalloc 5.3 with the prefix je_ (tools/bazel/jemalloc.bzl), and its options. */
#ifndef BUFFERS_HEAP_JEMALLOC_H
#define BUFFERS_HEAP_JEMALLOC_H

#include <jemalloc/jemalloc.h>
#include <stdbool.h>

/* Options of our copy of jemalloc. It reads them after the environment's MALLOC_CONF, so they override it. Without
 * caches and retained extents a freed extent returns to its range at once. Without junk and zero jemalloc never writes
 * into the memory that it manages, which the CPU may be unable to reach. Without tcache the thread state past
 * MM_JEMALLOC_THREAD_BYTES is never used. */
#define MM_JEMALLOC_CONF                                                                                               \
    "tcache:false,retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,background_thread:false,"                             \
    "narenas:1,percpu_arena:disabled,junk:false,zero:false,abort:false,abort_conf:false,"                              \
    "stats_print:false,hpa:false,san_guard_large:0,san_guard_small:0"

/* Bytes of jemalloc's thread state that the build keeps; tools/bazel/jemalloc.bzl says why so many. */
enum { MM_JEMALLOC_THREAD_BYTES = 0x358 };

/* Argument of the mallctl experimental.arenas_create_ext. No header of jemalloc declares it. */
typedef struct mm_jemalloc_arena_config {
    extent_hooks_t *extent_hooks;
    bool metadata_use_hooks;
} mm_jemalloc_arena_config;

#endif
