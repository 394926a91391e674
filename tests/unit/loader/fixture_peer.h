// A client of the loader written by the tests: it sends single messages, also wrong ones, and reads single replies.
#pragma once

#include "loader/protocol/ring.h"
#include "loader/protocol/sampling.h"
#include "loader/protocol/wire.h"
#include "tests/unit/loader/fixture_loader.h"
#include <zmq.h>

enum { PEER_T = 64, PEER_ROWS = 8 }; // of peer_hello and peer_set_get

typedef struct {
    void *context, *socket;
    WireMessage message; // the next one to send
} Peer;

// Connects to a loader at ipc://PLACE, or at PLACE itself when it contains "://".
Peer peer_open(const char *place);
void peer_close(Peer *peer);

void peer_send(Peer *peer, WireType type, uint64_t attach_id);
// The type of the next reply; 0 when none arrives.
unsigned peer_receive(Peer *peer, WireMessage *reply);

// Sends HELLO; fp8 is the start of the dataset's fingerprint.
WireWelcome peer_greet(Peer *peer, const WireHello *hello, uint8_t fp8[8]);
extern const WireHello peer_hello; // one that is accepted
// Fills peer->message with a GET of `rows` rows in order, from sample 0 on.
void peer_set_get(Peer *peer, const uint8_t fp8[8], uint32_t rows, uint32_t slot, uint32_t generation);
// The loader's counters, after it has handled all earlier messages.
WireStats peer_stats(Peer *peer);

pid_t serve_ready(void); // a loader of test_small at ipc://p that is ready
