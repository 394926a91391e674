// libzmq aborts when accept4() fails with EMFILE. So this file defines accept4() for the whole program, libzmq
// included: without a free descriptor, the connection gets a spare one and is closed at once.
#include "loader/server/descriptors.h"
#include "common/log.h"
#include "loader/server/unfinished.h"
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WARN_S = 10, RETRY_US = 10000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int spare = -1;

void descriptors_prepare(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (spare < 0) spare = eventfd(0, EFD_CLOEXEC);
}

static void warn(void) {
    static uint64_t warned_ns;
    uint64_t now = clock_ns();
    if (warned_ns && now - warned_ns < WARN_S * 1000000000ull) return;
    warned_ns = now;
    log_warn("refused a connection: all descriptors are in use (raise `ulimit -Hn`)");
}

// Closes the next connection of the listener.
static void refuse(int listener) {
    pthread_mutex_lock(&mutex);
    if (spare >= 0) close(spare);
    long peer = syscall(SYS_accept4, listener, NULL, NULL, 0);
    if (peer >= 0) close((int)peer);
    spare = eventfd(0, EFD_CLOEXEC);
    if (peer >= 0) warn();
    pthread_mutex_unlock(&mutex);
    if (peer < 0) usleep(RETRY_US); // another thread took the descriptor: the connection waits
}

struct sockaddr;
int accept4(int listener, struct sockaddr *address, unsigned *bytes, int flags); // the prototype of the C library

int accept4(int listener, struct sockaddr *address, unsigned *bytes, int flags) {
    long peer = syscall(SYS_accept4, listener, address, bytes, flags);
    if (peer >= 0) unfinished_begin((int)peer);
    if (peer >= 0 || (errno != EMFILE && errno != ENFILE)) return (int)peer;
    refuse(listener);
    errno = ECONNABORTED; // which every caller of accept4() has to expect
    return -1;
}
