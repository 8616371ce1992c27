/* SPDX-License-Identifier: MIT */
/* Lets libmm.so load with an older glibc than the one that it was linked with: from 2.17 on (wheels' manylinux_2_17). A
 * linker binds a function to its newest version in the glibc at hand. For the functions here an older version does the
 * same: glibc 2.34 moved threads and dlsym from other libraries, 2.33 made functions of stat's inlines, 2.32 moved
 * pthread_sigmask, 2.29 changed errno after exp and log, which libmm does not read. libmm.so, jemalloc in it included,
 * calls the definitions here, which libmm.lds hides from others. The older libraries of threads and of dlsym are in the
 * process already: any Python there needs them. On other machines and C libraries, functions are as they are. */
#include <dlfcn.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/stat.h>

#if defined(__GLIBC__) && defined(__x86_64__)

#define DECLARE_OLD(version, name, type)                                                                               \
    type old_##name;                                                                                                   \
    __asm__(".symver old_" #name "," #name "@GLIBC_" version)

/* Defines NAME as a call of the NAME of that version. */
#define CALL_OLD(version, type, name, parameters, arguments)                                                           \
    DECLARE_OLD(version, name, __typeof__(name));                                                                      \
    type name parameters { return old_##name arguments; }

typedef void *thread_main(void *);

CALL_OLD("2.2.5", double, exp, (double x), (x))
CALL_OLD("2.2.5", double, log, (double x), (x))
CALL_OLD("2.2.5", void *, dlsym, (void *library, const char *name), (library, name))
CALL_OLD("2.2.5", int, pthread_create,
         (pthread_t * thread_out, const pthread_attr_t *attr, thread_main *run, void *ctx),
         (thread_out, attr, run, ctx))
CALL_OLD("2.2.5", int, pthread_join, (pthread_t thread, void **result_out), (thread, result_out))
CALL_OLD("2.2.5", int, pthread_key_create, (pthread_key_t * key_out, void (*destroy)(void *)), (key_out, destroy))
CALL_OLD("2.2.5", int, pthread_setspecific, (pthread_key_t key, const void *value), (key, value))
CALL_OLD("2.2.5", int, pthread_mutexattr_init, (pthread_mutexattr_t * attr), (attr))
CALL_OLD("2.2.5", int, pthread_mutexattr_destroy, (pthread_mutexattr_t * attr), (attr))
CALL_OLD("2.2.5", int, pthread_mutexattr_settype, (pthread_mutexattr_t * attr, int type), (attr, type))
CALL_OLD("2.2.5", int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex))
CALL_OLD("2.2.5", int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *before_out), (how, set, before_out))
CALL_OLD("2.12", int, pthread_setname_np, (pthread_t thread, const char *name), (thread, name))
CALL_OLD("2.12", int, pthread_getname_np, (pthread_t thread, char *name_out, size_t bytes), (thread, name_out, bytes))

enum { STAT_VERSION = 1 }; /* of struct stat; x86-64 has had no other */
typedef int path_stat(int version, const char *path, struct stat *out);
typedef int descriptor_stat(int version, int fd, struct stat *out);
typedef struct mallinfo heap_info(void);
DECLARE_OLD("2.2.5", __xstat, path_stat);
DECLARE_OLD("2.2.5", __lxstat, path_stat);
DECLARE_OLD("2.2.5", __fxstat, descriptor_stat);
DECLARE_OLD("2.2.5", mallinfo, heap_info);

int stat(const char *path, struct stat *out) { return old___xstat(STAT_VERSION, path, out); }
int lstat(const char *path, struct stat *out) { return old___lxstat(STAT_VERSION, path, out); }
int fstat(int fd, struct stat *out) { return old___fxstat(STAT_VERSION, fd, out); }

/* Before 2.33 there is mallinfo alone, which counts in 32 bits. Sets only what libmm reads. */
struct mallinfo2 mallinfo2(void) {
    struct mallinfo2 (*newer)(void);
    *(void **)&newer = old_dlsym(RTLD_DEFAULT, "mallinfo2");
    if (newer != NULL) return newer();
    struct mallinfo old = old_mallinfo();
    return (struct mallinfo2){.uordblks = (unsigned)old.uordblks, .hblkhd = (unsigned)old.hblkhd};
}

#endif
