// The handlers of the messages that trainers send.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/server/server_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

enum {
    ERRORS_PER_SECOND = 100,  // to a peer, so that one that repeats a bad request in a loop costs little
    SESSION_SECONDS = 10 * 60 // a trainer that has sent nothing for so long has probably been killed
};

void server_send_parts(Server *server, const Route *route, WireMessage *message, zmq_msg_t *second) {
    message->header.loader_instance = server->instance;
    Bytes frame = wire_encode(message);
    if (zmq_send(server->router, route->bytes, route->size, ZMQ_SNDMORE) < 0 ||
        zmq_send(server->router, frame.data, frame.size, second ? ZMQ_SNDMORE : 0) < 0 ||
        (second && zmq_msg_send(second, server->router, 0) < 0)) {
        server->stats.dropped++;
        if (second) zmq_msg_close(second);
    }
}

void server_send(Server *server, const Route *route, WireMessage *message) {
    server_send_parts(server, route, message, NULL);
}

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

WireMessage server_reply(const WireHeader *request, WireType type) {
    WireMessage reply;
    memset(&reply, 0, sizeof reply);
    reply.header.type = (uint8_t)type;
    reply.header.session = request->session;
    reply.header.req_id = request->req_id;
    reply.header.sent_ns = request->sent_ns;
    reply.header.attach_id = request->attach_id;
    return reply;
}

void server_send_error(Server *server, const Route *route, const WireHeader *request, WireCode code, uint32_t detail,
                       const char *format, ...) {
    ErrorLimit *limit = &server->error_limits[crc32c(0, route->bytes, route->size) % ERROR_LIMITS];
    uint64_t now = clock_ns();
    if (now - limit->began_ns > 1000000000) *limit = (ErrorLimit){now, 0};
    server->stats.errors++;
    if (limit->count++ >= ERRORS_PER_SECOND) return;
    WireMessage reply = server_reply(request, WIRE_ERROR);
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

Session *session_find(Server *server, uint64_t id) {
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
    uint64_t bytes = (uint64_t)limits->max_rows * (limits->sequence_tokens + 1ull) * 2;
    uint64_t unread_max = bytes * limits->window + WIRE_WINDOW_MAX * ANSWER_BYTES;
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
    const Dataset *dataset = &server->current->dataset;
    WireMessage reply = server_reply(&request->header, WIRE_WELCOME);
    WireWelcome *welcome = &reply.welcome;
    welcome->ring = server->listener >= 0;
    welcome->window = request->hello.window;
    for (int split = 0; split < SPLIT_COUNT; split++) {
        welcome->tokens[split] = dataset->tokens[split];
        welcome->documents[split] = dataset->documents[split];
    }
    welcome->same_samples = served_same_samples(server->current, request->hello.dataset_fp8);
    welcome->eot_id = dataset->eot_id, welcome->vocab_size = dataset->vocab_size;
    memcpy(welcome->vocab_fp, dataset->vocab_fp, 32);
    memcpy(welcome->dataset_fp, dataset->fingerprint, 32);
    snprintf(welcome->name, sizeof welcome->name, "%s", dataset->name);
    server_send(server, route, &reply);
}

static void handle_hello(Server *server, const Route *route, const WireMessage *request) {
    const WireHello *hello = &request->hello;
    const Dataset *dataset = &server->current->dataset;
    char dataset_vocab[17], model_vocab[17];
    hex_encode(dataset_vocab, dataset->vocab_fp, 8);
    hex_encode(model_vocab, hello->vocab_fp, 8);
    if (!is_zero(hello->vocab_fp) && memcmp(hello->vocab_fp, dataset->vocab_fp, 32)) {
        server_send_error(
            server, route, &request->header, WIRE_VOCAB, 0,
            "the loader's dataset '%.40s' has vocabulary %s (%u ids), the trainer's model has %s (%u ids)",
            dataset->name, dataset_vocab, dataset->vocab_size, model_vocab, hello->vocab_size);
    } else if (hello->vocab_size < dataset->vocab_size) {
        server_send_error(server, route, &request->header, WIRE_VOCAB, 0,
                          "the loader's dataset '%.40s' has %u ids (vocabulary %s), the trainer's model only %u (%s)",
                          dataset->name, dataset->vocab_size, dataset_vocab, hello->vocab_size, model_vocab);
    } else {
        session_register(server, request, route);
        send_welcome(server, route, request);
    }
}

// --- the other messages

static void handle_stats(Server *server, const Route *route, const WireMessage *request) {
    static Status status;
    Buffer tables = {0};
    WireMessage reply = server_reply(&request->header, WIRE_STATS);
    server_status(server, &status);
    reply.stats = status.totals;
    status_encode_tables(&status, &tables);
    zmq_msg_t second;
    if (zmq_msg_init_size(&second, tables.size) < 0) die(EX_MEMORY, "no memory");
    if (tables.size) memcpy(zmq_msg_data(&second), tables.data, tables.size);
    server_send_parts(server, route, &reply, &second);
    buffer_close(&tables);
}

static void handle_valid(Server *server, const Route *route, const char *key, const WireMessage *request,
                         Bytes second) {
    Session *session = session_find(server, request->header.session);
    if (second.size && request->header.type != WIRE_CONTROL) {
        server->stats.dropped++;
        return;
    }
    if (session) session->seen_ns = clock_ns();
    switch (request->header.type) {
    case WIRE_HELLO:
        handle_hello(server, route, request);
        return;
    case WIRE_GET:
        job_start(server, route, request);
        return;
    case WIRE_STATS:
        handle_stats(server, route, request);
        return;
    case WIRE_BYE:
        if (session) *session = (Session){0};
        return;
    case WIRE_CONTROL:
        server_control(server, route, key, request, second);
        return;
    default: // a message that only a loader sends
        server->stats.dropped++;
    }
}

void server_handle_message(Server *server, const Route *route, const char *key, Bytes frame, Bytes second) {
    WireMessage request;
    const char *field = NULL;
    switch (wire_decode(frame, &request, &field)) {
    case WIRE_VALID:
        if (!key || allow_has(&server->allow, key)) {
            handle_valid(server, route, key, &request, second);
            return;
        }
        server_refuse_peer(server, "a peer whose key was removed");
        server_send_error(server, route, &request.header, WIRE_AUTH, 0,
                          "this key has been removed from the allow-list");
        return;
    case WIRE_OTHER_VERSION:
        server_send_error(
            server, route, &request.header, WIRE_PROTO, 0,
            "the loader has protocol version %d, the trainer version %u: use programs of the same release", WIRE_MAJOR,
            request.header.major);
        return;
    case WIRE_UNKNOWN_FIELD:
        server_send_error(server, route, &request.header, WIRE_PROTO, 0,
                          "the loader does not accept the value of field '%s' in a message of type %u", field,
                          request.header.type);
        return;
    case WIRE_CORRUPT:
        server->stats.dropped++;
    }
}
