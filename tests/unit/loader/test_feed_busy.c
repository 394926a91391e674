// A trainer computes for long and does not look at its connection meanwhile.
#include "loader/client/feed_internal.h"
#include "tests/unit/loader/fixture_loader.h"
#include <signal.h>
#include <unistd.h>
#include <zmq.h>

enum {
    T = 64,
    ROWS = 8,
    EVENTS = 2500, // of attempts to connect every 2 to 4 ms: libzmq has room for 2,000 that nobody reads
    KINDS = 4,
    LOADERS = 5
};

static char plain[40], with_keys[40], list[] = "ipc://q,ipc://r";
static const char *const endpoints[KINDS] = {"ipc://p", plain, with_keys, list};
static const char *const places[LOADERS] = {"p", "q", "r", plain, with_keys};
static pid_t loaders[LOADERS];

static void start_loaders(const char *dataset) {
    for (int i = 0; i < LOADERS; i++)
        loaders[i] = places[i] == with_keys ? start_loader_with(dataset, with_keys, "--key=loader.key", "--allow=allow")
                                            : start_loader(dataset, places[i]);
}
static void kill_loaders(void) {
    for (int i = 0; i < LOADERS; i++) CHECK_EQUAL(stop_loader(loaders[i], SIGKILL), 128 + SIGKILL);
}

// Returns when a socket that connects again by itself, where nothing accepts connections, has reported that many
// attempts.
static void wait_for_attempts(int count) {
    const int every_ms = 2;
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER), *monitor = zmq_socket(context, ZMQ_PAIR);
    CHECK(zmq_setsockopt(socket, ZMQ_RECONNECT_IVL, &every_ms, sizeof every_ms) == 0);
    CHECK(zmq_socket_monitor(socket, "inproc://attempts", ZMQ_EVENT_CONNECT_RETRIED) == 0);
    CHECK(zmq_connect(monitor, "inproc://attempts") == 0 && zmq_connect(socket, "ipc://nobody") == 0);
    while (count--) CHECK(zmq_recv(monitor, NULL, 0, 0) >= 0 && zmq_recv(monitor, NULL, 0, 0) >= 0);
    zmq_socket_monitor(socket, NULL, 0);
    zmq_close(monitor), zmq_close(socket), zmq_ctx_term(context);
}

// fault 39
TEST_CI(feed_goes_on_or_stops_after_its_trainer_computed_while_the_loader_was_away) {
    static atomic_int stop;
    const TestDataset another = {
        .salt = 2, .train_tokens = 100000, .val_tokens = 5000, .shard_tokens = 100000, .frame_tokens = 4096};
    KeyPair loader, trainer;
    Feed *busy[KINDS], *ending[KINDS];
    alarm(FOREVER / 1000); // a hang ends the test
    CHECK(keys_make(&loader, "loader.key") == 0 && keys_make(&trainer, "trainer.key") == 0);
    write_file("allow", trainer.public_key, strlen(trainer.public_key));
    make_test_dataset("d", &test_small);
    make_test_dataset("e", &another);
    free_endpoint(plain), free_endpoint(with_keys);
    start_loaders("d");
    for (int i = 0; i < KINDS; i++) {
        FeedConfig config = test_feed_config(T, ROWS);
        config.endpoint = endpoints[i];
        if (endpoints[i] == with_keys) config.key_file = "trainer.key", config.loader_key = loader.public_key;
        busy[i] = open_test_feed(&config);
        config.stop = &stop;
        ending[i] = open_test_feed(&config);
        read_rows(busy[i], 1, ROWS, T, 0), read_rows(ending[i], 1, ROWS, T, 0);
    }
    kill_loaders();
    wait_for_attempts(EVENTS);

    stop = 1;
    for (int i = 0; i < KINDS; i++) {
        CHECK_EQUAL(result_of_rows(ending[i], ROWS, ROWS), FEED_STOPPED);
        feed_close(ending[i]);
    }
    start_loaders("d");
    for (int i = 0; i < KINDS; i++) read_rows(busy[i], 1, ROWS, T, ROWS);
    kill_loaders();
    wait_for_attempts(20);
    for (int i = 0; i < KINDS; i++) request_rows(busy[i], ROWS, 2 * ROWS);
    start_loaders("e");
    for (int i = 0; i < KINDS; i++) {
        FeedBatch batch;
        CHECK_EQUAL(feed_next(busy[i], &batch), FEED_CHANGED);
        read_rows(busy[i], 2, ROWS, T, 0);
        feed_close(busy[i]);
    }
    for (int i = 0; i < LOADERS; i++) CHECK_EQUAL(stop_loader(loaders[i], SIGTERM), 0);
    alarm(0);
}
