// Sends one request to a running loader and checks the reply.
#include "loader/client/query.h"
#include "common/err.h"
#include "common/log.h"
#include "loader/protocol/keys.h"
#include <errno.h>
#include <zmq.h>

static int read_keys(Query *query, const char *key_file, const char *loader_key) {
    if (!key_file) return 0;
    if (keys_read(&query->keys, key_file) < 0 || (loader_key && key_check(loader_key, "the loader's public key") < 0))
        return -1;
    snprintf(query->loader_key, sizeof query->loader_key, "%s", loader_key ? loader_key : query->keys.public_key);
    return 0;
}

int query_open(Query *query, const char *address, const char *key_file, const char *loader_key) {
    *query = (Query){0};
    if (endpoint_parse(&query->endpoint, address, key_file) < 0 || endpoint_check(&query->endpoint) < 0 ||
        endpoint_check_files() < 0 || read_keys(query, key_file, loader_key) < 0)
        return -1;
    query->context = zmq_ctx_new();
    return query->context ? 0 : fail(EX_LIMIT, "cannot start ZeroMQ: %s", zmq_strerror(errno));
}

// --- a request

static int open_monitor(Query *query) {
    char address[64];
    // A loader that has answered and accepts no connection has ended; one that has not may be about to start.
    const int events = ZMQ_EVENT_DISCONNECTED | (query->answered ? ZMQ_EVENT_CONNECT_RETRIED : 0);
    snprintf(address, sizeof address, "inproc://query-%u", query->sent++);
    query->monitor = zmq_socket(query->context, ZMQ_PAIR);
    if (query->monitor && zmq_socket_monitor(query->socket, address, events) == 0 &&
        zmq_connect(query->monitor, address) == 0)
        return 0;
    return fail(EX_LIMIT, "cannot watch a ZeroMQ socket: %s", zmq_strerror(errno));
}

// Each request has a socket of its own: between two of them nobody reads the events of the connection, for whose room
// ZeroMQ's thread would wait in the end.
static int open_socket(Query *query) {
    query->socket = zmq_socket(query->context, ZMQ_DEALER);
    if (!query->socket) return fail(EX_LIMIT, "cannot open a ZeroMQ socket: %s", zmq_strerror(errno));
    endpoint_set(query->socket, ZMQ_IPV6, strchr(query->endpoint.zmq_address, '[') != NULL);
    endpoint_set(query->socket, ZMQ_LINGER, 0);
    if (*query->loader_key) {
        zmq_setsockopt(query->socket, ZMQ_CURVE_SERVERKEY, query->loader_key, KEY_TEXT);
        zmq_setsockopt(query->socket, ZMQ_CURVE_PUBLICKEY, query->keys.public_key, KEY_TEXT);
        zmq_setsockopt(query->socket, ZMQ_CURVE_SECRETKEY, query->keys.secret_key, KEY_TEXT);
    }
    if (open_monitor(query) < 0) return -1;
    if (zmq_connect(query->socket, query->endpoint.zmq_address) == 0) return 0;
    return fail(EX_PEER, "cannot connect to '%s': %s", query->endpoint.name, zmq_strerror(errno));
}

static void close_socket(Query *query) {
    // First the events: ZeroMQ's thread would wait for ever to send one to a closed monitor.
    if (query->monitor) zmq_socket_monitor(query->socket, NULL, 0), zmq_close(query->monitor);
    if (query->socket) zmq_close(query->socket);
    query->socket = query->monitor = NULL;
}

// Waits for a message. -1 when none has come in time, or the loader has ended.
static int wait_for_reply(Query *query, int wait_ms) {
    zmq_pollitem_t items[2] = {{.socket = query->socket, .events = ZMQ_POLLIN},
                               {.socket = query->monitor, .events = ZMQ_POLLIN}};
    if (zmq_poll(items, 2, wait_ms) < 0) return fail_errno("cannot wait for a reply");
    if (items[0].revents) return 0;
    const char *hint = query->endpoint.ipc ? ": is one served there? (millrace serve DATASET --endpoint ...)"
                                           : ": check its address and the keys";
    if (items[1].revents)
        return fail(EX_PEER, "the loader at '%s' closed the connection%s", query->endpoint.name, hint);
    return fail(EX_PEER, "no answer from a loader at '%s' within %d s%s", query->endpoint.name, wait_ms / 1000, hint);
}

static int check_reply(const Query *query, unsigned type, Bytes frame, WireMessage *reply) {
    WireVerdict verdict = wire_decode(frame, reply, NULL);
    if (verdict == WIRE_OTHER_VERSION)
        return fail(EX_PROTOCOL, "the loader at '%s' has protocol version %u, this program version %d",
                    query->endpoint.name, reply->header.major, WIRE_MAJOR);
    if (verdict == WIRE_VALID && reply->header.type == type) return 0;
    if (verdict == WIRE_VALID && reply->header.type == WIRE_ERROR)
        return fail(EX_PROTOCOL, "the loader at '%s': %s", query->endpoint.name, reply->error.text);
    return fail(EX_PROTOCOL, "the reply from '%s' is not that of a loader", query->endpoint.name);
}

static int exchange(Query *query, Bytes frame, Bytes words, int wait_ms, zmq_msg_t *first, zmq_msg_t *rest) {
    if (zmq_send(query->socket, frame.data, frame.size, words.size ? ZMQ_SNDMORE : 0) < 0 ||
        (words.size && zmq_send(query->socket, words.data, words.size, 0) < 0))
        return fail(EX_PEER, "cannot send to '%s': %s", query->endpoint.name, zmq_strerror(errno));
    if (wait_for_reply(query, wait_ms) < 0) return -1;
    if (zmq_msg_recv(first, query->socket, 0) < 0 || (zmq_msg_more(first) && zmq_msg_recv(rest, query->socket, 0) < 0))
        return fail(EX_PEER, "cannot receive from '%s': %s", query->endpoint.name, zmq_strerror(errno));
    return 0;
}

int query_send(Query *query, WireMessage *message, Bytes words, int wait_ms, WireMessage *reply, Buffer *second) {
    message->header.session = clock_ns() | 1;
    zmq_msg_t first, rest;
    zmq_msg_init(&first), zmq_msg_init(&rest);
    int status = open_socket(query);
    if (status == 0) status = exchange(query, wire_encode(message), words, wait_ms, &first, &rest);
    if (status == 0)
        status = check_reply(query, message->header.type, (Bytes){zmq_msg_data(&first), zmq_msg_size(&first)}, reply);
    if (status == 0) buffer_add(second, zmq_msg_data(&rest), zmq_msg_size(&rest)), query->answered = true;
    zmq_msg_close(&first), zmq_msg_close(&rest);
    close_socket(query);
    return status;
}

void query_close(Query *query) {
    if (query->context) zmq_ctx_term(query->context);
    *query = (Query){0};
}
