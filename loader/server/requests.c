// The handlers of the messages that trainers send.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/server/server_internal.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

enum {
    ERRORS_PER_SECOND = 100,  // to a peer, so that one that repeats a bad request in a loop costs little
    SESSION_SECONDS = 10 * 60 // a trainer that has sent nothing for so long has probably been killed
};

// Sends a message and, unless it is NULL, a second part, which it takes over.
static void send_parts(Server *server, const Route *route, WireMessage *message, zmq_msg_t *second) {
    message->header.loader_instance = server->instance;
    Bytes frame = wire_encode(message);
    if (zmq_send(server->router, route->bytes, route->size, ZMQ_SNDMORE) < 0 ||
        zmq_send(server->router, frame.data, frame.size, second ? ZMQ_SNDMORE : 0) < 0 ||
        (second && zmq_msg_send(second, server->router, 0) < 0)) {
        server->stats.dropped++;
        if (second) zmq_msg_close(second);
    }
}

void server_send(Server *server, const Route *route, WireMessage *message) { send_parts(server, route, message, NULL); }

void server_notify_all(Server *server, WireCode code, const char *text) {
    for (Session *session = server->sessions; session < server->sessions + SESSIONS_MAX; session++) {
        if (!session->id) continue;
        WireMessage notice;
        memset(&notice, 0, sizeof notice);
        notice.header.type = WIRE_NOTICE, notice.header.session = session->id;
        notice.error.code = (uint16_t)code;
        snprintf(notice.error.text, sizeof notice.error.text, "%s", text);
        server_send(server, &session->route, &notice);
    }
}

static WireMessage reply_to(const WireHeader *request, WireType type) {
    WireMessage reply;
    memset(&reply, 0, sizeof reply);
    reply.header.type = (uint8_t)type;
    reply.header.session = request->session;
    reply.header.req_id = request->req_id;
    reply.header.sent_ns = request->sent_ns;
    reply.header.attach_id = request->attach_id;
    return reply;
}

__attribute__((format(printf, 6, 7))) static void send_error(Server *server, const Route *route,
                                                             const WireHeader *request, WireCode code, uint32_t detail,
                                                             const char *format, ...) {
    ErrorLimit *limit = &server->error_limits[crc32c(0, route->bytes, route->size) % ERROR_LIMITS];
    uint64_t now = clock_ns();
    if (now - limit->began_ns > 1000000000) *limit = (ErrorLimit){now, 0};
    server->stats.errors++;
    if (limit->count++ >= ERRORS_PER_SECOND) return;
    WireMessage reply = reply_to(request, WIRE_ERROR);
    reply.error.code = (uint16_t)code;
    reply.error.detail = detail;
    va_list list;
    va_start(list, format);
    vsnprintf(reply.error.text, sizeof reply.error.text, format, list);
    va_end(list);
    server_send(server, route, &reply);
}

// --- HELLO

bool session_is_live(const Session *session) {
    return session->id && clock_ns() - session->seen_ns < SESSION_SECONDS * 1000000000ull;
}

static Session *session_find(Server *server, uint64_t id) {
    for (Session *session = server->sessions; session < server->sessions + SESSIONS_MAX; session++)
        if (session->id == id) return session;
    return NULL;
}

// Keeps the newest route and T of the session. A full table loses the session that has been silent for longest.
static void session_register(Server *server, const WireMessage *hello, const Route *route) {
    Session *chosen = session_find(server, hello->header.session);
    for (Session *session = server->sessions; !chosen && session < server->sessions + SESSIONS_MAX; session++)
        if (!session->id) chosen = session;
    if (!chosen) {
        chosen = server->sessions;
        for (Session *session = chosen + 1; session < server->sessions + SESSIONS_MAX; session++)
            if (session->seen_ns < chosen->seen_ns) chosen = session;
    }
    const WireHello *limits = &hello->hello;
    uint64_t unread_max = (uint64_t)limits->max_rows * (limits->sequence_tokens + 1ull) * 2 * limits->window;
    if (unread_max > WIRE_PAYLOAD_MAX) unread_max = WIRE_PAYLOAD_MAX;
    uint64_t now = clock_ns();
    if (chosen->id != hello->header.session) *chosen = (Session){.started_ns = now, .rate_began_ns = now};
    chosen->id = hello->header.session, chosen->seen_ns = now, chosen->route = *route;
    chosen->sequence_tokens = limits->sequence_tokens, chosen->unread_max = unread_max;
}

void session_count(Session *session, const WireBatch *batch, uint64_t wait_ns) {
    uint64_t now = clock_ns(), tokens = (uint64_t)batch->rows * batch->sequence_tokens;
    WireClientStats *stats = &session->stats;
    stats->batches++;
    stats->tokens += tokens;
    stats->wait_ns += wait_ns;
    if (wait_ns > stats->wait_max_ns) stats->wait_max_ns = wait_ns;
    if (now - session->rate_began_ns >= RATE_NS) {
        stats->tokens_per_s = (uint64_t)((double)session->rate_tokens * 1e9 / (double)(now - session->rate_began_ns));
        session->rate_began_ns = now, session->rate_tokens = 0;
    }
    session->rate_tokens += tokens;
}

static bool is_zero(const uint8_t fingerprint[32]) {
    static const uint8_t zero[32];
    return !memcmp(fingerprint, zero, 32);
}

static void send_welcome(Server *server, const Route *route, const WireMessage *request) {
    const Dataset *dataset = &server->current.dataset;
    WireMessage reply = reply_to(&request->header, WIRE_WELCOME);
    WireWelcome *welcome = &reply.welcome;
    welcome->ring = server->listener >= 0;
    welcome->window = request->hello.window;
    for (int split = 0; split < SPLIT_COUNT; split++) {
        welcome->tokens[split] = dataset->tokens[split];
        welcome->documents[split] = dataset->documents[split];
    }
    welcome->eot_id = dataset->eot_id, welcome->vocab_size = dataset->vocab_size;
    memcpy(welcome->vocab_fp, dataset->vocab_fp, 32);
    memcpy(welcome->dataset_fp, dataset->fingerprint, 32);
    snprintf(welcome->name, sizeof welcome->name, "%s", dataset->name);
    server_send(server, route, &reply);
}

static void handle_hello(Server *server, const Route *route, const WireMessage *request) {
    const WireHello *hello = &request->hello;
    const Dataset *dataset = &server->current.dataset;
    char dataset_vocab[17], model_vocab[17];
    hex_encode(dataset_vocab, dataset->vocab_fp, 8);
    hex_encode(model_vocab, hello->vocab_fp, 8);
    if (!is_zero(hello->vocab_fp) && memcmp(hello->vocab_fp, dataset->vocab_fp, 32)) {
        send_error(server, route, &request->header, WIRE_VOCAB, 0,
                   "the loader's dataset '%.40s' has vocabulary %s (%u ids), the trainer's model has %s (%u ids)",
                   dataset->name, dataset_vocab, dataset->vocab_size, model_vocab, hello->vocab_size);
    } else if (hello->vocab_size < dataset->vocab_size) {
        send_error(server, route, &request->header, WIRE_VOCAB, 0,
                   "the loader's dataset '%.40s' has %u ids (vocabulary %s), the trainer's model only %u (%s)",
                   dataset->name, dataset->vocab_size, dataset_vocab, hello->vocab_size, model_vocab);
    } else {
        session_register(server, request, route);
        send_welcome(server, route, request);
    }
}

// --- GET

static Attachment *attachment_find(Server *server, const WireHeader *header) {
    for (unsigned i = 0; i < server->attachment_count; i++) {
        Attachment *attachment = &server->attachments[i];
        if (attachment->id == header->attach_id && attachment->session == header->session) return attachment;
    }
    return NULL;
}

static ServedDataset *dataset_find(Server *server, const uint8_t fp8[8]) {
    ServedDataset *served = memcmp(fp8, server->current.dataset.fingerprint, 8) ? &server->previous : &server->current;
    if (!served->reader || memcmp(fp8, served->dataset.fingerprint, 8)) return NULL;
    served->requested_ns = clock_ns();
    return served;
}

static uint64_t payload_bytes(const WireGet *get) {
    return (uint64_t)get->rows * (get->sequence_tokens + 1) * sizeof(uint16_t);
}

// The rows of an inline batch. ZeroMQ's thread frees them when the last piece has been sent or dropped.
typedef struct {
    atomic_uint users; // pieces, and the function that sends them
    _Atomic uint64_t *unread_bytes;
    uint64_t bytes;
    uint16_t ids[];
} InlineRows;

static void inline_rows_release(void *data, void *self) {
    InlineRows *rows = self;
    (void)data;
    if (atomic_fetch_sub(&rows->users, 1) > 1) return;
    atomic_fetch_sub(rows->unread_bytes, rows->bytes);
    free(rows);
}

// Memory for the rows of an inline answer; NULL when too many answers to this trainer are unread.
static InlineRows *inline_rows_open(Server *server, uint64_t session_id, uint64_t bytes) {
    const Session *session = session_find(server, session_id);
    _Atomic uint64_t *unread = &server->unread_bytes[session ? session - server->sessions : SESSIONS_MAX];
    uint64_t held = atomic_load(unread);
    if (held && held + bytes > (session ? session->unread_max : WIRE_PAYLOAD_MAX)) return NULL;
    InlineRows *rows = malloc(offsetof(InlineRows, ids) + bytes);
    if (!rows) return NULL;
    atomic_fetch_add(unread, bytes);
    atomic_init(&rows->users, 1);
    rows->unread_bytes = unread, rows->bytes = bytes;
    return rows;
}

// Sends `reply`, a BATCH that describes all rows, once for each piece of them.
static void send_pieces(Server *server, const Route *route, WireMessage *reply, InlineRows *rows) {
    WireBatch *batch = &reply->batch;
    uint32_t total = batch->length;
    uint8_t *data = (uint8_t *)rows->ids;
    do {
        batch->length = total - batch->offset < WIRE_PIECE_MAX ? total - batch->offset : WIRE_PIECE_MAX;
        batch->payload_crc = crc32c(0, data + batch->offset, batch->length);
        zmq_msg_t piece;
        atomic_fetch_add(&rows->users, 1);
        if (zmq_msg_init_data(&piece, data + batch->offset, batch->length, inline_rows_release, rows) < 0) {
            inline_rows_release(NULL, rows);
            server->stats.dropped++;
            return;
        }
        send_parts(server, route, reply, batch->length ? &piece : NULL);
        if (!batch->length) zmq_msg_close(&piece);
        batch->offset += batch->length;
    } while (batch->offset < total);
}

// The slot of the ring that `request` names. NULL when the request has been dealt with: it was refused, dropped because
// a newer request for the slot overtook it, or answered before.
static uint16_t *slot_open(Server *server, const Route *route, const WireMessage *request, SlotRecord **record) {
    const WireGet *get = &request->get;
    Attachment *attachment = attachment_find(server, &request->header);
    if (!attachment || get->slot >= attachment->ring.slot_count || payload_bytes(get) > attachment->ring.slot_bytes) {
        send_error(server, route, &request->header, WIRE_SLOT, get->slot, "no such ring or slot");
        return NULL;
    }
    SlotRecord *slot = *record = &attachment->slots[get->slot];
    if (slot->seen && (int32_t)(get->generation - slot->generation) < 0) {
        server->stats.dropped++;
        return NULL;
    }
    if (slot->answered && slot->generation == get->generation && slot->req_id == request->header.req_id) {
        server->stats.repeated++;
        Session *session = session_find(server, request->header.session);
        if (session) session->stats.repeated++;
        WireMessage reply = reply_to(&request->header, WIRE_BATCH);
        reply.batch = slot->batch;
        server_send(server, route, &reply);
        return NULL;
    }
    *slot = (SlotRecord){.req_id = request->header.req_id, .generation = get->generation, .seen = true};
    return (uint16_t *)(void *)ring_slot(&attachment->ring, get->slot);
}

// Reads the rows to `ids` and describes them in `batch`; -1 after sending an error.
static int read_rows(Server *server, const Route *route, const WireMessage *request, ServedDataset *served,
                     uint16_t *ids, WireBatch *batch) {
    const WireGet *get = &request->get;
    uint64_t started_ns = clock_ns();
    uint32_t shard = UINT32_MAX;
    if (row_reader_read(served->reader, get, ids, &batch->rows, &batch->epoch, &shard) < 0) {
        WireCode code = shard == UINT32_MAX ? WIRE_RANGE : err_code() == EX_IO ? WIRE_IO : WIRE_DATA;
        send_error(server, route, &request->header, code, shard, "%s", err_text());
        err_clear();
        return -1;
    }
    batch->first_sample = get->first_sample;
    batch->sequence_tokens = get->sequence_tokens;
    batch->slot = get->slot, batch->generation = get->generation;
    batch->flags = served == &server->previous ? WIRE_BATCH_REPLACED : 0;
    batch->length = batch->rows * (get->sequence_tokens + 1) * (uint32_t)sizeof(uint16_t);
    uint64_t took_ns = clock_ns() - started_ns;
    batch->produce_us = (uint32_t)(took_ns / 1000);
    server->stats.batches++;
    server->stats.tokens += (uint64_t)batch->rows * get->sequence_tokens;
    server->stats.payload_bytes += batch->length;
    server->stats.produce_ns += took_ns;
    served->batches++;
    served->tokens += (uint64_t)batch->rows * get->sequence_tokens;
    Session *session = session_find(server, request->header.session);
    if (session) session_count(session, batch, took_ns);
    return 0;
}

static void answer_to_slot(Server *server, const Route *route, const WireMessage *request, ServedDataset *served) {
    SlotRecord *record;
    WireMessage reply = reply_to(&request->header, WIRE_BATCH);
    uint16_t *ids = slot_open(server, route, request, &record);
    if (!ids || read_rows(server, route, request, served, ids, &reply.batch) < 0) return;
    reply.batch.payload_crc = crc32c(0, ids, reply.batch.length);
    record->answered = true, record->batch = reply.batch;
    server_send(server, route, &reply);
}

static void answer_inline(Server *server, const Route *route, const WireMessage *request, ServedDataset *served) {
    WireMessage reply = reply_to(&request->header, WIRE_BATCH);
    InlineRows *rows = inline_rows_open(server, request->header.session, payload_bytes(&request->get));
    if (!rows) {
        send_error(server, route, &request->header, WIRE_BUSY, 0, "too many answers to this trainer are unread");
        return;
    }
    if (read_rows(server, route, request, served, rows->ids, &reply.batch) == 0)
        send_pieces(server, route, &reply, rows);
    inline_rows_release(NULL, rows);
}

static void handle_get(Server *server, const Route *route, const WireMessage *request) {
    ServedDataset *served = dataset_find(server, request->get.dataset_fp8);
    if (!served)
        send_error(server, route, &request->header, WIRE_DATASET, 0, "the loader does not serve this dataset");
    else if (request->header.attach_id)
        answer_to_slot(server, route, request, served);
    else
        answer_inline(server, route, request, served);
}

// --- the other messages

static void handle_stats(Server *server, const Route *route, const WireMessage *request) {
    static Status status;
    Buffer tables = {0};
    WireMessage reply = reply_to(&request->header, WIRE_STATS);
    server_status(server, &status);
    reply.stats = status.totals;
    status_encode_tables(&status, &tables);
    zmq_msg_t second;
    if (zmq_msg_init_size(&second, tables.size) < 0) die(EX_MEMORY, "no memory");
    if (tables.size) memcpy(zmq_msg_data(&second), tables.data, tables.size);
    send_parts(server, route, &reply, &second);
    buffer_close(&tables);
}

static void handle_valid(Server *server, const Route *route, const WireMessage *request) {
    Session *session = session_find(server, request->header.session);
    if (session) session->seen_ns = clock_ns();
    switch (request->header.type) {
    case WIRE_HELLO:
        handle_hello(server, route, request);
        return;
    case WIRE_GET:
        handle_get(server, route, request);
        return;
    case WIRE_STATS:
        handle_stats(server, route, request);
        return;
    case WIRE_BYE:
        if (session) *session = (Session){0};
        return;
    default: // a message that only a loader sends
        server->stats.dropped++;
    }
}

void server_handle_message(Server *server, const Route *route, const char *key, Bytes frame) {
    WireMessage request;
    const char *field = NULL;
    switch (wire_decode(frame, &request, &field)) {
    case WIRE_VALID:
        if (!key || allow_has(&server->allow, key)) {
            handle_valid(server, route, &request);
            return;
        }
        server_refuse_peer(server, "a peer whose key was removed");
        send_error(server, route, &request.header, WIRE_AUTH, 0, "this key has been removed from the allow-list");
        return;
    case WIRE_OTHER_VERSION:
        send_error(server, route, &request.header, WIRE_PROTO, 0,
                   "the loader has protocol version %d, the trainer version %u: use programs of the same release",
                   WIRE_MAJOR, request.header.major);
        return;
    case WIRE_UNKNOWN_FIELD:
        send_error(server, route, &request.header, WIRE_PROTO, 0,
                   "the loader does not accept the value of field '%s' in a message of type %u", field,
                   request.header.type);
        return;
    case WIRE_CORRUPT:
        server->stats.dropped++;
    }
}
