/* SPDX-License-Identifier: MIT */
#include "mm/manager/fault_watch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { WATCHES = 32 }; /* chosen: managers with self_check at a time */

struct mm_fault_watch {
    _Atomic(const mm_manager *) manager; /* NULL: free */
    mm_fault_explain explain;
    void (*fault_fn)(const char *message);
};

/* Signal handlers get no argument of ours, so this state is the process's. The handler reads it without the lock. */
static mm_fault_watch watches[WATCHES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int used;
static struct sigaction before; /* what the handler was before ours */

void mm_fault_print(const char *message) {
    static const char end[] = "\n";
    ssize_t written = write(STDERR_FILENO, message, strlen(message));
    if (written >= 0) written = write(STDERR_FILENO, end, sizeof end - 1);
    (void)written;
}

static void tell(const void *address) {
    char text[MM_MESSAGE_CAPACITY];
    for (int i = 0; i < WATCHES; i++) {
        const mm_manager *manager = atomic_load(&watches[i].manager);
        if (manager && watches[i].explain(manager, address, text, sizeof text)) watches[i].fault_fn(text);
    }
}

/* The default action happens when the instruction that faulted runs again, at the line at fault. */
static void on_fault(int signal_number, siginfo_t *info, void *context) {
    const int error = errno;
    tell(info->si_addr);
    errno = error;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal_number, info, context);
    else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)
        signal(signal_number, SIG_DFL);
    else
        before.sa_handler(signal_number);
}

static mm_status install(void) {
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    ours.sa_sigaction = on_fault;
    sigemptyset(&ours.sa_mask);
    if (used == 0 && sigaction(SIGSEGV, &ours, &before) != 0)
        return mm_fail(MM_ERR_DEVICE, "cannot handle SIGSEGV: %s", strerror(errno));
    used++;
    return MM_OK;
}

static mm_status start(const mm_manager *manager, mm_fault_explain explain, void (*fault_fn)(const char *message),
                       mm_fault_watch **watch_out) {
    for (int i = 0; i < WATCHES; i++) {
        if (atomic_load(&watches[i].manager)) continue;
        MM_TRY(install());
        watches[i].explain = explain;
        watches[i].fault_fn = fault_fn;
        atomic_store(&watches[i].manager, manager);
        *watch_out = &watches[i];
        return MM_OK;
    }
    return mm_fail(MM_ERR_UNSUPPORTED, "fault_fn: %d managers have one at a time at most", WATCHES);
}

mm_status mm_fault_watch_start(const mm_manager *manager, mm_fault_explain explain,
                               void (*fault_fn)(const char *message), mm_fault_watch **watch_out) {
    pthread_mutex_lock(&lock);
    const mm_status status = start(manager, explain, fault_fn, watch_out);
    pthread_mutex_unlock(&lock);
    return status;
}

void mm_fault_watch_stop(mm_fault_watch *watch) {
    struct sigaction now;
    if (!watch) return;
    pthread_mutex_lock(&lock);
    atomic_store(&watch->manager, NULL);
    if (--used == 0 && sigaction(SIGSEGV, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
        now.sa_sigaction == on_fault)
        sigaction(SIGSEGV, &before, NULL);
    pthread_mutex_unlock(&lock);
}
