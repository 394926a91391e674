// The directory where loader and trainer meet.
#include "loader/place.h"
#include "common/err.h"
#include "common/file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int place_of(Place *place, const char *endpoint) {
    *place = (Place){.ipc = true};
    char dir[PATH_MAX_BYTES];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (endpoint && !strncmp(endpoint, "ipc://", 6)) endpoint += 6;
    if (endpoint && strstr(endpoint, "://")) return fail(EX_USAGE, "'%s' is not an endpoint: ipc://DIR", endpoint);
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
    snprintf(place->ctl, sizeof place->ctl, "%.*s/ctl.sock", PLACE_PATH_MAX - 10, dir);
    snprintf(place->endpoint, sizeof place->endpoint, "ipc://%.*s/data.sock", PLACE_PATH_MAX - 11, dir);
    return 0;
}

int place_check(const Place *place) {
    struct stat st;
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

int place_make(const Place *place) {
    char parent[PLACE_PATH_MAX];
    memcpy(parent, place->dir, sizeof parent);
    char *slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = 0;
        if (dir_make(parent) < 0) return -1;
    }
    if (mkdir(place->dir, 0700) < 0 && errno != EEXIST) return fail_errno("cannot create '%s'", place->dir);
    return place_check(place);
}
