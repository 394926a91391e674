#include "tests/unit/loader/fixture_peer.h"
#include <string.h>

Peer peer_open(const char *place) {
    char endpoint[64];
    if (strstr(place, "://"))
        snprintf(endpoint, sizeof endpoint, "%s", place);
    else
        snprintf(endpoint, sizeof endpoint, "ipc://%s/data.sock", place);
    Peer peer = {.context = zmq_ctx_new(), .message.header.session = 77};
    peer.socket = zmq_socket(peer.context, ZMQ_DEALER);
    int ms = FOREVER, none = 0;
    zmq_setsockopt(peer.socket, ZMQ_RCVTIMEO, &ms, sizeof ms);
    int few = 4; // messages that ZeroMQ receives before the test reads them
    zmq_setsockopt(peer.socket, ZMQ_RCVHWM, &few, sizeof few);
    zmq_setsockopt(peer.socket, ZMQ_LINGER, &none, sizeof none);
    CHECK(zmq_connect(peer.socket, endpoint) == 0);
    return peer;
}

void peer_close(Peer *peer) {
    zmq_close(peer->socket);
    zmq_ctx_term(peer->context);
}

void peer_send(Peer *peer, WireType type, uint64_t attach_id) {
    peer->message.header.type = (uint8_t)type;
    peer->message.header.req_id++;
    peer->message.header.attach_id = attach_id;
    Bytes frame = wire_encode(&peer->message);
    CHECK(zmq_send(peer->socket, frame.data, frame.size, 0) >= 0);
}

unsigned peer_receive(Peer *peer, WireMessage *reply) {
    uint8_t bytes[1 << 16];
    int got = zmq_recv(peer->socket, bytes, sizeof bytes, 0), more = 0;
    size_t size = sizeof more;
    if (got < 0) return 0;
    CHECK(wire_decode((Bytes){bytes, (size_t)got}, reply, NULL) == WIRE_VALID);
    while (zmq_getsockopt(peer->socket, ZMQ_RCVMORE, &more, &size) == 0 && more)
        CHECK(zmq_recv(peer->socket, bytes, sizeof bytes, 0) >= 0);
    return reply->header.type;
}

pid_t serve_ready(void) {
    const pid_t pid = serve_test_dataset(&test_small);
    wait_for_loader("p", 1);
    return pid;
}

WireStats peer_stats(Peer *peer) {
    WireMessage answer;
    memset(&peer->message.stats, 0, sizeof peer->message.stats);
    peer_send(peer, WIRE_STATS, 0);
    CHECK_EQUAL(peer_receive(peer, &answer), WIRE_STATS);
    return answer.stats;
}

const WireHello peer_hello = {.vocab_size = 50304, .sequence_tokens = PEER_T, .max_rows = PEER_ROWS, .window = 4};

WireWelcome peer_greet(Peer *peer, const WireHello *hello, uint8_t fp8[8]) {
    WireMessage answer;
    peer->message.hello = *hello;
    peer_send(peer, WIRE_HELLO, 0);
    CHECK_EQUAL(peer_receive(peer, &answer), WIRE_WELCOME);
    memcpy(fp8, answer.welcome.dataset_fp, 8);
    return answer.welcome;
}

void peer_set_get(Peer *peer, const uint8_t fp8[8], uint32_t rows, uint32_t slot, uint32_t generation) {
    WireGet get = {
        .rows = rows, .sequence_tokens = PEER_T, .mode = SAMPLING_SEQUENTIAL, .slot = slot, .generation = generation};
    memcpy(get.dataset_fp8, fp8, 8);
    peer->message.get = get;
}
