// Several feeds of one loader: none waits for another that does not receive its batches.
#include "tests/unit/loader/fixture_loader.h"
#include <signal.h>

enum { T = 1024, ROWS = 64, FEEDS = 4, WINDOW = 4, BATCHES = 100 };

static void take(Feed *feed, uint64_t number) {
    FeedBatch batch;
    CHECK(feed_next(feed, &batch) == FEED_BATCH);
    CHECK_EQUAL(batch.first_sample, number * ROWS);
    take_rows(feed, &batch, 1, ROWS, T);
}

// Each in turn receives all its batches while the others, with rings and without, leave theirs where they are.
TEST(feeds_receive_batches_while_another_feed_reads_none) {
    const TestDataset data = {
        .salt = 1, .train_tokens = BATCHES * ROWS * T + T + 1, .shard_tokens = 1 << 20, .frame_tokens = 32768};
    pid_t pid = serve_test_dataset(&data);
    Feed *feeds[FEEDS];
    uint64_t taken[FEEDS] = {0};
    for (int i = 0; i < FEEDS; i++) {
        FeedConfig config = *TEST_FEED(T, ROWS);
        config.window = WINDOW, config.inline_only = i % 2;
        feeds[i] = open_test_feed(&config);
        CHECK(feed_stats(feeds[i]).ring == !config.inline_only);
        for (uint64_t batch = 0; batch < WINDOW; batch++) request_rows(feeds[i], ROWS, batch * ROWS);
    }
    for (int i = 0; i < FEEDS; i++) {
        for (; taken[i] < BATCHES; taken[i]++) {
            take(feeds[i], taken[i]);
            if (taken[i] + WINDOW < BATCHES) request_rows(feeds[i], ROWS, (taken[i] + WINDOW) * ROWS);
        }
        for (int other = i + 1; other < FEEDS; other++) CHECK_EQUAL(feed_stats(feeds[other]).batches, 0);
    }
    for (int i = 0; i < FEEDS; i++) {
        CHECK_EQUAL(feed_stats(feeds[i]).batches, BATCHES);
        feed_close(feeds[i]);
    }
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}
