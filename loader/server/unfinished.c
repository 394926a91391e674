// A connection that is closed ends with an error of recv(), by which libzmq drops the parts that it holds.
#include "loader/server/unfinished.h"
#include "common/log.h"
#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// A trainer's requests, which may wait in ZeroMQ's queue, have less than REQUESTS_BYTES.
enum { CONNECTIONS = 1 << 16, REQUESTS_BYTES = 16 << 10, WARN_S = 10 };

static struct {
    _Atomic uint64_t socket; // its SO_COOKIE: another one has the descriptor later
    _Atomic uint64_t bytes;  // since the last message, and 1; 0: not accepted here
} connections[CONNECTIONS];
static _Atomic uint64_t total, closed;

static uint64_t cookie_of(int fd) {
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size);
    return cookie;
}

static void set_bytes(unsigned place, uint64_t bytes) {
    atomic_fetch_add(&total, bytes - atomic_exchange(&connections[place].bytes, bytes));
}

void unfinished_begin(int fd) {
    const unsigned place = (unsigned)fd % CONNECTIONS;
    atomic_store(&connections[place].socket, cookie_of(fd));
    set_bytes(place, 1);
}

void unfinished_delivered(int fd) {
    const unsigned place = (unsigned)fd % CONNECTIONS;
    if (atomic_load(&connections[place].bytes) > 1) set_bytes(place, 1);
}

uint64_t unfinished_closed(void) { return atomic_load(&closed); }

static void warn(int fd, uint64_t bytes) {
    static _Atomic uint64_t warned_ns;
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[64] = "";
    const uint64_t now = clock_ns();
    if (warned_ns && now - warned_ns < WARN_S * 1000000000ull) return;
    warned_ns = now;
    if (getpeername(fd, (struct sockaddr *)&address, &size) < 0 || address.ss_family == AF_UNIX ||
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(host, sizeof host, "a process of this machine");
    log_warn("closed a connection of %s: it sent %llu bytes of a message that does not end", host,
             (unsigned long long)bytes);
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
    const ssize_t got = syscall(SYS_recvfrom, fd, data, size, flags, NULL, NULL);
    const unsigned place = (unsigned)fd % CONNECTIONS;
    if (!atomic_load(&connections[place].bytes)) return got;
    if (got <= 0) {
        const int error = errno;
        if (!got || (error != EAGAIN && error != EINTR)) set_bytes(place, 0);
        errno = error;
        return got;
    }
    const uint64_t more = (uint64_t)got, bytes = atomic_fetch_add(&connections[place].bytes, more) + more;
    const uint64_t all = atomic_fetch_add(&total, more) + more;
    if (bytes <= REQUESTS_BYTES || (bytes <= UNFINISHED_MAX_BYTES && all <= UNFINISHED_TOTAL_BYTES)) return got;
    const bool is_ours = cookie_of(fd) == atomic_load(&connections[place].socket);
    set_bytes(place, 0);
    if (!is_ours) return got;
    atomic_fetch_add(&closed, 1);
    warn(fd, bytes);
    errno = ECONNRESET;
    return -1;
}
