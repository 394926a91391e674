// The inside of a server, shared by serve.c (its life and its sockets) and answer.c (what it says).
#pragma once

#include "common/file.h"
#include "loader/protocol/ring.h"
#include "loader/server/row_reader.h"
#include "loader/server/server.h"

enum {
    SESSIONS_MAX = 64,
    ATTACHMENTS_MAX = 64,
    ROUTE_MAX = 255, // a ZeroMQ routing id
};

typedef struct {
    uint8_t bytes[ROUTE_MAX];
    size_t size;
} Route;

typedef struct {
    uint64_t id, seen_ns;
    Route route;
} Session;

// What was last done in a slot, so that a resend is answered without touching it and a late request is refused.
typedef struct {
    uint64_t req_id;
    uint32_t generation;
    bool seen, answered;
    WireBatch batch;
} SlotRecord;

typedef struct {
    int fd; // the connection on ctl.sock; its end is the trainer's
    uint64_t id, session;
    Ring ring;
    SlotRecord *slots;
} Attachment;

typedef struct {
    Dataset dataset;
    RowReader *reader; // NULL = nothing here
    uint64_t asked_ns;
} Served;

struct Server {
    const char *path;
    Served now, before; // `before`: replaced, but still asked for
    Lock lock;
    void *context, *router, *zap; // zap: NULL without keys
    const ServerKeys *keys;
    int signals, listener;
    uint64_t instance, started_ns, errors_ns;
    unsigned errors_now;
    Session sessions[SESSIONS_MAX];
    Attachment attachments[ATTACHMENTS_MAX];
    unsigned attachment_count;
    Buffer payload; // rows of an inline batch
    WireStats stats;
};

// Sends to one peer. A peer that is gone or whose queue is full asks again.
void send_message(Server *server, const Route *route, WireMessage *message, Bytes payload);
void send_notices(Server *server, WireCode code, const char *text); // to every session

// Answers one message of a trainer; what is no message is dropped and counted.
void answer_message(Server *server, const Route *route, Bytes frame, Bytes payload);
