// Sends one request to a running loader and checks the reply.
#include "loader/client/query.h"
#include "common/err.h"
#include "common/log.h"
#include "loader/protocol/keys.h"
#include <errno.h>
#include <zmq.h>

static int set_keys(void *socket, const char *key_file, const char *loader_key) {
    KeyPair keys;
    if (!key_file) return 0;
    if (keys_read(&keys, key_file) < 0 || (loader_key && key_check(loader_key, "the loader's public key") < 0))
        return -1;
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, loader_key ? loader_key : keys.public_key, KEY_TEXT);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys.public_key, KEY_TEXT);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys.secret_key, KEY_TEXT);
    return 0;
}

static int connect_to(Query *query, const char *key_file, const char *loader_key) {
    int ipv6 = strchr(query->endpoint.zmq_address, '[') != NULL, linger_ms = 0;
    zmq_setsockopt(query->socket, ZMQ_IPV6, &ipv6, sizeof ipv6);
    zmq_setsockopt(query->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    if (set_keys(query->socket, key_file, loader_key) < 0) return -1;
    if (zmq_connect(query->socket, query->endpoint.zmq_address) == 0) return 0;
    return fail(EX_PEER, "cannot connect to '%s': %s", query->endpoint.name, zmq_strerror(errno));
}

int query_open(Query *query, const char *address, const char *key_file, const char *loader_key) {
    *query = (Query){0};
    if (endpoint_parse(&query->endpoint, address, key_file) < 0 || endpoint_check(&query->endpoint) < 0 ||
        endpoint_check_files() < 0)
        return -1;
    query->context = zmq_ctx_new();
    query->socket = query->context ? zmq_socket(query->context, ZMQ_DEALER) : NULL;
    if (!query->socket) {
        fail(EX_LIMIT, "cannot start ZeroMQ: %s", zmq_strerror(errno));
    } else if (connect_to(query, key_file, loader_key) == 0) {
        return 0;
    }
    query_close(query);
    return -1;
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

int query_send(Query *query, WireMessage *message, Bytes words, int wait_ms, WireMessage *reply, Buffer *second) {
    message->header.session = clock_ns() | 1;
    Bytes frame = wire_encode(message);
    zmq_msg_t first, rest;
    zmq_msg_init(&first), zmq_msg_init(&rest);
    zmq_setsockopt(query->socket, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
    int status = 0;
    if (zmq_send(query->socket, frame.data, frame.size, words.size ? ZMQ_SNDMORE : 0) < 0 ||
        (words.size && zmq_send(query->socket, words.data, words.size, 0) < 0) ||
        zmq_msg_recv(&first, query->socket, 0) < 0 ||
        (zmq_msg_more(&first) && zmq_msg_recv(&rest, query->socket, 0) < 0))
        status = fail(EX_PEER, "no answer from a loader at '%s' within %d s%s", query->endpoint.name, wait_ms / 1000,
                      query->endpoint.ipc ? "" : ": check its address and the keys");
    else
        status = check_reply(query, message->header.type, (Bytes){zmq_msg_data(&first), zmq_msg_size(&first)}, reply);
    if (status == 0) buffer_add(second, zmq_msg_data(&rest), zmq_msg_size(&rest));
    zmq_msg_close(&first), zmq_msg_close(&rest);
    return status;
}

void query_close(Query *query) {
    if (query->socket) zmq_close(query->socket);
    if (query->context) zmq_ctx_term(query->context);
    *query = (Query){0};
}
