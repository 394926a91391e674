// Parses endpoints and prepares the directory of an ipc endpoint.
#include "loader/protocol/endpoint.h"
#include "common/err.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

// Only addresses and the name "localhost" count as this machine: the address of a looked-up name can change.
static int endpoint_parse_tcp(Endpoint *endpoint, const char *address, bool keys) {
    const char *host = address + strlen("tcp://"), *colon = strrchr(host, ':');
    char *end = NULL, name[64] = {0};
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    if (!colon || colon == host || !port || port > 65535 || *end || (size_t)(colon - host) >= sizeof name)
        return fail(EX_USAGE, "'%s' is not an endpoint: tcp://HOST:PORT, with a PORT from 1 to 65535", address);
    struct in_addr ip;
    memcpy(name, host, (size_t)(colon - host));
    bool loopback = !strcmp(name, "localhost") || !strcmp(name, "[::1]") ||
                    (inet_pton(AF_INET, name, &ip) == 1 && ntohl(ip.s_addr) >> 24 == 127);
    if (!loopback && !keys)
        return fail(EX_PERMISSION, "'%s' is reachable from other machines: that needs keys (millrace keygen)", address);
    snprintf(endpoint->zmq_address, sizeof endpoint->zmq_address, "tcp://%s%s",
             strcmp(name, "localhost") ? name : "127.0.0.1", colon);
    snprintf(endpoint->name, sizeof endpoint->name, "%.*s", ENDPOINT_PATH_MAX, address);
    return 0;
}

int endpoint_parse(Endpoint *endpoint, const char *address, bool keys) {
    *endpoint = (Endpoint){.ipc = !address || strncmp(address, "tcp://", 6)};
    if (!endpoint->ipc) return endpoint_parse_tcp(endpoint, address, keys);
    char dir[PATH_MAX_BYTES];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    bool scheme = address && !strncmp(address, "ipc://", 6);
    if (address && !scheme && *address != '/' && *address != '.')
        return fail(EX_USAGE, "'%s' is not an endpoint: ipc://DIR, tcp://HOST:PORT, or a directory as /DIR or ./DIR",
                    address);
    if (scheme) address += 6;
    if (address)
        snprintf(dir, sizeof dir, "%s", address);
    else if (runtime && *runtime)
        snprintf(dir, sizeof dir, "%s/millrace", runtime);
    else
        snprintf(dir, sizeof dir, "/tmp/millrace-%u", (unsigned)geteuid());
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/') dir[--length] = 0;
    if (!length) return fail(EX_USAGE, "the endpoint has an empty directory name: write ipc://DIR");
    if (length + sizeof "/data.sock" > ENDPOINT_PATH_MAX)
        return fail(EX_USAGE, "'%s' is too long for a socket: at most %zu bytes", dir,
                    ENDPOINT_PATH_MAX - sizeof "/data.sock");
    memcpy(endpoint->dir, dir, length + 1);
    snprintf(endpoint->name, sizeof endpoint->name, "ipc://%s", endpoint->dir);
    snprintf(endpoint->ctl, sizeof endpoint->ctl, "%.*s/ctl.sock", ENDPOINT_PATH_MAX - 10, dir);
    snprintf(endpoint->zmq_address, sizeof endpoint->zmq_address, "ipc://%.*s/data.sock", ENDPOINT_PATH_MAX - 11, dir);
    return 0;
}

int endpoint_parse_list(Endpoint *endpoints, int most, const char *addresses, bool keys) {
    char address[PATH_MAX_BYTES];
    int count = 0;
    if (!addresses) return endpoint_parse(endpoints, NULL, keys) < 0 ? -1 : 1;
    for (const char *at = addresses, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        if (count == most) return fail(EX_USAGE, "'%s' has more than %d endpoints", addresses, most);
        snprintf(address, sizeof address, "%.*s", (int)(end - at), at);
        if (endpoint_parse(&endpoints[count++], address, keys) < 0) return -1;
    }
    return count;
}

int endpoint_check(const Endpoint *endpoint) {
    struct stat st;
    if (!endpoint->ipc) return 0;
    if (lstat(endpoint->dir, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR) return 0;
        return fail_errno("cannot inspect '%s'", endpoint->dir);
    }
    if (!S_ISDIR(st.st_mode))
        return fail(EX_CREATE, "'%s' is not a directory: ipc://DIR is that of a running loader", endpoint->dir);
    if (st.st_uid != geteuid())
        return fail(EX_PERMISSION, "'%s' belongs to user %u, this process runs as %u: choose another --endpoint",
                    endpoint->dir, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return fail(EX_PERMISSION, "'%s' is open to others (mode %o): chmod 700 it", endpoint->dir, st.st_mode & 0777u);
    return 0;
}

int endpoint_lock(const Endpoint *endpoint, Lock *lock) {
    char parent[ENDPOINT_PATH_MAX];
    if (!endpoint->ipc) return 0;
    memcpy(parent, endpoint->dir, sizeof parent);
    char *slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = 0;
        if (dir_make(parent) < 0) return -1;
    }
    if (mkdir(endpoint->dir, 0700) < 0 && errno != EEXIST) return fail_create(endpoint->dir);
    // The lock comes before the sockets are bound, because libzmq silently replaces the socket of a running loader.
    return endpoint_check(endpoint) < 0 ? -1 : lock_take(lock, endpoint->dir, "another --endpoint");
}

int endpoint_check_files(void) {
    enum { FILES = 16 }; // of a context, a socket and its monitor
    int files[FILES], count = 0;
    while (count < FILES && (files[count] = eventfd(0, EFD_CLOEXEC)) >= 0) count++;
    int status = count == FILES ? 0 : fail_errno("cannot open the files of ZeroMQ (raise `ulimit -n`)");
    while (count) close(files[--count]);
    return status;
}

void endpoint_set(void *socket, int option, int value) {
    if (zmq_setsockopt(socket, option, &value, sizeof value) < 0)
        die(EX_BUG, "ZeroMQ refuses option %d: %s", option, zmq_strerror(errno));
}

void endpoint_keep_alive(void *socket, int silence_ms) {
    endpoint_set(socket, ZMQ_HEARTBEAT_IVL, silence_ms / 4);
    endpoint_set(socket, ZMQ_HEARTBEAT_TIMEOUT, silence_ms);
}
