// The stream a trainer gets, whatever happens to the loader.
#include "common/hash.h"
#include "loader/order.h"
#include "tests/test_loader.h"
#include <signal.h>

static const TestDataset small = {1, 300000, 20000, 120000, 4096, false};

static FeedConfig feed_config(uint32_t T, uint32_t rows) {
    return (FeedConfig){
        .endpoint = "ipc://p", .vocab_size = 50304, .sequence_tokens = T, .max_rows = rows, .timeout_ms = 20000};
}

TEST(feed_gives_the_rows_of_the_order) {
    make_test_dataset("d", &small);
    pid_t pid = start_loader("d", "p");
    FeedConfig config = feed_config(64, 16);
    Feed *feed = feed_open(&config);
    NEED(feed);
    CHECK_EQUAL(feed_dataset(feed)->tokens[0], 300000);
    NEED(feed_attach(feed) == 0);
    Order order;
    NEED(order_open(&order, SAMPLING_EPOCH, 0, 7, 300000, 64) == 0);
    uint64_t asked = 0, got = 0;
    for (int i = 0; i < 1000; i++) {
        while (feed_free(feed)) {
            FeedAsk ask = {FEED_TRAIN, SAMPLING_EPOCH, 16, 7, asked};
            NEED(feed_ask(feed, &ask) == 0);
            asked += 16;
        }
        FeedBatch batch;
        NEED(feed_next(feed, &batch) == FEED_BATCH);
        CHECK_EQUAL(batch.first_sample, got);
        for (uint32_t row = 0; row < batch.rows; row++) {
            Group group;
            unsigned stretch;
            order_group(&order, got + row, &group);
            uint64_t token = order_token(&order, &group, got + row, &stretch);
            for (uint64_t t = 0; t < 65; t++) CHECK_EQUAL(batch.ids[row * 65 + t], test_id(1, 0, token + t));
        }
        got += batch.rows;
        feed_done(feed, &batch);
    }
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}
