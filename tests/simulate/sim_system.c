// The system of a simulated process: time, random numbers, threads, signals, and a disk that may be slow or full.
// Files, sockets of ctl.sock and eventfds are real ones, of this process: they answer at once. A process that is killed
// loses its descriptors.
#include "loader/server/frame_cache.h"
#include "tests/simulate/sim.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

// The linker turns the call of a function to __wrap_, and __real_ is the function (SIM_WRAP in the Makefile).
#define WRAP(result, name, arguments)                                                                                  \
    result __real_##name arguments;                                                                                    \
    result __wrap_##name arguments;                                                                                    \
    result __wrap_##name arguments

enum { FDS_MAX = 1024, SIGNALS_MAX = 64 };

bool sim_disk_full;
Node *sim_disk_user;
uint64_t sim_disk_ns = 20 * US, sim_decode_ns = 200 * US;
unsigned sim_disk_errors;
uint64_t sim_io = 1;

static int reserved = -1; // the descriptor that has space on a full disk

// --- descriptors

static const Node *owners[FDS_MAX];
static struct {
    const Node *node;
    int fd; // the other end
} signal_pipes[SIGNALS_MAX];

static int own(int fd) {
    if (fd >= FDS_MAX) sim_fail("more than %d descriptors", FDS_MAX);
    if (fd >= 0 && sim_node) owners[fd] = sim_node;
    return fd;
}

WRAP(int, close, (int fd)) {
    if (fd >= 0 && fd < FDS_MAX) owners[fd] = NULL;
    if (fd == reserved) reserved = -1;
    sim_io++;
    return __real_close(fd);
}

WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t size)) {
    return sim_io++, __real_connect(fd, address, size);
}
WRAP(ssize_t, send, (int fd, const void *data, size_t size, int flags)) {
    return sim_io++, __real_send(fd, data, size, flags);
}
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags)) {
    return sim_io++, __real_sendmsg(fd, message, flags);
}
WRAP(int, eventfd, (unsigned count, int flags)) { return own(__real_eventfd(count, flags)); }
WRAP(int, socket, (int domain, int type, int protocol)) { return own(__real_socket(domain, type, protocol)); }
WRAP(int, memfd_create, (const char *name, unsigned flags)) { return own(__real_memfd_create(name, flags)); }
WRAP(int, accept4, (int listener, struct sockaddr *address, unsigned *bytes, int flags)) {
    return own(__real_accept4(listener, address, bytes, flags));
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return own(__real_open(path, flags, mode));
}

// --- signals

WRAP(int, signalfd, (int fd, const sigset_t *mask, int flags)) {
    int ends[2];
    (void)fd, (void)mask, (void)flags;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) < 0) sim_fail("no descriptors");
    unsigned i = 0;
    while (i < SIGNALS_MAX && signal_pipes[i].node) i++;
    if (i == SIGNALS_MAX) sim_fail("more than %d processes with signals", SIGNALS_MAX);
    signal_pipes[i].node = sim_node, signal_pipes[i].fd = own(ends[1]);
    return own(ends[0]);
}

void system_signal(const Node *node, int number) {
    const struct signalfd_siginfo signal = {.ssi_signo = (uint32_t)number};
    for (unsigned i = 0; i < SIGNALS_MAX; i++)
        if (signal_pipes[i].node == node && send(signal_pipes[i].fd, &signal, sizeof signal, MSG_NOSIGNAL) > 0) return;
}

WRAP(int, pthread_sigmask, (int how, const sigset_t *mask, sigset_t *before)) {
    return (void)how, (void)mask, (void)before, 0;
}
WRAP(sighandler_t, signal, (int number, sighandler_t handler)) { return (void)number, handler; }

void system_node_ended(const Node *node) {
    if (sim_disk_user == node) sim_disk_user = NULL;
    for (unsigned i = 0; i < SIGNALS_MAX; i++)
        if (signal_pipes[i].node == node) signal_pipes[i].node = NULL;
    for (int fd = 0; fd < FDS_MAX; fd++)
        if (owners[fd] == node) __wrap_close(fd);
}

// --- time and chance

WRAP(int, clock_gettime, (clockid_t clock, struct timespec *time)) {
    if (!sim_node) return __real_clock_gettime(clock, time);
    if (sim_chance(3)) task_sleep(sim_spread(20 * US)); // another process runs, or this one is stopped in its work
    const uint64_t ns = sim_now + sim_node->clock_offset;
    *time = (struct timespec){(time_t)(ns / S), (long)(ns % S)};
    return 0;
}

WRAP(ssize_t, getrandom, (void *data, size_t size, unsigned flags)) {
    (void)flags;
    for (size_t i = 0; i < size; i++) ((uint8_t *)data)[i] = (uint8_t)sim_random();
    return (ssize_t)size;
}

WRAP(int, usleep, (unsigned us)) {
    task_sleep(us * US);
    return 0;
}

// --- threads: tasks, which run one at a time until they wait

typedef struct {
    void *(*main)(void *self);
    void *self;
    bool ended;
} Thread;

static void run_thread(void *self) {
    Thread *thread = self;
    thread->main(thread->self);
    thread->ended = true;
}

static bool thread_ended(void *self) { return ((Thread *)self)->ended; }

WRAP(int, pthread_create, (pthread_t * id, const pthread_attr_t *attributes, void *(*main)(void *), void *self)) {
    Thread *thread = calloc(1, sizeof *thread);
    (void)attributes;
    if (!thread) return EAGAIN;
    *thread = (Thread){main, self, false};
    task_start(sim_node, run_thread, thread, sim_spread(sim_disk_ns));
    *id = (pthread_t)(uintptr_t)thread;
    return 0;
}

WRAP(int, pthread_join, (pthread_t id, void **result)) {
    Thread *thread = (Thread *)(uintptr_t)id;
    (void)result;
    while (!thread->ended) task_wait(thread_ended, thread, UINT64_MAX);
    free(thread);
    return 0;
}
WRAP(int, pthread_detach, (pthread_t id)) { return (void)id, 0; }

WRAP(int, pthread_mutex_lock, (pthread_mutex_t * mutex)) {
    while (pthread_mutex_trylock(mutex) != 0) task_sleep(US);
    return 0;
}

// A condition holds the number of its signals; a task that waits goes on after the next one.
typedef struct {
    const uint64_t *signals;
    uint64_t before;
} Waiting;

static uint64_t *signals_of(pthread_cond_t *condition) { return (uint64_t *)(uintptr_t)condition; }

static bool was_signalled(void *self) {
    const Waiting *waiting = self;
    return *waiting->signals != waiting->before;
}

static int wait_condition(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t ns) {
    Waiting waiting = {signals_of(condition), *signals_of(condition)};
    pthread_mutex_unlock(mutex);
    const bool signalled = task_wait(was_signalled, &waiting, ns);
    pthread_mutex_lock(mutex);
    return signalled ? 0 : ETIMEDOUT;
}

WRAP(int, pthread_cond_init, (pthread_cond_t * condition, const pthread_condattr_t *attributes)) {
    (void)attributes;
    *signals_of(condition) = 0;
    return 0;
}
WRAP(int, pthread_cond_destroy, (pthread_cond_t * condition)) { return (void)condition, 0; }
WRAP(int, pthread_cond_signal, (pthread_cond_t * condition)) { return ++*signals_of(condition), 0; }
WRAP(int, pthread_cond_broadcast, (pthread_cond_t * condition)) { return ++*signals_of(condition), 0; }
WRAP(int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t *mutex)) {
    return wait_condition(condition, mutex, UINT64_MAX);
}
WRAP(int, pthread_cond_timedwait, (pthread_cond_t * condition, pthread_mutex_t *mutex, const struct timespec *end)) {
    const uint64_t end_ns = (uint64_t)end->tv_sec * S + (uint64_t)end->tv_nsec;
    const uint64_t now_ns = sim_now + sim_node->clock_offset;
    return wait_condition(condition, mutex, end_ns > now_ns ? end_ns - now_ns : 0);
}

// --- the disk

// A call that reaches the disk: it takes a time, in which the process may be killed, and may fail.
static bool disk_fails(void) {
    if (!sim_node) return false;
    sim_disk_user = sim_node;
    task_sleep(sim_spread(sim_disk_ns));
    sim_disk_user = NULL;
    if (sim_disk_full) errno = ENOSPC;
    return sim_disk_full;
}

WRAP(int, fallocate, (int fd, int mode, off_t offset, off_t size)) {
    if (disk_fails()) return -1;
    reserved = fd;
    return __real_fallocate(fd, mode, offset, size);
}
WRAP(ssize_t, write, (int fd, const void *data, size_t size)) {
    struct stat st;
    sim_io++;
    if (!sim_node || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return __real_write(fd, data, size);
    const bool fails = disk_fails() && fd != reserved;
    if (fails && size < 2) return -1;
    return __real_write(fd, data, fails ? sim_below(size / 2) + 1 : size);
}
WRAP(int, fsync, (int fd)) {
    struct stat st;
    if (disk_fails()) return -1;
    if (sim_node && sim_chance(10 * sim_disk_errors) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return errno = EIO, -1;
    return __real_fsync(fd);
}
WRAP(int, rename, (const char *from, const char *to)) { return disk_fails() ? -1 : __real_rename(from, to); }
WRAP(int, truncate, (const char *path, off_t size)) {
    disk_fails();
    return __real_truncate(path, size);
}

// --- the rest

int __wrap_mapguard_run(int (*read)(void *self), void *self, const char *path);
int __wrap_mapguard_run(int (*read)(void *self), void *self, const char *path) { // its thread is a task
    return (void)path, read(self);
}

int __wrap_endpoint_check_files(void);
int __wrap_endpoint_check_files(void) { return 0; } // there is no libzmq that needs them

WRAP(int, frame_decode, (const FramePlace *place, ShardCursor *cursor, void *ids)) {
    task_sleep(sim_spread(sim_decode_ns));
    if (sim_chance(sim_disk_errors)) return fail(EX_IO, "the simulated disk cannot read a frame");
    return __real_frame_decode(place, cursor, ids);
}

_Noreturn void __wrap_die(int code, const char *format, ...);
_Noreturn void __wrap_die(int code, const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sim_fail("the program ends itself (%d): %s", code, text);
}
