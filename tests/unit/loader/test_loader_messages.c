// The loader before messages that are damaged, stale, of another version, or arrive while it ends.
#include "tests/unit/loader/fixture_peer.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { T = PEER_T, ROWS = PEER_ROWS };

// fault 47
TEST(loader_drops_and_counts_corrupt_messages) {
    const pid_t pid = serve_ready();
    Peer peer = peer_open("p");
    uint64_t dropped = peer_stats(&peer).dropped;
    uint8_t noise[300];
    srand(5);
    for (size_t size = 0; size < sizeof noise; size++) {
        for (size_t i = 0; i < size; i++) noise[i] = (uint8_t)rand();
        CHECK(zmq_send(peer.socket, noise, size, 0) >= 0);
    }
    CHECK_EQUAL(peer_stats(&peer).dropped - dropped, sizeof noise);
    // More parts than a message has, and a frame with the right magic and a wrong length.
    for (int part = 0; part < 20; part++) CHECK(zmq_send(peer.socket, "GLD1", 4, part < 19 ? ZMQ_SNDMORE : 0) >= 0);
    memset(&peer.message, 0, sizeof peer.message);
    peer.message.header.type = WIRE_STATS, peer.message.header.session = 1;
    Bytes frame = wire_encode(&peer.message);
    peer.message.header.body_len = UINT32_MAX;
    CHECK(zmq_send(peer.socket, frame.data, frame.size, 0) >= 0);
    CHECK_EQUAL(peer_stats(&peer).dropped - dropped, sizeof noise + 2);
    // Parts that are too large, of a message of one and of two.
    uint8_t *much = calloc(1, 1 << 20);
    CHECK(zmq_send(peer.socket, much, WIRE_REQUEST_MAX + 1, 0) >= 0);
    memset(&peer.message, 0, sizeof peer.message);
    peer.message.header.session = 1;
    peer.message.header.type = WIRE_CONTROL, peer.message.control = (WireControl){.action = WIRE_SWAP, .words = 1};
    frame = wire_encode(&peer.message);
    CHECK(zmq_send(peer.socket, frame.data, frame.size, ZMQ_SNDMORE) >= 0);
    CHECK(zmq_send(peer.socket, much, WIRE_PART_MAX, 0) >= 0);
    CHECK_EQUAL(peer_stats(&peer).dropped - dropped, sizeof noise + 4);
    // Larger than any message of the protocol: the loader closes the connection and continues.
    Peer big = peer_open("p");
    CHECK(zmq_socket_monitor(big.socket, "inproc://big", ZMQ_EVENT_DISCONNECTED) == 0);
    void *monitor = zmq_socket(big.context, ZMQ_PAIR);
    CHECK(zmq_connect(monitor, "inproc://big") == 0);
    CHECK(zmq_send(big.socket, much, 1 << 20, 0) >= 0);
    uint8_t event[8];
    CHECK(zmq_recv(monitor, event, sizeof event, 0) > 0); // the loader has closed the connection
    zmq_close(monitor);
    free(much);
    peer_close(&big);
    peer_stats(&peer);
    peer_close(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

static int attach_ring(uint64_t slot_bytes, uint32_t claimed, Ring *ring, CtlReply *reply) {
    int fd = ctl_connect("p/ctl.sock");
    CHECK(fd >= 0 && (ring->base || ring_open(ring, true, slot_bytes, 4) == 0));
    CtlAttach attach = {WIRE_MAGIC, WIRE_MAJOR, 0, 77, claimed, 4, 0};
    CHECK(ctl_send_ring(fd, &attach, ring) == 0);
    fcntl(fd, F_SETFL, 0);
    if (ctl_receive_reply(fd, reply) == 0) return fd;
    close(fd);
    return -1;
}

// Rings that are refused: larger than the memfd, and not sealed, so that the owner could shrink it.
static void check_refused_rings(void) {
    Ring bad = {0};
    CtlReply reply;
    CHECK(attach_ring(4096, 1 << 20, &bad, &reply) < 0);
    ring_close(&bad);
    bad = (Ring){memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING), NULL, 4096, 4};
    CHECK(ftruncate(bad.fd, 4 * 4096) == 0);
    bad.base = mmap(NULL, 4 * 4096, PROT_READ, MAP_SHARED, bad.fd, 0);
    CHECK(attach_ring(4096, 4096, &bad, &reply) < 0);
    ring_close(&bad);
}

static unsigned error_of_get(Peer *peer, const uint8_t fp8[8], uint32_t rows, uint32_t slot, uint64_t attachment) {
    WireMessage answer;
    peer_set_get(peer, fp8, rows, slot, 6);
    peer_send(peer, WIRE_GET, attachment);
    CHECK_EQUAL(peer_receive(peer, &answer), WIRE_ERROR);
    return answer.error.code;
}

// fault 46
TEST(loader_writes_no_slot_for_a_stale_generation_or_a_foreign_ring) {
    const pid_t pid = serve_ready();
    Peer peer = peer_open("p");
    WireMessage answer;
    Ring ring = {0};
    CtlReply reply;
    int ctl = attach_ring(8192, 8192, &ring, &reply);
    CHECK(ctl >= 0);

    uint8_t fp8[8];
    peer_greet(&peer, &peer_hello, fp8);

    peer_set_get(&peer, fp8, ROWS, 2, 5);
    peer_send(&peer, WIRE_GET, reply.attach_id);
    CHECK_EQUAL(peer_receive(&peer, &answer), WIRE_BATCH);
    const uint16_t *slot = (const uint16_t *)(const void *)ring_slot(&ring, 2);
    CHECK_EQUAL(slot[1], test_id(1, 0, 1));
    CHECK_EQUAL(answer.batch.length, ROWS * (T + 1) * 2);

    // A resend (same req_id and generation) is answered, but the slot is not written again.
    memset(ring_slot(&ring, 2), 0, 8192);
    peer.message.header.req_id--;
    peer_send(&peer, WIRE_GET, reply.attach_id);
    CHECK_EQUAL(peer_receive(&peer, &answer), WIRE_BATCH);
    CHECK_EQUAL(slot[1], 0);
    CHECK_EQUAL(peer_stats(&peer).repeated, 1);

    // An older generation is not answered and not written.
    uint64_t dropped = peer_stats(&peer).dropped;
    peer_set_get(&peer, fp8, ROWS, 2, 4);
    peer_send(&peer, WIRE_GET, reply.attach_id);
    CHECK_EQUAL(peer_stats(&peer).dropped, dropped + 1);
    CHECK_EQUAL(slot[1], 0);

    // A slot past the ring, more rows than a slot holds, another attachment, another dataset.
    CHECK_EQUAL(error_of_get(&peer, fp8, ROWS, 4, reply.attach_id), WIRE_SLOT);
    CHECK_EQUAL(error_of_get(&peer, fp8, 1000, 1, reply.attach_id), WIRE_SLOT);
    CHECK_EQUAL(error_of_get(&peer, fp8, ROWS, 1, reply.attach_id + 2), WIRE_SLOT);
    CHECK_EQUAL(error_of_get(&peer, (const uint8_t[8]){1}, ROWS, 1, reply.attach_id), WIRE_DATASET);
    check_refused_rings();

    // The attachment ends with the connection, and a GET for it is dropped: its trainer may have ended well.
    const uint64_t errors = peer_stats(&peer).errors;
    close(ctl);
    unsigned type = WIRE_BATCH;
    for (uint32_t generation = 7; type == WIRE_BATCH; generation++) { // the loader may notice the end a little later
        peer_set_get(&peer, fp8, ROWS, 1, generation);
        peer_send(&peer, WIRE_GET, reply.attach_id);
        memset(&peer.message.stats, 0, sizeof peer.message.stats);
        peer_send(&peer, WIRE_STATS, 0);
        type = peer_receive(&peer, &answer);
        if (type == WIRE_BATCH) CHECK_EQUAL(peer_receive(&peer, &answer), WIRE_STATS);
    }
    CHECK(type == WIRE_STATS && answer.stats.errors == errors);
    ring_close(&ring);
    peer_close(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// Sends five requests and SIGTERM to a stopped loader and lets it continue: how many does it answer before it ends?
static int answers_of_stopping_loader(int times, long pause_ms) {
    pid_t pid = start_loader("d", "p");
    wait_for_loader("p", times);
    Peer peer = peer_open("p");
    WireMessage answer;
    uint8_t fp8[8];
    const WireWelcome welcome = peer_greet(&peer, &peer_hello, fp8);
    CHECK(welcome.tokens[0] == 100000 && welcome.eot_id == TEST_EOT);
    kill(pid, SIGSTOP);
    for (int i = 0; i < 5; i++) {
        peer_set_get(&peer, fp8, 1, 0, 0);
        peer_send(&peer, WIRE_GET, 0);
    }
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    // The notice may overtake the answers; where they are missing, that is seen by the time.
    int batches = 0, notices = 0;
    for (unsigned type = 1; type && (batches < 5 || !notices);) {
        const int ms = notices ? 2000 : 120000;
        zmq_setsockopt(peer.socket, ZMQ_RCVTIMEO, &ms, sizeof ms);
        type = peer_receive(&peer, &answer);
        batches += type == WIRE_BATCH, notices += type == WIRE_NOTICE;
    }
    CHECK_EQUAL(notices, 1);
    CHECK_EQUAL(stop_loader(pid, 0), 0);
    peer_close(&peer);
    return batches;
}

TEST(loader_answers_queued_requests_before_it_ends) {
    make_test_dataset("d", &test_small);
    // Nothing shows when libzmq's thread has sent the requests: the pause grows until it has.
    int batches = 0;
    long pause_ms = 10;
    for (int times = 1; batches < 5 && pause_ms < 10000; pause_ms *= 4)
        batches = answers_of_stopping_loader(times++, pause_ms);
    CHECK_EQUAL(batches, 5);
}

// fault 51
TEST(loader_names_both_versions_to_a_client_of_another_version) {
    const pid_t pid = serve_ready();
    Peer peer = peer_open("p");
    // HELLO of version 1: a body of 144 bytes.
    uint8_t hello[64 + 144] = {0};
    WireHeader header = {.magic = WIRE_MAGIC, .major = 1, .type = 1, .body_len = 144, .session = 77, .req_id = 5};
    memcpy(hello, &header, sizeof header);
    put_u32(hello + 8, crc32c(0, hello, sizeof hello));
    CHECK(zmq_send(peer.socket, hello, sizeof hello, 0) >= 0);
    WireMessage answer;
    CHECK(peer_receive(&peer, &answer) == WIRE_ERROR && answer.error.code == WIRE_PROTO);
    CHECK_EQUAL(answer.header.req_id, 5);
    CHECK_TEXT(answer.error.text, "version 4");
    CHECK_TEXT(answer.error.text, "version 1");
    peer_close(&peer);
    stop_loader(pid, SIGTERM);
}

static void check_proto_error(Peer *peer, const char *text) {
    WireMessage answer;
    CHECK(peer_receive(peer, &answer) == WIRE_ERROR && answer.error.code == WIRE_PROTO);
    CHECK_TEXT(answer.error.text, text);
}

// fault 48
TEST(loader_names_the_field_that_it_does_not_accept) {
    const pid_t pid = serve_ready();
    Peer peer = peer_open("p");
    peer.message.hello = peer_hello;
    peer.message.hello.zero[3] = 1; // as a newer minor version could send it
    peer_send(&peer, WIRE_HELLO, 0);
    check_proto_error(&peer, "field 'zero'");
    peer_set_get(&peer, (const uint8_t[8]){1}, 20000, 0, 0);
    peer.message.get.sequence_tokens = 1 << 20; // 40 GB of rows
    peer_send(&peer, WIRE_GET, 0);
    check_proto_error(&peer, "field 'rows'");
    peer_set_get(&peer, (const uint8_t[8]){1}, 1, 0, 0);
    peer.message.get.mode = 2;
    peer_send(&peer, WIRE_GET, 0);
    check_proto_error(&peer, "field 'mode'");
    peer_close(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}
