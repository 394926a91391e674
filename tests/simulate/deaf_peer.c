// A peer that requests more than its window and reads no answer: the loader holds no more for it than it says.
#include "loader/protocol/endpoint.h"
#include "loader/server/server_internal.h"
#include "tests/simulate/scenario.h"
#include <string.h>

enum {
    T = 60,
    ROWS = 8,
    GETS = 120, // of twice the limit
    LIMIT = ROWS * (T + 1) * 2 + WIRE_WINDOW_MAX * ANSWER_BYTES
};

static const Route route = {.bytes = "a deaf peer", .size = 16};
static uint64_t session;

static WireMessage message_of(WireType type) {
    WireMessage message;
    memset(&message, 0, sizeof message);
    message.header.type = (uint8_t)type, message.header.session = session, message.header.req_id = type;
    return message;
}

static void send_to(void *socket, WireMessage *message) {
    const Bytes frame = wire_encode(message);
    zmq_send(socket, frame.data, frame.size, ZMQ_DONTWAIT);
}

// Whether the dataset has been received.
static bool receive_welcome(void *socket, WireMessage *welcome) {
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    uint8_t frame[4096];
    if (zmq_poll(&item, 1, 1000) == 0) return false;
    const int size = zmq_recv(socket, frame, sizeof frame, 0);
    zmq_recv(socket, NULL, 0, 0); // the sources
    return size > 0 && wire_decode((Bytes){frame, (size_t)size}, welcome, NULL) == WIRE_VALID &&
           welcome->header.type == WIRE_WELCOME;
}

static void request_all(void *socket, const WireMessage *welcome) {
    WireMessage message = message_of(WIRE_GET);
    message.get = (WireGet){.rows = ROWS, .sequence_tokens = T, .mode = SAMPLING_EPOCH};
    memcpy(message.get.dataset_fp8, welcome->welcome.dataset_fp, sizeof message.get.dataset_fp8);
    for (int i = 0; i < GETS; i++) {
        message.header.req_id++;
        send_to(socket, &message);
    }
}

void deaf_peer_main(void *self) {
    static const int one = 1;
    const Loader *loader = self;
    const unsigned starts = sim_world.starts;
    Endpoint endpoint;
    if (endpoint_parse(&endpoint, loader->endpoint, false) < 0) sim_fail("%s", err_text());
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, route.bytes, route.size);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &one, sizeof one);
    zmq_connect(socket, endpoint.zmq_address);
    session = sim_random() | 1;
    WireMessage hello = message_of(WIRE_HELLO), welcome;
    hello.hello = (WireHello){.vocab_size = 50304, .sequence_tokens = T, .max_rows = ROWS, .window = 1};
    send_to(socket, &hello);
    if (receive_welcome(socket, &welcome)) request_all(socket, &welcome);
    for (int i = 0; i < 20; i++) {
        task_sleep(sim_spread(10 * MS));
        const uint64_t held = loader->server ? unread_bytes(loader->server, &route) : 0;
        if (sim_world.starts == starts && held > LIMIT)
            sim_fail("the loader holds %llu bytes for a peer that does not read", (unsigned long long)held);
    }
    zmq_close(socket);
    zmq_ctx_term(context);
}
