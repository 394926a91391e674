// Requests a change of the datasets of a running loader (CONTROL in wire.h): for the command swap.
#pragma once

#include "loader/client/query.h"
#include "loader/protocol/wire.h"

enum { CONTROL_WAIT_MS = 600000 }; // for a loader to open a dataset: 32,000 shards on a busy machine take half a minute

// Sends the request to the loader of an open query, after it has answered that it is there. `sentence` receives its
// reply; the caller closes it. `words` holds control->words texts. Fails as query_send.
int control_ask(Query *query, const WireControl *control, const Buffer *words, WireMessage *reply, Buffer *sentence);

// Prints the loader's sentence when the change is made; otherwise fails with it and with the loader's exit code.
// `words` holds control->words texts. `own_key` is the file of the loader's own key pair, NULL for a loader without.
int control_send(const char *address, const char *own_key, const WireControl *control, const Buffer *words);
