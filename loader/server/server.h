// The loader as a server: answers the requests of trainers (wire.h) for a dataset until a signal stops it.
#pragma once

#include "loader/protocol/endpoint.h"
#include "loader/protocol/keys.h"
#include "loader/server/served.h"

typedef struct Server Server;

typedef struct {
    ServedSpec spec;
    // The keys of a loader that serves other machines, and the file with the keys of the trainers that may connect.
    // When `keys` is NULL, every process that reaches the socket is served.
    const KeyPair *keys;
    const char *allow_path;
    uint64_t cache_bytes;     // limit on decoded frames in memory
    unsigned threads;         // that decode
    const char *state_path;   // keeps the changes of a swap for the next start (served_spec_save); NULL: none
    const char *metrics_path; // a Prometheus text file, replaced every 5 s; NULL: none
} ServerConfig;

// Opens the dataset, locks the endpoint and binds its sockets; both arguments are borrowed. From here on SIGTERM and
// SIGINT end server_run, SIGHUP reads the allow-list and opens the dataset directories again, in the background, and
// CONTROL opens others. When it is another dataset now, trainers get a notice, and the old dataset stays available
// until no trainer has requested it for a minute. NULL after fail(): 73 when another loader holds the endpoint, 65 for
// a damaged dataset.
Server *server_open(const Endpoint *endpoint, const ServerConfig *config);
const Dataset *server_dataset(const Server *server); // the current one
// 0 when stopped by a signal, after the queued requests have been answered. Fails with 69 when a socket of the endpoint
// has been removed, because no trainer could connect any more.
int server_run(Server *server);
void server_close(Server *server); // accepts NULL
