// Feed and loader with peers that are stopped, hostile, or wake up after they were replaced.
#include "loader/client/feed_internal.h"
#include "tests/unit/loader/fixture_loader.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum { T = 64, ROWS = 8 };

// Addresses of the ring in use and of one that still has a lent slot.
static void *pinned[2];
static int pins;
static void pin(void *address, size_t bytes) {
    (void)bytes;
    CHECK(!pinned[0] || !pinned[1]);
    pinned[pinned[0] != NULL] = address, pins++;
}
static void unpin(void *address) {
    CHECK(address == pinned[0] || address == pinned[1]);
    pinned[address == pinned[1]] = NULL;
}

static Feed *open_feed(void) {
    FeedConfig config = test_feed_config(T, ROWS);
    config.pin = pin, config.unpin = unpin;
    return open_test_feed(&config);
}

static void check_rows(const FeedBatch *batch) {
    for (uint64_t i = 0; i < batch->rows; i++)
        for (uint64_t t = 0; t <= T; t++)
            CHECK_EQUAL(batch->ids[i * (T + 1) + t], test_id(1, 0, (batch->first_sample + i) * T + t));
}

static uint64_t take(Feed *feed, uint64_t requested, int batches) {
    while (batches-- > 0) {
        FeedBatch batch;
        for (; feed_capacity(feed); requested += ROWS) request_rows(feed, ROWS, requested % 1000);
        CHECK(feed_next(feed, &batch) == FEED_BATCH);
        take_rows(feed, &batch, 1, ROWS, T);
    }
    return requested;
}

// --- a client written by the test

typedef struct {
    void *context, *socket;
    WireMessage message;
} Peer;

static Peer open_peer(const char *place) {
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

static void close_peer(Peer *peer) {
    zmq_close(peer->socket);
    zmq_ctx_term(peer->context);
}

static void send_message(Peer *peer, WireType type, uint64_t attach_id) {
    peer->message.header.type = (uint8_t)type;
    peer->message.header.req_id++;
    peer->message.header.attach_id = attach_id;
    Bytes frame = wire_encode(&peer->message);
    CHECK(zmq_send(peer->socket, frame.data, frame.size, 0) >= 0);
}

// The type of the next reply; 0 when none arrives.
static unsigned receive(Peer *peer, WireMessage *answer) {
    uint8_t bytes[1 << 16];
    int got = zmq_recv(peer->socket, bytes, sizeof bytes, 0), more = 0;
    size_t size = sizeof more;
    if (got < 0) return 0;
    CHECK(wire_decode((Bytes){bytes, (size_t)got}, answer, NULL) == WIRE_VALID);
    while (zmq_getsockopt(peer->socket, ZMQ_RCVMORE, &more, &size) == 0 && more)
        CHECK(zmq_recv(peer->socket, bytes, sizeof bytes, 0) >= 0);
    return answer->header.type;
}

static pid_t serve_ready(void) {
    const pid_t pid = serve_test_dataset(&test_small);
    wait_for_loader("p", 1);
    return pid;
}

static WireStats stats_of(Peer *peer) {
    WireMessage answer;
    memset(&peer->message.stats, 0, sizeof peer->message.stats);
    send_message(peer, WIRE_STATS, 0);
    CHECK_EQUAL(receive(peer, &answer), WIRE_STATS);
    return answer.stats;
}

static const WireHello valid_hello = {.vocab_size = 50304, .sequence_tokens = T, .max_rows = ROWS, .window = 4};

// Introduces the peer to the loader; fp8 is the start of its dataset's fingerprint.
static WireWelcome greet(Peer *peer, const WireHello *hello, uint8_t fp8[8]) {
    WireMessage answer;
    peer->message.hello = *hello;
    send_message(peer, WIRE_HELLO, 0);
    CHECK_EQUAL(receive(peer, &answer), WIRE_WELCOME);
    memcpy(fp8, answer.welcome.dataset_fp, 8);
    return answer.welcome;
}

static void set_get(Peer *peer, const uint8_t fp8[8], uint32_t rows, uint32_t slot, uint32_t generation) {
    WireGet get = {
        .rows = rows, .sequence_tokens = T, .mode = SAMPLING_SEQUENTIAL, .slot = slot, .generation = generation};
    memcpy(get.dataset_fp8, fp8, 8);
    peer->message.get = get;
}

// fault 41
TEST(feed_fails_after_the_timeout_when_the_loader_is_stopped) {
    pid_t pid = serve_test_dataset(&test_small);
    Feed *feed = open_feed();
    uint64_t requested = take(feed, 0, 10);
    feed_cancel(feed);
    // A pause shorter than the timeout does no harm. It grows until the feed has had the time to ask again.
    for (int tenths = 2; feed_stats(feed).resends < 1 || feed_stats(feed).reconnects < 1; tenths *= 2) {
        char command[64];
        CHECK(tenths < 500);
        kill(pid, SIGSTOP);
        snprintf(command, sizeof command, "(sleep %d.%d; kill -CONT %d) &", tenths / 10, tenths % 10, (int)pid);
        CHECK(system(command) == 0);
        read_rows(feed, 1, ROWS, T, requested);
    }
    feed_close(feed);

    feed = open_feed();
    feed->config.timeout_ms = 200;
    kill(pid, SIGSTOP);
    CHECK_EQUAL(result_of_rows(feed, ROWS, requested), FEED_ERROR);
    CHECK_ERROR(EX_PEER, "no data from the loader");
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGKILL), 128 + SIGKILL);
}

// fault 41
TEST(feed_protects_its_slots_from_a_loader_that_wakes_after_its_replacement) {
    make_test_dataset("d", &test_small);
    for (int round = 0; round < 3; round++) {
        char old[16];
        snprintf(old, sizeof old, "p.%d", round);
        pid_t stopped = start_loader("d", "p");
        pins = 0;
        Feed *feed = open_feed();
        uint64_t requested = take(feed, 0, 5 + round);
        FeedBatch held;
        CHECK(feed_next(feed, &held) == FEED_BATCH); // lent from the ring that the stopped loader has
        kill(stopped, SIGSTOP);
        for (; feed_capacity(feed); requested += ROWS) // requests that it will receive when it wakes
            request_rows(feed, ROWS, requested % 1000);
        CHECK(rename("p", old) == 0);
        pid_t pid = start_loader("d", "p");
        requested = take(feed, requested, 20);
        check_rows(&held);
        kill(stopped, SIGCONT);
        Peer peer = open_peer(old);
        stats_of(&peer); // it has handled all earlier messages
        close_peer(&peer);
        requested = take(feed, requested, 40);
        check_rows(&held);
        CHECK(pins > 1 && pinned[0] && pinned[1]); // the new loader's ring, and the one with `held`
        feed_release(feed, &held);
        CHECK(!pinned[0] != !pinned[1]);
        requested = take(feed, requested, 20);
        CHECK(feed_stats(feed).ring);
        feed_close(feed);
        CHECK(!pinned[0] && !pinned[1]);
        CHECK_EQUAL(stop_loader(stopped, SIGTERM), 0);
        CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    }
}

// fault 104
TEST(feed_passes_over_a_loader_of_another_dataset_in_its_list) {
    TestDataset second = test_small;
    second.salt = 2;
    make_test_dataset("d", &test_small);
    make_test_dataset("other", &second);
    pid_t pid = start_loader("d", "p");
    const pid_t wrong = start_loader("other", "q");
    FeedConfig config = test_feed_config(T, ROWS);
    config.endpoint = "ipc://p,ipc://q";
    wait_for_loader("p", 1);
    Feed *feed = open_test_feed(&config);
    for (int round = 0; round < 3; round++) {
        read_rows(feed, 1, ROWS, T, 5);
        stop_loader(pid, SIGKILL);
        feed->config.timeout_ms = 500;
        CHECK_EQUAL(result_of_rows(feed, ROWS, 6), FEED_ERROR);
        CHECK_ERROR(EX_PEER, "no data from the loader");
        feed->config.timeout_ms = FOREVER;
        feed_cancel(feed);
        pid = start_loader("d", "p");
    }
    read_rows(feed, 1, ROWS, T, 7);
    // A change at the endpoint in use is one that was meant.
    stop_loader(pid, SIGKILL);
    pid = start_loader("other", "p");
    CHECK_EQUAL(result_of_rows(feed, ROWS, 8), FEED_CHANGED);
    read_rows(feed, 2, ROWS, T, 8);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    CHECK_EQUAL(stop_loader(wrong, SIGTERM), 0);
}

TEST(feed_error_names_the_damaged_frame_and_no_path) {
    make_test_dataset("d", &test_small);
    damage_frame("d/train/000/000001.zst", 3);
    pid_t pid = start_loader("d", "p");
    Feed *feed = open_feed();
    CHECK_EQUAL(result_of_rows(feed, ROWS, (60000 + 3 * 4096 + 100) / T), FEED_ERROR);
    CHECK(!strchr(err_text(), '/'));
    CHECK_ERROR(EX_DATA, "train shard 1, frame 3");
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);          // the loader still runs
    CHECK_TEXT(read_file("p.log", NULL), "000001.zst"); // and has logged the path
}

TEST(feed_error_names_a_split_that_is_too_short) {
    TestDataset spec = test_small;
    spec.val_tokens = 0;
    make_test_dataset("d", &spec);
    pid_t pid = start_loader("d", "p");
    Feed *feed = open_feed();
    FeedBatch batch;
    FeedRequest request = {SPLIT_VAL, SAMPLING_SEQUENTIAL, ROWS, 0, 0, 0, 0};
    CHECK(feed_request(feed, &request) == 0);
    CHECK_EQUAL(feed_next(feed, &batch), FEED_ERROR);
    CHECK_ERROR(EX_DATA, "the val split has 0 tokens");
    feed_close(feed);
    stop_loader(pid, SIGTERM);
}

// fault 47
TEST(loader_drops_and_counts_corrupt_messages) {
    const pid_t pid = serve_ready();
    Peer peer = open_peer("p");
    uint64_t dropped = stats_of(&peer).dropped;
    uint8_t noise[300];
    srand(5);
    for (size_t size = 0; size < sizeof noise; size++) {
        for (size_t i = 0; i < size; i++) noise[i] = (uint8_t)rand();
        CHECK(zmq_send(peer.socket, noise, size, 0) >= 0);
    }
    CHECK_EQUAL(stats_of(&peer).dropped - dropped, sizeof noise);
    // More parts than a message has, and a frame with the right magic and a wrong length.
    for (int part = 0; part < 20; part++) CHECK(zmq_send(peer.socket, "GLD1", 4, part < 19 ? ZMQ_SNDMORE : 0) >= 0);
    memset(&peer.message, 0, sizeof peer.message);
    peer.message.header.type = WIRE_STATS, peer.message.header.session = 1;
    Bytes frame = wire_encode(&peer.message);
    peer.message.header.body_len = UINT32_MAX;
    CHECK(zmq_send(peer.socket, frame.data, frame.size, 0) >= 0);
    CHECK_EQUAL(stats_of(&peer).dropped - dropped, sizeof noise + 2);
    // Larger than any message of the protocol: the loader closes the connection and continues.
    Peer big = open_peer("p");
    uint8_t *much = calloc(1, 1 << 20);
    CHECK(zmq_socket_monitor(big.socket, "inproc://big", ZMQ_EVENT_DISCONNECTED) == 0);
    void *monitor = zmq_socket(big.context, ZMQ_PAIR);
    CHECK(zmq_connect(monitor, "inproc://big") == 0);
    CHECK(zmq_send(big.socket, much, 1 << 20, 0) >= 0);
    uint8_t event[8];
    CHECK(zmq_recv(monitor, event, sizeof event, 0) > 0); // the loader has closed the connection
    zmq_close(monitor);
    free(much);
    close_peer(&big);
    stats_of(&peer);
    close_peer(&peer);
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
    set_get(peer, fp8, rows, slot, 6);
    send_message(peer, WIRE_GET, attachment);
    CHECK_EQUAL(receive(peer, &answer), WIRE_ERROR);
    return answer.error.code;
}

// fault 46
TEST(loader_writes_no_slot_for_a_stale_generation_or_a_foreign_ring) {
    const pid_t pid = serve_ready();
    Peer peer = open_peer("p");
    WireMessage answer;
    Ring ring = {0};
    CtlReply reply;
    int ctl = attach_ring(8192, 8192, &ring, &reply);
    CHECK(ctl >= 0);

    uint8_t fp8[8];
    greet(&peer, &valid_hello, fp8);

    set_get(&peer, fp8, ROWS, 2, 5);
    send_message(&peer, WIRE_GET, reply.attach_id);
    CHECK_EQUAL(receive(&peer, &answer), WIRE_BATCH);
    const uint16_t *slot = (const uint16_t *)(const void *)ring_slot(&ring, 2);
    CHECK_EQUAL(slot[1], test_id(1, 0, 1));
    CHECK_EQUAL(answer.batch.length, ROWS * (T + 1) * 2);

    // A resend (same req_id and generation) is answered, but the slot is not written again.
    memset(ring_slot(&ring, 2), 0, 8192);
    peer.message.header.req_id--;
    send_message(&peer, WIRE_GET, reply.attach_id);
    CHECK_EQUAL(receive(&peer, &answer), WIRE_BATCH);
    CHECK_EQUAL(slot[1], 0);
    CHECK_EQUAL(stats_of(&peer).repeated, 1);

    // An older generation is not answered and not written.
    uint64_t dropped = stats_of(&peer).dropped;
    set_get(&peer, fp8, ROWS, 2, 4);
    send_message(&peer, WIRE_GET, reply.attach_id);
    CHECK_EQUAL(stats_of(&peer).dropped, dropped + 1);
    CHECK_EQUAL(slot[1], 0);

    // A slot past the ring, more rows than a slot holds, another attachment, another dataset.
    CHECK_EQUAL(error_of_get(&peer, fp8, ROWS, 4, reply.attach_id), WIRE_SLOT);
    CHECK_EQUAL(error_of_get(&peer, fp8, 1000, 1, reply.attach_id), WIRE_SLOT);
    CHECK_EQUAL(error_of_get(&peer, fp8, ROWS, 1, reply.attach_id + 2), WIRE_SLOT);
    CHECK_EQUAL(error_of_get(&peer, (const uint8_t[8]){1}, ROWS, 1, reply.attach_id), WIRE_DATASET);
    check_refused_rings();

    // The attachment ends with the connection, and a GET for it is dropped: its trainer may have ended well.
    const uint64_t errors = stats_of(&peer).errors;
    close(ctl);
    unsigned type = WIRE_BATCH;
    for (uint32_t generation = 7; type == WIRE_BATCH; generation++) { // the loader may notice the end a little later
        set_get(&peer, fp8, ROWS, 1, generation);
        send_message(&peer, WIRE_GET, reply.attach_id);
        memset(&peer.message.stats, 0, sizeof peer.message.stats);
        send_message(&peer, WIRE_STATS, 0);
        type = receive(&peer, &answer);
        if (type == WIRE_BATCH) CHECK_EQUAL(receive(&peer, &answer), WIRE_STATS);
    }
    CHECK(type == WIRE_STATS && answer.stats.errors == errors);
    ring_close(&ring);
    close_peer(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 48
TEST(loader_limits_the_answers_that_a_client_does_not_read) {
    enum { BIG = 60000, GETS = 64, WINDOW = 4 }; // 7.8 MB of rows in each answer
    const pid_t pid = serve_ready();
    Peer peer = open_peer("p"), watch = open_peer("p");
    WireMessage answer;
    uint8_t fp8[8];
    greet(&peer, &(WireHello){.vocab_size = 50304, .sequence_tokens = T, .max_rows = BIG, .window = WINDOW}, fp8);
    for (int i = 0; i < GETS; i++) {
        set_get(&peer, fp8, BIG, 0, 0);
        peer.message.get.mode = SAMPLING_CROP;
        send_message(&peer, WIRE_GET, 0);
    }
    WireStats stats;
    do stats = stats_of(&watch);
    while (stats.batches + stats.errors < GETS);
    CHECK(stats.batches >= WINDOW && stats.batches <= WINDOW + 2); // sockets hold some of the rows
    CHECK(stats.resident_bytes < 200 << 20);
    uint64_t bytes = 0, busy = 0;
    while (bytes + busy * BIG * (T + 1) * 2 < (uint64_t)GETS * BIG * (T + 1) * 2) {
        unsigned type = receive(&peer, &answer);
        CHECK(type == WIRE_BATCH || type == WIRE_ERROR);
        if (type == WIRE_BATCH) CHECK(answer.batch.length <= WIRE_PIECE_MAX);
        if (type == WIRE_BATCH) bytes += answer.batch.length;
        if (type == WIRE_ERROR) CHECK_EQUAL(answer.error.code, WIRE_BUSY);
        busy += type == WIRE_ERROR;
    }
    CHECK_EQUAL(busy, stats.errors);
    set_get(&peer, fp8, ROWS, 0, 0); // all has been read: the next request is served
    send_message(&peer, WIRE_GET, 0);
    CHECK_EQUAL(receive(&peer, &answer), WIRE_BATCH);
    close_peer(&watch);
    close_peer(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
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
    Peer peer = open_peer(place);
    const uint64_t bytes = stats_of(&peer).resident_bytes;
    close_peer(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    return bytes;
}

TEST(loader_holds_no_pages_of_the_shards_that_it_has_opened) {
    enum { SHARDS = 300 }; // of at least 80 KiB, all of which the kernel maps around the pages that are read
    CHECK(resident_with(SHARDS) < resident_with(1) + SHARDS * (32 << 10));
}

static const char *printed(const Status *status, StatusForm form) {
    static Buffer text;
    text.size = 0;
    status_print(status, form, &text);
    buffer_add(&text, "", 1);
    return (const char *)text.data;
}

// fault 98
TEST(loader_status_shows_who_a_client_is_where_it_is_and_what_it_has_not_read) {
    enum { BIG = 60000, FIRST = 1000 };
    const pid_t pid = serve_ready();
    Peer peer = open_peer("p");
    static Status status;
    uint8_t fp8[8];
    WireHello hello = {.vocab_size = 50304, .sequence_tokens = T, .max_rows = BIG, .window = 1};
    strcpy(hello.name, "a\"b\\c 1\nmillrace_loader_forged 1\x1b[2J\xe2\x80\xae");
    greet(&peer, &hello, fp8);
    set_get(&peer, fp8, BIG, 0, 0);
    peer.message.get.mode = SAMPLING_CROP, peer.message.get.first_sample = FIRST;
    send_message(&peer, WIRE_GET, 0);
    do read_status(&status, "ipc://p");
    while (!status.totals.batches);
    CHECK_EQUAL(status.totals.clients, 1);
    const WireClientStats *client = &status.clients[0];
    char address[32];
    snprintf(address, sizeof address, "pid %d", (int)getpid());
    CHECK_TEXT(client->address, address);
    CHECK_TEXT(client->name, "a\"b\\c 1?millrace_loader_forged 1?[2J???");
    CHECK_EQUAL(client->next_sample, FIRST + BIG);
    CHECK(client->unread_bytes >= BIG * (T + 1) * 2);
    const char *metrics = printed(&status, STATUS_PROMETHEUS);
    CHECK(strstr(metrics, ",name=\"a\\\"b\\\\c 1?millrace_loader_forged 1?[2J???\"} 61000\n"));
    CHECK(!strstr(metrics, "\nmillrace_loader_forged") && !strchr(metrics, 0x1b));
    CHECK(strstr(printed(&status, STATUS_JSON),
                 "\"name\": \"a\\\"b\\\\c 1?millrace_loader_forged 1?[2J???\", \"address\""));
    CHECK(strstr(printed(&status, STATUS_TABLE), " a\"b\\c 1?millrace_loader_forged 1?[2J???\n"));

    // An evaluation of the train split does not move the position; a name that does not end is refused.
    WireMessage answer;
    while (receive(&peer, &answer) == WIRE_BATCH && answer.batch.offset + answer.batch.length < BIG * (T + 1) * 2) {
    }
    set_get(&peer, fp8, ROWS, 0, 0);
    send_message(&peer, WIRE_GET, 0);
    CHECK_EQUAL(receive(&peer, &answer), WIRE_BATCH);
    read_status(&status, "ipc://p");
    CHECK(status.clients[0].next_sample == FIRST + BIG && status.clients[0].batches == 2);
    memset(hello.name, 'x', sizeof hello.name);
    peer.message.hello = hello;
    send_message(&peer, WIRE_HELLO, 0);
    CHECK_EQUAL(receive(&peer, &answer), WIRE_ERROR);
    CHECK(answer.error.code == WIRE_PROTO && strstr(answer.error.text, "'name'"));
    close_peer(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

TEST(loader_status_shows_the_newest_name_and_address_of_a_session) {
    make_test_dataset("d", &test_small);
    const pid_t pid = start_loader("d", tcp_endpoint());
    const char *const hosts[] = {"127.0.0.1", "127.0.0.2"}, *const names[] = {"first", ""};
    static Status status;
    for (int i = 0; i < 2; i++) {
        char from[80];
        snprintf(from, sizeof from, "tcp://%s:0;%s", hosts[i], tcp_endpoint() + strlen("tcp://"));
        Peer peer = open_peer(from);
        uint8_t fp8[8];
        WireHello hello = valid_hello;
        strcpy(hello.name, names[i]);
        greet(&peer, &hello, fp8);
        read_status(&status, tcp_endpoint());
        CHECK_EQUAL(status.totals.clients, 1);
        CHECK(!strcmp(status.clients[0].address, hosts[i]) && !strcmp(status.clients[0].name, names[i]));
        close_peer(&peer);
    }
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// The tokens that status reports of each source of these datasets after 8 samples for training and evaluations.
static void check_training_tokens(const char *dataset, const char *other, const uint64_t tokens[2]) {
    const pid_t pid = start_loader_with(dataset, "p", other, NULL);
    wait_for_loader("p", 1);
    Peer peer = open_peer("p");
    static Status status;
    uint8_t fp8[8];
    WireMessage answer;
    greet(&peer, &valid_hello, fp8);
    static const WireGet gets[] = {{.mode = SAMPLING_EPOCH},
                                   {.mode = SAMPLING_EPOCH, .split = SPLIT_VAL},
                                   {.mode = SAMPLING_PERMUTED, .first_sample = 100},
                                   {.mode = SAMPLING_PERMUTED, .split = SPLIT_VAL, .source = 1},
                                   {.mode = SAMPLING_EPOCH, .source = 1, .first_sample = 100}};
    for (const WireGet *get = gets; get < gets + sizeof gets / sizeof *gets; get++) {
        peer.message.get = *get;
        peer.message.get.rows = ROWS, peer.message.get.sequence_tokens = T;
        memcpy(peer.message.get.dataset_fp8, fp8, 8);
        send_message(&peer, WIRE_GET, 0);
        CHECK_EQUAL(receive(&peer, &answer), WIRE_BATCH);
        read_status(&status, "ipc://p");
        CHECK_EQUAL(status.totals.sources, other ? 2 : 1);
        for (unsigned i = 0; i < status.totals.sources; i++) {
            CHECK_EQUAL(status.sources[i].tokens, tokens[i]);
            CHECK_EQUAL(status.sources[i].highest, ROWS);
        }
    }
    close_peer(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

TEST(loader_status_counts_the_tokens_for_training_without_evaluations) {
    make_test_dataset("d", &test_small);
    make_test_dataset("e", &test_small);
    check_training_tokens("d", NULL, (const uint64_t[]){ROWS * T, 0});
    CHECK(unlink("p.log") == 0);
    check_training_tokens("d:3", "e:1", (const uint64_t[]){ROWS * 3 / 4 * T, ROWS / 4 * T});
}

// fault 89
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
        *peer = open_peer(tcp_endpoint());
        for (uint64_t session = 0; session < SESSIONS; session++) {
            peer->message.header.session = 1 + (uint64_t)i * SESSIONS + session;
            peer->message.hello = valid_hello;
            peer->message.hello.max_rows = BIG;
            send_message(peer, WIRE_HELLO, 0);
        }
        CHECK_EQUAL(receive(peer, &answer), WIRE_WELCOME);
        memcpy(fp8, answer.welcome.dataset_fp, 8);
        for (int get = 0; get < GETS; get++) {
            set_get(peer, fp8, BIG, 0, 0);
            peer->message.get.mode = SAMPLING_CROP;
            send_message(peer, WIRE_GET, 0);
        }
    }
    Peer watch = open_peer(tcp_endpoint());
    WireStats stats;
    do stats = stats_of(&watch);
    while (stats.batches + stats.errors < PEERS * GETS);
    CHECK(stats.errors > PEERS * GETS / 2);
    CHECK(stats.resident_bytes < 200 << 20);
    // The others are served as before.
    for (int i = 0; i < 100; i++) {
        set_get(&watch, fp8, ROWS, 0, 0);
        send_message(&watch, WIRE_GET, 0);
        CHECK_EQUAL(receive(&watch, &answer), WIRE_BATCH);
    }
    for (int i = 0; i < PEERS; i++) close_peer(&peers[i]);
    close_peer(&watch);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 50
TEST(loader_limits_the_rate_of_its_errors) {
    const pid_t pid = serve_ready();
    Peer peer = open_peer("p");
    set_get(&peer, (const uint8_t[8]){1}, 1, 0, 0);
    for (int i = 0; i < 1000; i++) send_message(&peer, WIRE_GET, 0);
    WireMessage answer;
    int errors = 0;
    memset(&peer.message.stats, 0, sizeof peer.message.stats);
    send_message(&peer, WIRE_STATS, 0);
    while (receive(&peer, &answer) == WIRE_ERROR) errors++;
    CHECK_EQUAL(answer.stats.errors, 1000);
    CHECK(errors >= 100 && errors <= 300);
    // The limit is that of one peer: another one gets its error.
    for (int i = 0; i < 1000; i++) {
        set_get(&peer, (const uint8_t[8]){1}, 1, 0, 0);
        send_message(&peer, WIRE_GET, 0);
    }
    Peer second = open_peer("p");
    set_get(&second, (const uint8_t[8]){1}, 1, 0, 0);
    send_message(&second, WIRE_GET, 0);
    CHECK(receive(&second, &answer) == WIRE_ERROR && answer.error.code == WIRE_DATASET);
    close_peer(&second);
    close_peer(&peer);
    stop_loader(pid, SIGTERM);
}

// Sends five requests and SIGTERM to a stopped loader and lets it continue: how many does it answer before it ends?
static int answers_of_stopping_loader(int times, long pause_ms) {
    pid_t pid = start_loader("d", "p");
    wait_for_loader("p", times);
    Peer peer = open_peer("p");
    WireMessage answer;
    uint8_t fp8[8];
    const WireWelcome welcome = greet(&peer, &valid_hello, fp8);
    CHECK(welcome.tokens[0] == 100000 && welcome.eot_id == TEST_EOT);
    kill(pid, SIGSTOP);
    for (int i = 0; i < 5; i++) {
        set_get(&peer, fp8, 1, 0, 0);
        send_message(&peer, WIRE_GET, 0);
    }
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    // The notice may overtake the answers; where they are missing, that is seen by the time.
    int batches = 0, notices = 0;
    for (unsigned type = 1; type && (batches < 5 || !notices);) {
        const int ms = notices ? 2000 : 120000;
        zmq_setsockopt(peer.socket, ZMQ_RCVTIMEO, &ms, sizeof ms);
        type = receive(&peer, &answer);
        batches += type == WIRE_BATCH, notices += type == WIRE_NOTICE;
    }
    CHECK_EQUAL(notices, 1);
    CHECK_EQUAL(stop_loader(pid, 0), 0);
    close_peer(&peer);
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
    Peer peer = open_peer("p");
    // HELLO of version 1: a body of 144 bytes.
    uint8_t hello[64 + 144] = {0};
    WireHeader header = {.magic = WIRE_MAGIC, .major = 1, .type = 1, .body_len = 144, .session = 77, .req_id = 5};
    memcpy(hello, &header, sizeof header);
    put_u32(hello + 8, crc32c(0, hello, sizeof hello));
    CHECK(zmq_send(peer.socket, hello, sizeof hello, 0) >= 0);
    WireMessage answer;
    CHECK(receive(&peer, &answer) == WIRE_ERROR && answer.error.code == WIRE_PROTO);
    CHECK_EQUAL(answer.header.req_id, 5);
    CHECK_TEXT(answer.error.text, "version 3");
    CHECK_TEXT(answer.error.text, "version 1");
    close_peer(&peer);
    stop_loader(pid, SIGTERM);
}

static void check_proto_error(Peer *peer, const char *text) {
    WireMessage answer;
    CHECK(receive(peer, &answer) == WIRE_ERROR && answer.error.code == WIRE_PROTO);
    CHECK_TEXT(answer.error.text, text);
}

// fault 48
TEST(loader_names_the_field_that_it_does_not_accept) {
    const pid_t pid = serve_ready();
    Peer peer = open_peer("p");
    peer.message.hello = valid_hello;
    peer.message.hello.zero[3] = 1; // as a newer minor version could send it
    send_message(&peer, WIRE_HELLO, 0);
    check_proto_error(&peer, "field 'zero'");
    set_get(&peer, (const uint8_t[8]){1}, 20000, 0, 0);
    peer.message.get.sequence_tokens = 1 << 20; // 40 GB of rows
    send_message(&peer, WIRE_GET, 0);
    check_proto_error(&peer, "field 'rows'");
    set_get(&peer, (const uint8_t[8]){1}, 1, 0, 0);
    peer.message.get.mode = 2;
    send_message(&peer, WIRE_GET, 0);
    check_proto_error(&peer, "field 'mode'");
    close_peer(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}
