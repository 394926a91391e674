// What the loader holds and sends has limits, whatever its clients do not read.
#include "tests/unit/loader/fixture_peer.h"
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__ // whose own memory is a multiple of the loader's
#define MOST_BYTES (2000ull << 20)
#else
#define MOST_BYTES (200ull << 20)
#endif

enum { T = PEER_T, ROWS = PEER_ROWS };

// fault 48, 89
TEST(loader_limits_the_answers_that_all_clients_together_do_not_read) {
    enum { PEERS = 40, SESSIONS = 2, GETS = 9, BIG = 60000 };
    make_test_dataset("d", &test_small);
    pid_t pid = start_loader_with("d", tcp_endpoint(), "--insecure", "--cache=64M");
    wait_for_loader("tcp", 1);
    Peer peers[PEERS];
    WireMessage answer;
    uint8_t fp8[8];
    for (int i = 0; i < PEERS; i++) {
        Peer *peer = &peers[i];
        *peer = peer_open(tcp_endpoint());
        for (uint64_t session = 0; session < SESSIONS; session++) {
            peer->message.header.session = 1 + (uint64_t)i * SESSIONS + session;
            peer->message.hello = peer_hello;
            peer->message.hello.max_rows = BIG;
            peer_send(peer, WIRE_HELLO, 0);
        }
        CHECK_EQUAL(peer_receive(peer, &answer), WIRE_WELCOME);
        memcpy(fp8, answer.welcome.dataset_fp, 8);
        for (int get = 0; get < GETS; get++) {
            peer_set_get(peer, fp8, BIG, 0, 0);
            peer->message.get.mode = SAMPLING_CROP;
            peer_send(peer, WIRE_GET, 0);
        }
    }
    Peer watch = peer_open(tcp_endpoint());
    WireStats stats;
    do stats = peer_stats(&watch);
    while (stats.batches + stats.errors < PEERS * GETS);
    CHECK(stats.errors > PEERS * GETS / 2);
    CHECK(stats.resident_bytes < MOST_BYTES);
    // The others are served as before.
    for (int i = 0; i < 100; i++) {
        peer_set_get(&watch, fp8, ROWS, 0, 0);
        peer_send(&watch, WIRE_GET, 0);
        CHECK_EQUAL(peer_receive(&watch, &answer), WIRE_BATCH);
    }
    for (int i = 0; i < PEERS; i++) peer_close(&peers[i]);
    peer_close(&watch);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// A DEALER by hand: ZeroMQ's own keeps a message until its last part is there. ZMTP 3.0: a greeting, and READY.
static int connect_by_hand(const char *place) {
    static const uint8_t greeting[64] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 0, 'N', 'U', 'L', 'L'};
    static const uint8_t ready[] = "\4\x1c\5READY\x0bSocket-Type\0\0\0\6DEALER";
    const char *port = strrchr(place, ':');
    struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un ipc = {.sun_family = AF_UNIX, .sun_path = "p/data.sock"};
    uint8_t reply[64 + 43];
    if (port) tcp.sin_port = htons((uint16_t)atoi(port + 1));
    const int fd = socket(port ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(fd, port ? (void *)&tcp : (void *)&ipc, port ? sizeof tcp : sizeof ipc) == 0);
    CHECK(send(fd, greeting, sizeof greeting, 0) == sizeof greeting);
    CHECK(recv(fd, reply, 64, MSG_WAITALL) == 64);
    CHECK(send(fd, ready, sizeof ready - 1, 0) == sizeof ready - 1);
    CHECK(recv(fd, reply, 43, MSG_WAITALL) == 43);
    return fd;
}

// Sends `parts` parts of which none is the last from each peer, until the loader has closed a connection.
static void check_unfinished(const char *place, Peer *watch, int peers, int parts, const void *part, size_t size) {
    const uint64_t dropped = peer_stats(watch).dropped;
    int fds[20];
    for (int i = 0; i < peers; i++) {
        fds[i] = connect_by_hand(place);
        for (int k = 0; k < parts && send(fds[i], part, size, MSG_NOSIGNAL) == (ssize_t)size; k++) {
        }
    }
    while (peer_stats(watch).dropped == dropped) {
    }
    CHECK(peer_stats(watch).resident_bytes < MOST_BYTES);
    for (int i = 0; i < peers; i++) close(fds[i]);
}

TEST(loader_limits_the_messages_that_do_not_end) {
    static uint8_t small[3 << 10],
        large[9 + 4000] = {3, 0, 0, 0, 0, 0, 0, 0xF, 0xA0}; // 1,024 parts of one byte, and one
    for (size_t i = 0; i < sizeof small; i += 3) small[i] = small[i + 1] = 1;
    make_test_dataset("d", &test_small);
    for (int i = 0; i < 2; i++) {
        const pid_t pid =
            i ? start_loader("d", "p") : start_loader_with("d", tcp_endpoint(), "--insecure", "--cache=64M");
        const char *place = i ? "p" : tcp_endpoint();
        wait_for_loader(i ? "p" : "tcp", 1);
        Peer watch = peer_open(place);
        for (int k = 0; k < 40000; k++) peer_send(&watch, WIRE_BYE, 0); // 2.6 MB of messages that do
        CHECK_EQUAL(peer_stats(&watch).dropped, 0);
        check_unfinished(place, &watch, 1, 3 << 10, small, sizeof small); // 9 MiB, of which a byte would cost 21
        check_unfinished(place, &watch, 20, 300, large, sizeof large);    // 24 MB, of less than a connection may have
        peer_close(&watch);
        CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    }
}

// fault 50
TEST(loader_limits_the_rate_of_its_errors) {
    const pid_t pid = serve_ready();
    Peer peer = peer_open("p");
    peer_set_get(&peer, (const uint8_t[8]){1}, 1, 0, 0);
    for (int i = 0; i < 1000; i++) peer_send(&peer, WIRE_GET, 0);
    WireMessage answer;
    int errors = 0;
    memset(&peer.message.stats, 0, sizeof peer.message.stats);
    peer_send(&peer, WIRE_STATS, 0);
    while (peer_receive(&peer, &answer) == WIRE_ERROR) errors++;
    CHECK_EQUAL(answer.stats.errors, 1000);
    CHECK(errors >= 100 && errors <= 300);
    // The limit is that of one peer: another one gets its error.
    for (int i = 0; i < 1000; i++) {
        peer_set_get(&peer, (const uint8_t[8]){1}, 1, 0, 0);
        peer_send(&peer, WIRE_GET, 0);
    }
    Peer second = peer_open("p");
    peer_set_get(&second, (const uint8_t[8]){1}, 1, 0, 0);
    peer_send(&second, WIRE_GET, 0);
    CHECK(peer_receive(&second, &answer) == WIRE_ERROR && answer.error.code == WIRE_DATASET);
    peer_close(&second);
    peer_close(&peer);
    stop_loader(pid, SIGTERM);
}

// Of a loader that has opened a dataset of so many shards and served nothing.
static uint64_t resident_with(uint64_t shards) {
    enum { SHARD_TOKENS = 40000 };
    const TestDataset spec = {
        .salt = 1, .train_tokens = shards * SHARD_TOKENS, .shard_tokens = SHARD_TOKENS, .frame_tokens = 4096};
    const char *place = shards == 1 ? "p1" : "p", *data = shards == 1 ? "one" : "many";
    make_test_dataset(data, &spec);
    const pid_t pid = start_loader(data, place);
    wait_for_loader(place, 1);
    Peer peer = peer_open(place);
    const uint64_t bytes = peer_stats(&peer).resident_bytes;
    peer_close(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    return bytes;
}

TEST(loader_holds_no_pages_of_the_shards_that_it_has_opened) {
    enum { SHARDS = 300 }; // of at least 80 KiB, all of which the kernel maps around the pages that are read
    CHECK(resident_with(SHARDS) < resident_with(1) + SHARDS * (32 << 10));
}
