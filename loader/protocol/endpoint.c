// The directory where loader and trainer meet.
#include "loader/protocol/endpoint.h"
#include "common/err.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

// Only numbers and the one name that mean this machine: a name that is looked up may mean another tomorrow.
static int place_of_tcp(Place *place, const char *endpoint, bool keys) {
    const char *host = endpoint + strlen("tcp://"), *colon = strrchr(host, ':');
    char *end = NULL, name[64] = {0};
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    if (!colon || colon == host || !port || port > 65535 || *end || (size_t)(colon - host) >= sizeof name)
        return fail(EX_USAGE, "'%s' is not an endpoint: tcp://HOST:PORT", endpoint);
    struct in_addr address;
    memcpy(name, host, (size_t)(colon - host));
    bool loopback = !strcmp(name, "localhost") || !strcmp(name, "[::1]") ||
                    (inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
    if (!loopback && !keys)
        return fail(EX_PERMISSION, "'%s' leaves this machine: that needs keys (loader keygen)", endpoint);
    snprintf(place->endpoint, sizeof place->endpoint, "tcp://%s%s", strcmp(name, "localhost") ? name : "127.0.0.1",
             colon);
    snprintf(place->name, sizeof place->name, "%s", endpoint);
    return 0;
}

int place_of(Place *place, const char *endpoint, bool keys) {
    *place = (Place){.ipc = !endpoint || strncmp(endpoint, "tcp://", 6)};
    if (!place->ipc) return place_of_tcp(place, endpoint, keys);
    char dir[PATH_MAX_BYTES];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (endpoint && !strncmp(endpoint, "ipc://", 6)) endpoint += 6;
    if (endpoint && strstr(endpoint, "://"))
        return fail(EX_USAGE, "'%s' is not an endpoint: ipc://DIR or tcp://HOST:PORT", endpoint);
    if (endpoint)
        snprintf(dir, sizeof dir, "%s", endpoint);
    else if (runtime && *runtime)
        snprintf(dir, sizeof dir, "%s/millrace", runtime);
    else
        snprintf(dir, sizeof dir, "/tmp/millrace-%u", (unsigned)geteuid());
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/') dir[--length] = 0;
    if (!length) return fail(EX_USAGE, "the endpoint names no directory");
    if (length + sizeof "/data.sock" > PLACE_PATH_MAX)
        return fail(EX_USAGE, "'%s' is too long for a socket: at most %zu bytes", dir,
                    PLACE_PATH_MAX - sizeof "/data.sock");
    memcpy(place->dir, dir, length + 1);
    snprintf(place->name, sizeof place->name, "ipc://%s", place->dir);
    snprintf(place->ctl, sizeof place->ctl, "%.*s/ctl.sock", PLACE_PATH_MAX - 10, dir);
    snprintf(place->endpoint, sizeof place->endpoint, "ipc://%.*s/data.sock", PLACE_PATH_MAX - 11, dir);
    return 0;
}

int place_check(const Place *place) {
    struct stat st;
    if (!place->ipc) return 0;
    if (lstat(place->dir, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR) return 0;
        return fail_errno("cannot look at '%s'", place->dir);
    }
    if (!S_ISDIR(st.st_mode)) return fail(EX_CREATE, "'%s' is not a directory", place->dir);
    if (st.st_uid != geteuid())
        return fail(EX_PERMISSION, "'%s' belongs to user %u, we are %u: choose another --endpoint", place->dir,
                    (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return fail(EX_PERMISSION, "'%s' is open to others (mode %o): chmod 700 it", place->dir, st.st_mode & 0777u);
    return 0;
}

int place_take(const Place *place, Lock *lock) {
    char parent[PLACE_PATH_MAX];
    if (!place->ipc) return 0;
    memcpy(parent, place->dir, sizeof parent);
    char *slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = 0;
        if (dir_make(parent) < 0) return -1;
    }
    if (mkdir(place->dir, 0700) < 0 && errno != EEXIST) return fail_errno("cannot create '%s'", place->dir);
    // Before the sockets: libzmq would take a living loader's path from it without a word.
    return place_check(place) < 0 ? -1 : lock_take(lock, place->dir);
}

void place_keep_alive(void *socket) {
    int every_ms = 500, silence_ms = 2000;
    zmq_setsockopt(socket, ZMQ_HEARTBEAT_IVL, &every_ms, sizeof every_ms);
    zmq_setsockopt(socket, ZMQ_HEARTBEAT_TIMEOUT, &silence_ms, sizeof silence_ms);
}
