// Server internals shared by server.c (lifecycle, poll loop, rings) and requests.c (message handlers).
#pragma once

#include "common/err.h"
#include "common/file.h"
#include "loader/protocol/ring.h"
#include "loader/server/row_reader.h"
#include "loader/server/server.h"
#include <pthread.h>
#include <stdatomic.h>

enum {
    SESSIONS_MAX = 64,
    ATTACHMENTS_MAX = 64,
    ROUTE_MAX = 255, // bytes of a ZeroMQ routing id
};

typedef struct {
    uint8_t bytes[ROUTE_MAX];
    size_t size;
} Route;

// A trainer. `route` is the socket of its last HELLO; a trainer that is killed sends no BYE, so sessions expire.
typedef struct {
    uint64_t id, seen_ns;
    uint32_t sequence_tokens; // the largest T of the run
    uint64_t unread_max;      // limit on its unread_bytes
    Route route;
} Session;

// The last request for a slot, so that a resend is answered without writing the slot and an overtaken request is
// dropped.
typedef struct {
    uint64_t req_id;
    uint32_t generation;
    bool seen, answered;
    WireBatch batch;
} SlotRecord;

typedef struct {
    int fd; // the connection on ctl.sock; it closes when the trainer ends
    uint64_t id, session;
    Ring ring;
    SlotRecord *slots;
} Attachment;

typedef struct {
    Dataset dataset;
    RowReader *reader; // NULL: no dataset here
    uint64_t requested_ns;
} ServedDataset;

// A dataset that a thread opens while the loop serves the current one.
typedef struct {
    pthread_t thread;
    bool running, again; // again: another SIGHUP arrived in the meantime
    int done;            // eventfd: the thread has finished
    const char *path;
    ServedDataset fresh; // its reader is NULL after an error
    Error error;
} Reload;

struct Server {
    const char *path;
    ServedDataset current, previous; // previous: replaced by a reload, still available to trainers that request it
    Reload reload;
    Lock lock;
    void *context, *router, *zap; // zap: NULL without keys
    const ServerKeys *keys;
    int signals, listener; // a signalfd; ctl.sock, -1 for tcp
    uint64_t instance, started_ns;
    uint64_t error_window_ns; // start of the current second of the limit on ERROR messages
    unsigned errors_in_window;
    Session sessions[SESSIONS_MAX];
    _Atomic uint64_t unread_bytes[SESSIONS_MAX + 1]; // inline rows in ZeroMQ's queues, by session; last: without one
    Attachment attachments[ATTACHMENTS_MAX];
    unsigned attachment_count;
    WireStats stats;
};

// Sends a message to one peer. It is dropped when the peer is gone or its queue is full: the peer repeats its request.
void server_send(Server *server, const Route *route, WireMessage *message);
void server_notify_all(Server *server, WireCode code, const char *text); // a NOTICE to every session

bool session_is_live(const Session *session);

// Handles one message of a trainer; corrupt messages are dropped and counted.
void server_handle_message(Server *server, const Route *route, Bytes frame);
