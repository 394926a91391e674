// The handlers of the messages that trainers send.
#include "common/hash.h"
#include "common/log.h"
#include "loader/server/server_internal.h"
#include <stdio.h>
#include <zmq.h>

// --- HELLO

static bool is_zero(const uint8_t fingerprint[32]) {
    static const uint8_t zero[32];
    return !memcmp(fingerprint, zero, 32);
}

// Sends a message with a second part, which is freed.
static void send_with_part(Server *server, const Route *route, WireMessage *message, Buffer *part) {
    zmq_msg_t second;
    Unread *unread = unread_open(server, route, WIRE_PAYLOAD_MAX, part->size);
    if (unread && part->size) memcpy(unread->data, part->data, part->size);
    if (!unread || unread_part(unread, 0, part->size, &second) < 0)
        server->stats.dropped++;
    else
        server_send_parts(server, route, message, &second);
    if (unread) unread_release(NULL, unread);
    buffer_close(part);
}

static void add_sources(const Served *served, WireWelcome *welcome, Buffer *part) {
    for (unsigned i = 0; i < served->source_count; i++) {
        const Dataset *dataset = &served->parts[i];
        WireSource source = {.tokens = {dataset->tokens[0], dataset->tokens[1]},
                             .documents = {dataset->documents[0], dataset->documents[1]}};
        snprintf(source.name, sizeof source.name, "%s", dataset->name);
        buffer_add(part, &source, sizeof source);
    }
    const Mixture *mixture = &served->mixture;
    const bool mixed = served->source_count > 1;
    for (unsigned i = 0; mixed && i < mixture->entry_count; i++) {
        WireWeights entry = {.from = mixture->entries[i].from};
        memcpy(entry.weights, mixture->entries[i].weights, sizeof entry.weights);
        memcpy(entry.fingerprint, mixture->entries[i].fingerprint, sizeof entry.fingerprint);
        buffer_add(part, &entry, sizeof entry);
    }
    if (!mixed) {
        WireWeights whole = {.weights = {MIXTURE_SUM}};
        memcpy(whole.fingerprint, served->dataset.fingerprint, sizeof whole.fingerprint);
        buffer_add(part, &whole, sizeof whole);
    }
    welcome->sources = (uint8_t)served->source_count;
    welcome->entries = (uint16_t)(mixed ? mixture->entry_count : 1);
    welcome->sources_crc = crc32c(0, part->data, part->size);
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
    Buffer part = {0};
    add_sources(server->current, welcome, &part);
    send_with_part(server, route, &reply, &part);
}

static void handle_hello(Server *server, const Sender *peer, const WireMessage *request) {
    const Route *route = &peer->route;
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
                          "the loader's dataset '%.40s' has %u ids (vocabulary %s), the trainer's model only %u: for a "
                          "new model name the vocabulary's file with --vocabulary",
                          dataset->name, dataset->vocab_size, dataset_vocab, hello->vocab_size);
    } else if (mixture_shared_streams(&server->current->mixture, hello->dataset_fp8, sizeof hello->dataset_fp8)) {
        server_send_error(server, route, &request->header, WIRE_PROTO, 0,
                          "this run reads the mixture '%.30s' in the order of protocol version 3, here it has another: "
                          "finish the run with that release, or begin one with init_from",
                          dataset->name);
    } else {
        session_register(server, request, peer);
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
    send_with_part(server, route, &reply, &tables);
}

static void handle_valid(Server *server, const Sender *peer, const WireMessage *request, Bytes second) {
    const Route *route = &peer->route;
    Session *session = session_find(server, request->header.session);
    if (second.size && request->header.type != WIRE_CONTROL) {
        server->stats.dropped++;
        return;
    }
    if (session && peer->key && strcmp(session->key, peer->key)) {
        server_send_error(server, route, &request->header, WIRE_PROTO, 0, "this session belongs to another key");
        return;
    }
    if (session) session->seen_ns = clock_ns();
    switch (request->header.type) {
    case WIRE_HELLO:
        handle_hello(server, peer, request);
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
        server_control(server, route, peer->key, request, second);
        return;
    default: // a message that only a loader sends
        server->stats.dropped++;
    }
}

void server_handle_message(Server *server, const Sender *peer, Bytes frame, Bytes second) {
    const Route *route = &peer->route;
    WireMessage request;
    const char *field = NULL;
    switch (wire_decode(frame, &request, &field)) {
    case WIRE_VALID:
        if (!peer->key || allow_has(&server->allow, peer->key)) {
            handle_valid(server, peer, &request, second);
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
