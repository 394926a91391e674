// One request to a running loader, other than a trainer's: for the commands serve-status and swap.
#pragma once

#include "loader/protocol/endpoint.h"
#include "loader/protocol/keys.h"
#include "loader/protocol/wire.h"

typedef struct {
    Endpoint endpoint;
    KeyPair keys;
    char loader_key[KEY_TEXT]; // empty: without keys
    void *context;
    void *socket, *monitor; // of the request that waits for its reply; monitor: receives the end of the connection
    unsigned sent;          // requests
    bool answered;          // one of them
} Query;

// Prepares requests to the loader at `address`, in the form that endpoint_parse accepts. A loader with keys needs a key
// pair that it allows, and its public key; with a NULL loader_key the pair is the loader's own.
int query_open(Query *query, const char *address, const char *key_file, const char *loader_key);
// Connects, sends `message`, whose type and body are set, with a second part unless it is empty, and receives the
// reply, which has the same type. `second` receives its second part, the caller closes it. Fails with 69 when there is
// no reply within wait_ms or the loader ends first, and with 76 for a reply of another kind.
int query_send(Query *query, WireMessage *message, Bytes words, int wait_ms, WireMessage *reply, Buffer *second);
void query_close(Query *query); // accepts a zeroed struct
