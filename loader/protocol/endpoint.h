// Where loader and trainer meet: a directory of ours with data.sock (ZeroMQ), ctl.sock (the ring) and the lock; or a
// tcp port, which has neither ring nor lock.
#pragma once

#include "common/file.h"

enum { ENDPOINT_PATH_MAX = 108 }; // of a unix socket (sun_path)

typedef struct {
    bool ipc;                                // else tcp
    char name[ENDPOINT_PATH_MAX + 8];        // for words: ipc://DIR, tcp://HOST:PORT
    char zmq_address[ENDPOINT_PATH_MAX + 8]; // for ZeroMQ: ipc://DIR/data.sock
    char dir[ENDPOINT_PATH_MAX], ctl[ENDPOINT_PATH_MAX];
} Endpoint;

// From "ipc://DIR", a plain DIR, "tcp://HOST:PORT", or NULL: $XDG_RUNTIME_DIR/millrace, else /tmp/millrace-UID. 2 when
// it is too long for a socket or no endpoint at all; 77 for tcp beyond this machine without keys, where nobody would
// check who asks.
int endpoint_parse(Endpoint *endpoint, const char *address, bool keys);

// The loader's: creates the directory (0700) when there is none, refuses one that others own or may enter (77), and
// locks it (73 when another loader holds it). Nothing to do for tcp.
int endpoint_lock(const Endpoint *endpoint, Lock *lock);

// The trainer's look at it: fails (77) when the directory is there and is not ours alone. Absent is fine.
int endpoint_check(const Endpoint *endpoint);

// A tcp peer that lost its power or its cable is found by ZeroMQ's heartbeats; other silence is the feed's to judge.
void endpoint_keep_alive(void *socket);
