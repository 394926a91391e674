// Sessions of trainers, and sending to them.
#include "common/hash.h"
#include "common/log.h"
#include "loader/server/server_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <zmq.h>

enum {
    ERRORS_PER_SECOND = 100,  // to a peer, so that one that repeats a bad request in a loop costs little
    SESSION_SECONDS = 10 * 60 // a trainer that has sent nothing for so long has probably been killed
};

// --- sending

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

// --- sessions

bool session_is_live(const Session *session) {
    return session->id && clock_ns() - session->seen_ns < SESSION_SECONDS * 1000000000ull;
}

Session *session_find(Server *server, uint64_t id) {
    for (Session *session = server->sessions; session < server->sessions + SESSIONS_MAX; session++)
        if (session->id == id) return session;
    return NULL;
}

// For ipc, ZeroMQ reports HOST:UID:GID:PID.
static void describe_address(const char *reported, bool ipc, char address[WIRE_ADDRESS]) {
    const char *pid = reported && ipc ? strrchr(reported, ':') : NULL;
    snprintf(address, WIRE_ADDRESS, "%s%s", pid ? "pid " : "", pid ? pid + 1 : reported ? reported : "");
}

void session_register(Server *server, const WireMessage *hello, const Sender *peer) {
    Session *chosen = session_find(server, hello->header.session);
    for (Session *session = server->sessions; !chosen && session < server->sessions + SESSIONS_MAX; session++)
        if (!session->id) chosen = session;
    if (!chosen) {
        chosen = server->sessions;
        for (Session *session = chosen + 1; session < server->sessions + SESSIONS_MAX; session++)
            if (session->seen_ns < chosen->seen_ns) chosen = session;
    }
    const WireHello *limits = &hello->hello;
    uint64_t bytes =
        (uint64_t)limits->max_rows * (limits->sequence_tokens + 1ull) * id_bytes(server->current->dataset.vocab_size);
    uint64_t unread_max = bytes * limits->window + WIRE_WINDOW_MAX * ANSWER_BYTES;
    if (unread_max > WIRE_PAYLOAD_MAX) unread_max = WIRE_PAYLOAD_MAX;
    uint64_t now = clock_ns();
    if (chosen->id != hello->header.session) {
        *chosen = (Session){.started_ns = now, .rate_began_ns = now};
        snprintf(chosen->key, sizeof chosen->key, "%s", peer->key ? peer->key : "");
    }
    chosen->id = hello->header.session, chosen->seen_ns = now, chosen->route = peer->route;
    chosen->sequence_tokens = limits->sequence_tokens, chosen->unread_max = unread_max;
    describe_address(peer->address, server->endpoint->ipc, chosen->stats.address);
    memcpy(chosen->stats.name, limits->name, sizeof limits->name);
}

void session_count(Session *session, const WireGet *get, const WireBatch *batch, uint64_t wait_ns) {
    uint64_t now = clock_ns(), tokens = (uint64_t)batch->rows * batch->sequence_tokens;
    WireClientStats *stats = &session->stats;
    stats->batches++;
    stats->tokens += tokens;
    stats->wait_ns += wait_ns;
    session->endless = session->endless || !sampling_ends(get->mode);
    if (get->split == SPLIT_TRAIN && sampling_ends(get->mode) != session->endless)
        stats->next_sample = batch->first_sample + batch->rows;
    if (wait_ns > stats->wait_max_ns) stats->wait_max_ns = wait_ns;
    if (now - session->rate_began_ns >= RATE_NS) {
        stats->tokens_per_s = (uint64_t)((double)session->rate_tokens * 1e9 / (double)(now - session->rate_began_ns));
        session->rate_began_ns = now, session->rate_tokens = 0;
    }
    session->rate_tokens += tokens;
}

// --- peers without a key

void server_refuse_peer(Server *server, const char *address) {
    uint64_t now = clock_ns();
    server->stats.refused_peers++;
    if (now - server->refused_warn_ns < 1000000000) return;
    server->refused_warn_ns = now;
    log_warn("refused %s: its key is not in '%s' (%llu refused so far)", address, server->config->allow_path,
             (unsigned long long)server->stats.refused_peers);
}
