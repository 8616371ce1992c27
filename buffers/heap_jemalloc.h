/* Inside the heap only: jemalloc 5.3 under the name je_ (tools/bazel/jemalloc.bzl), and how it is set. */
#ifndef BUFFERS_HEAP_JEMALLOC_H
#define BUFFERS_HEAP_JEMALLOC_H

#include <jemalloc/jemalloc.h>
#include <stdbool.h>

/* Read by our copy after the environment's MALLOC_CONF, which is meant for others. No caches and no retained extents: a
 * freed extent goes back to its range at once. Nothing writes into what it manages, which the CPU may not reach. No
 * tcache also means that its thread state behind MM_JEMALLOC_THREAD_BYTES is never used. */
#define MM_JEMALLOC_CONF                                                                                               \
    "tcache:false,retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,background_thread:false,"                             \
    "narenas:1,percpu_arena:disabled,junk:false,zero:false,abort:false,abort_conf:false,"                              \
    "stats_print:false,hpa:false,san_guard_large:0,san_guard_small:0"

/* What tools/bazel/jemalloc.bzl leaves of jemalloc's thread state. */
enum { MM_JEMALLOC_THREAD_BYTES = 0x358 };

/* Of experimental.arenas_create_ext; in none of its headers. */
typedef struct mm_jemalloc_arena_config {
    extent_hooks_t *extent_hooks;
    bool metadata_use_hooks;
} mm_jemalloc_arena_config;

#endif
