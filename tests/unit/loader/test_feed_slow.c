// A feed over a slow connection: a proxy that forwards the loader's bytes at a limited rate.
#include "loader/protocol/keys.h"
#include "tests/unit/loader/fixture_loader.h"
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { T = 1024, ROWS = 512 };           // a batch of 1 MB
enum { CHUNK = 8 << 10, PAUSE_MS = 16 }; // 512 KB/s: two seconds for a batch, longer than any deadline of the feed

static int listener;
static pthread_t acceptor;
static _Atomic uint16_t loader_port;
static _Atomic long delay_ms; // before each forwarded read
static _Atomic unsigned connections;

static void *forward(void *argument) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pollfd ends[2] = {{.fd = (int)(intptr_t)argument, .events = POLLIN}, {.events = POLLIN}};
    address.sin_port = htons(loader_port);
    ends[1].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int size = CHUNK; // so that the kernel holds little
    setsockopt(ends[1].fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    bool open = connect(ends[1].fd, (struct sockaddr *)&address, sizeof address) == 0;
    while (open) {
        char bytes[CHUNK];
        poll(ends, 2, -1);
        for (int i = 0; i < 2 && open; i++) {
            if (!ends[i].revents) continue;
            ssize_t got = read(ends[i].fd, bytes, sizeof bytes);
            const long delay = delay_ms;
            nanosleep(&(struct timespec){delay / 1000, delay % 1000 * 1000000}, NULL);
            open = got > 0 && send(ends[!i].fd, bytes, (size_t)got, MSG_NOSIGNAL) == got;
            if (i == 1) nanosleep(&(struct timespec){0, PAUSE_MS * 1000000}, NULL);
        }
    }
    close(ends[0].fd);
    close(ends[1].fd);
    return NULL;
}

static void *accept_all(void *argument) {
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
        pthread_t thread;
        connections++;
        if (pthread_create(&thread, NULL, forward, (void *)(intptr_t)fd) == 0) pthread_detach(thread);
    }
    return argument;
}

// The proxy's address.
static const char *start_proxy(void) {
    static char endpoint[40];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    loader_port = (uint16_t)atoi(strrchr(tcp_endpoint(), ':') + 1);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 16) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    CHECK(pthread_create(&acceptor, NULL, accept_all, NULL) == 0);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
    return endpoint;
}

static void stop_proxy(void) {
    shutdown(listener, SHUT_RDWR);
    pthread_join(acceptor, NULL);
    close(listener);
}

// fault 52
TEST(feed_receives_a_batch_that_takes_longer_than_its_deadline) {
    const TestDataset small = {.salt = 1, .train_tokens = 600000, .shard_tokens = 600000, .frame_tokens = 4096};
    make_test_dataset("d", &small);
    pid_t pid = start_loader_with("d", tcp_endpoint(), NULL, NULL);
    Feed *feed = open_test_feed(TEST_FEED(T, ROWS, .endpoint = start_proxy(), .window = 1));
    for (uint64_t first = 0; first < 2; first++) read_rows(feed, 1, ROWS, T, first);
    feed_close(feed);
    stop_proxy();
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 52
TEST_CI(feed_connects_with_keys_over_a_connection_of_long_delay) {
    const TestDataset small = {.salt = 1, .train_tokens = 60000, .shard_tokens = 60000, .frame_tokens = 4096};
    KeyPair loader, trainer;
    CHECK(keys_make(&loader, "loader.key") == 0 && keys_make(&trainer, "trainer.key") == 0);
    write_file("allow", trainer.public_key, strlen(trainer.public_key));
    make_test_dataset("d", &small);
    pid_t pid = start_loader_with("d", tcp_endpoint(), "--key=loader.key", "--allow=allow");
    delay_ms = 300; // so that a round trip takes longer than the feed waits at first
    Feed *feed = open_test_feed(
        TEST_FEED(T, 1, .endpoint = start_proxy(), .key_file = "trainer.key", .loader_key = loader.public_key));
    read_rows(feed, 1, 1, T, 0);
    feed_close(feed);
    delay_ms = 0;
    stop_proxy();
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}
