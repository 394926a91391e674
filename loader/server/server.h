// The loader as a server: answers the requests of trainers (wire.h) for a dataset until a signal stops it.
#pragma once

#include "loader/protocol/endpoint.h"
#include "loader/protocol/keys.h"
#include "shardtool/format/dataset.h"

typedef struct Server Server;

// The keys of a loader that serves other machines; borrowed.
typedef struct {
    KeyPair pair;
    AllowList allow;
} ServerKeys;

// Opens dataset directory `path` (borrowed), locks the endpoint and binds its sockets. From here on SIGTERM and SIGINT
// end server_run, and SIGHUP opens `path` again, in the background: when it holds another dataset now, trainers get a
// notice, and the old dataset stays available until no trainer has requested it for a minute. NULL after fail(): 73
// when another loader holds the endpoint, 65 for a damaged dataset. With `keys` NULL, every process that reaches the
// socket is served.
Server *server_open(const Endpoint *endpoint, const char *path, const ServerKeys *keys);
const Dataset *server_dataset(const Server *server); // the one that is served now
int server_run(Server *server);    // 0 when stopped by a signal, after the queued requests have been answered
void server_close(Server *server); // accepts NULL
