// The loader's side of wire.h: answers requests for a dataset until it is told to stop.
#pragma once

#include "loader/protocol/endpoint.h"
#include "loader/protocol/keys.h"
#include "shardtool/format/dataset.h"

typedef struct Server Server;

// For tcp beyond this machine; borrowed.
typedef struct {
    KeyPair pair;
    AllowList allow;
} ServerKeys;

// Opens dataset directory `path` (borrowed), takes the endpoint and binds its sockets. From here on SIGTERM and SIGINT
// end serve_run, and SIGHUP opens `path` again: when another dataset is there now, trainers are told, and the old one
// is served beside it until nobody has asked for it for a minute. NULL after fail(): 73 when another loader holds the
// endpoint, 65 for a damaged dataset.
// `keys` may be NULL: then anybody who reaches the socket is served.
Server *serve_open(const Endpoint *endpoint, const char *path, const ServerKeys *keys);
const Dataset *serve_dataset(const Server *server);
int serve_run(Server *server);    // 0 when told to stop: what was queued is answered
void serve_close(Server *server); // accepts NULL
