// Where a loader is reached: a directory with data.sock (ZeroMQ), ctl.sock (rings) and a lock, or a tcp port, which has
// neither ring nor lock.
#pragma once

#include "common/file/file.h"

enum { ENDPOINT_PATH_MAX = 108 }; // size of sun_path

typedef struct {
    bool ipc;                                // else tcp
    char name[ENDPOINT_PATH_MAX + 8];        // for messages: ipc://DIR, tcp://HOST:PORT
    char zmq_address[ENDPOINT_PATH_MAX + 8]; // for ZeroMQ: ipc://DIR/data.sock, tcp://HOST:PORT
    char dir[ENDPOINT_PATH_MAX], ctl[ENDPOINT_PATH_MAX];
} Endpoint;

// Parses "ipc://DIR", "tcp://HOST:PORT", "/DIR", "./DIR", or NULL: $XDG_RUNTIME_DIR/millrace, else
// /tmp/millrace-UID. Fails with 2 when it is not an endpoint or too long for a socket, and with 77 for tcp to another
// machine without keys: there, nothing would check who connects.
int endpoint_parse(Endpoint *endpoint, const char *address, bool keys);

// Parses addresses that are separated by commas, at most `most`. Returns their number, or -1 after fail().
int endpoint_parse_list(Endpoint *endpoints, int most, const char *addresses, bool keys);

// For the loader: creates the directory (0700) if needed, refuses one that others own or may enter (77), and locks it
// (73 when another loader holds it). No effect for tcp.
int endpoint_lock(const Endpoint *endpoint, Lock *lock);

// The trainer's check: fails with 77 when the directory exists and other users could have made it or may enter it.
int endpoint_check(const Endpoint *endpoint);

// Fails with 71 when ZeroMQ could not open its files: libzmq would end the program.
int endpoint_check_files(void);

// Sets an option of a ZeroMQ socket; a refusal ends the program.
void endpoint_set(void *socket, int option, int value);

// Turns on ZeroMQ heartbeats, which detect a tcp peer that lost power or cable: a connection on which nothing arrives
// for `silence_ms` is closed.
void endpoint_keep_alive(void *socket, int silence_ms);
