// The loader's side of wire.h: answers requests for one dataset until it is told to stop.
#pragma once

#include "loader/place.h"
#include "shardtool/dataset.h"

typedef struct Server Server;

// Opens the dataset's shards, takes the place and binds its sockets. Signals SIGTERM and SIGINT are blocked from here
// on and end serve_run. NULL after fail(): 73 when another loader holds the place, 65 for a damaged dataset.
Server *serve_open(const Place *place, const Dataset *dataset);
int serve_run(Server *server);    // 0 when told to stop: what was queued is answered
void serve_close(Server *server); // accepts NULL
