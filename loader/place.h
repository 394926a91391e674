// Where loader and trainer meet: a directory of ours with data.sock (ZeroMQ), ctl.sock (the ring) and the lock.
#pragma once

#include <stdbool.h>

enum { PLACE_PATH_MAX = 108 }; // of a unix socket (sun_path)

typedef struct {
    bool ipc;                          // else another ZeroMQ transport, which has no ring
    char endpoint[PLACE_PATH_MAX + 8]; // for ZeroMQ: ipc://DIR/data.sock
    char dir[PLACE_PATH_MAX], ctl[PLACE_PATH_MAX];
} Place;

// From "ipc://DIR", a plain DIR, or NULL: $XDG_RUNTIME_DIR/millrace, else /tmp/millrace-UID. 2 when it is too long for
// a socket or no endpoint at all.
int place_of(Place *place, const char *endpoint);

// Creates the directory (0700) when there is none, and refuses one that others own or may enter: 77.
int place_make(const Place *place);

// The trainer's look at it: fails (77) when the directory is there and is not ours alone. Absent is fine.
int place_check(const Place *place);
