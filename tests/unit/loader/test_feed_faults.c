// The feed before loaders that are stopped, replaced, of another dataset, or that refuse.
#include "loader/client/feed_internal.h"
#include "tests/unit/loader/fixture_peer.h"
#include <signal.h>
#include <unistd.h>

enum { T = PEER_T, ROWS = PEER_ROWS };

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

static Feed *open_feed(void) { return open_test_feed(TEST_FEED(T, ROWS, .pin = pin, .unpin = unpin)); }

static void check_rows(const FeedBatch *batch) {
    for (uint64_t i = 0; i < batch->rows; i++)
        for (uint64_t t = 0; t <= T; t++)
            CHECK_EQUAL(((const uint16_t *)batch->ids)[i * (T + 1) + t],
                        test_id(1, 0, (batch->first_sample + i) * T + t));
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

// A loader that is stopped until the feed has requested again over a connection of its own.
typedef struct {
    pid_t pid;
    Feed *feed;
} Stopped;

static int continue_after_requests(void *self) {
    const Stopped *stopped = self;
    if (!stopped->feed || feed_stats(stopped->feed).resends < 1 || feed_stats(stopped->feed).reconnects < 1) return 0;
    return kill(stopped->pid, SIGCONT);
}

// fault 41
TEST(feed_fails_after_the_timeout_when_the_loader_is_stopped) {
    pid_t pid = serve_test_dataset(&test_small);
    Stopped stopped = {.pid = pid};
    FeedConfig config = *TEST_FEED(T, ROWS);
    config.while_waiting = continue_after_requests, config.while_waiting_self = &stopped;
    Feed *feed = open_test_feed(&config);
    uint64_t requested = take(feed, 0, 10);
    feed_cancel(feed);
    stopped.feed = feed;
    kill(pid, SIGSTOP); // a pause shorter than the timeout does no harm
    read_rows(feed, 1, ROWS, T, requested);
    CHECK(feed_stats(feed).resends >= 1 && feed_stats(feed).reconnects >= 1);
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
        for (; feed_capacity(feed); requested += ROWS) // requests that it will peer_receive when it wakes
            request_rows(feed, ROWS, requested % 1000);
        CHECK(rename("p", old) == 0);
        pid_t pid = start_loader("d", "p");
        requested = take(feed, requested, 20);
        check_rows(&held);
        kill(stopped, SIGCONT);
        Peer peer = peer_open(old);
        peer_stats(&peer); // it has handled all earlier messages
        peer_close(&peer);
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
