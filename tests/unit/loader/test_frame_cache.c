// The cache of decoded frames with decoders that the test controls, and the number of frames that clients cause.
#include "common/log.h"
#include "loader/protocol/sampling.h"
#include "loader/server/frame_cache.h"
#include "loader/server/served.h"
#include "tests/unit/loader/fixture_loader.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { FRAME = 4096, SHARD = 8 * FRAME }; // tokens
static const TestDataset two_shards = {
    .salt = 1, .train_tokens = 2 * SHARD, .val_tokens = FRAME, .shard_tokens = SHARD, .frame_tokens = FRAME};

static atomic_int gate_closed, waiting; // decoding a frame of shard 0 waits while the gate is closed

static int decode_behind_gate(const FramePlace *place, ShardCursor *cursor, void *ids) {
    atomic_fetch_add(&waiting, place->shard == 0);
    while (place->shard == 0 && atomic_load(&gate_closed)) usleep(100);
    atomic_fetch_sub(&waiting, place->shard == 0);
    return frame_decode(place, cursor, ids);
}

static void collect(FrameCache *cache) {
    struct pollfd event = {frame_cache_event(cache), POLLIN, 0};
    CHECK(poll(&event, 1, 120000) == 1);
    frame_cache_collect(cache);
}

static CachedFrame *get(FrameCache *cache, ShardStream *stream, uint64_t number) {
    for (;;) {
        CachedFrame *frame = frame_cache_get(cache, stream, number);
        if (frame->state != FRAME_QUEUED) return frame;
        collect(cache);
    }
}

static void check_frame(const CachedFrame *frame) {
    CHECK(frame->state == FRAME_READY);
    CHECK_EQUAL(frame->place.tokens, FRAME);
    for (uint64_t i = 0; i < FRAME; i++)
        CHECK_EQUAL(((const uint16_t *)frame->ids)[i], test_id(1, SPLIT_TRAIN, frame->place.first_token + i));
}

// fault 35
TEST(loader_cache_serves_other_files_while_one_is_stalled_and_names_it) {
    make_test_dataset("d", &two_shards);
    Served *served = served_open(&(ServedSpec){.sources = {{"d", 1}}, .count = 1});
    ShardStream *stream = &served->streams[SPLIT_TRAIN];
    FrameCache *cache = frame_cache_open(1 << 20, 2, decode_behind_gate);
    atomic_store(&gate_closed, 1);
    for (uint64_t i = 0; i < 8; i++) CHECK_EQUAL(frame_cache_get(cache, stream, i)->state, FRAME_QUEUED);
    while (atomic_load(&waiting) < 2) usleep(100); // both decoders
    // A second later their file is known to be stalled, and others decode the frames of the other shard.
    frame_cache_watch(cache, clock_ns() + 2000000000ull);
    for (uint64_t i = 8; i < 16; i++) check_frame(get(cache, stream, i));
    CHECK_EQUAL(atomic_load(&waiting), 2);
    frame_cache_watch(cache, clock_ns() + 11000000000ull);
    CHECK(!frame_cache_forget(cache, stream)); // a decoder still writes to a frame
    atomic_store(&gate_closed, 0);
    while (!frame_cache_idle(cache)) collect(cache);
    for (uint64_t i = 0; i < 16; i++) check_frame(get(cache, stream, i));
    CHECK(frame_cache_forget(cache, stream));
    CHECK(frame_cache_close(cache));
    served_close(served);
}

TEST(loader_cache_stays_within_its_limit_and_keeps_what_is_used) {
    make_test_dataset("d", &two_shards);
    Served *served = served_open(&(ServedSpec){.sources = {{"d", 1}}, .count = 1});
    ShardStream *stream = &served->streams[SPLIT_TRAIN];
    FrameCache *cache = frame_cache_open(4 * FRAME * 2, 2, frame_decode);
    CachedFrame *pinned = get(cache, stream, 0);
    frame_pin(pinned);
    for (uint64_t i = 1; i < 16; i++) {
        check_frame(get(cache, stream, 1)); // used again and again
        check_frame(get(cache, stream, i));
        CHECK(frame_cache_stats(cache).bytes <= 4 * FRAME * 2);
    }
    CHECK_EQUAL(frame_cache_stats(cache).decoded, 16); // neither 0 nor 1 was decoded twice
    check_frame(pinned);
    frame_unpin(pinned);
    // Reading ahead replaces only frames that are decoded and not pinned.
    CachedFrame *held[4];
    for (uint64_t i = 0; i < 4; i++) frame_pin(held[i] = get(cache, stream, i));
    CHECK(!frame_cache_prefetch(cache, stream, 9));
    frame_unpin(held[0]);
    CHECK(frame_cache_prefetch(cache, stream, 9));
    CHECK(!frame_cache_prefetch(cache, stream, 10));
    check_frame(get(cache, stream, 9));
    for (uint64_t i = 1; i < 4; i++) frame_unpin(held[i]);
    CHECK(frame_cache_forget(cache, stream));
    CHECK(frame_cache_close(cache));
    served_close(served);
}

// Reads each frame once. Returns the bytes that the cache then holds.
static uint64_t fill(FrameCache *cache, ShardStream *stream) {
    for (uint64_t i = 0; i < stream->frames; i++) CHECK(get(cache, stream, i)->state == FRAME_READY);
    return frame_cache_stats(cache).bytes;
}

// fault 129
TEST(loader_cache_grows_only_where_memory_is_free_and_gives_it_back) {
    enum { MIB = 1 << 20, TOKENS = MIB / 2 / 4 }; // a frame is a quarter of a MiB
    make_test_dataset("d", &(TestDataset){.salt = 1,
                                          .train_tokens = 96 * TOKENS, // 24 MiB
                                          .val_tokens = FRAME,
                                          .shard_tokens = 96 * TOKENS,
                                          .frame_tokens = TOKENS});
    Served *served = served_open(&(ServedSpec){.sources = {{"d", 1}}, .count = 1});
    ShardStream *stream = &served->streams[SPLIT_TRAIN];
    FrameCache *cache = frame_cache_open(22 * MIB, 2, frame_decode);
    frame_cache_adapt(cache, 1); // nothing is free
    CHECK_EQUAL(fill(cache, stream), 16 * MIB);
    frame_cache_adapt(cache, 64 * MIB);
    CHECK_EQUAL(fill(cache, stream), 16 * MIB);
    frame_cache_adapt(cache, (64 + 8 * 4) * MIB); // an eighth of 32 MiB
    CHECK_EQUAL(fill(cache, stream), 20 * MIB);
    CHECK_EQUAL(fill(cache, stream), 20 * MIB); // until the next second
    frame_cache_adapt(cache, 4096ull * MIB);
    CHECK_EQUAL(fill(cache, stream), 22 * MIB);
    frame_cache_adapt(cache, 61 * MIB); // 3 MiB too little: at once
    CHECK_EQUAL(frame_cache_stats(cache).bytes, 19 * MIB);
    CachedFrame *pinned = get(cache, stream, 95);
    frame_pin(pinned);
    frame_cache_adapt(cache, 1);
    CHECK_EQUAL(frame_cache_stats(cache).bytes, 16 * MIB);
    CHECK(pinned->state == FRAME_READY);
    frame_unpin(pinned);
    frame_cache_adapt(cache, 0); // not known
    CHECK_EQUAL(fill(cache, stream), 16 * MIB);
    CHECK(frame_cache_forget(cache, stream));
    CHECK(frame_cache_close(cache));
    served_close(served);
}

static int damaged(const FramePlace *place, ShardCursor *cursor, void *ids) {
    (void)cursor, (void)ids;
    return fail(EX_DATA, "/path/of/shard %llu: damaged", (unsigned long long)place->shard);
}

TEST(loader_cache_keeps_the_error_of_a_frame_for_all_its_readers) {
    make_test_dataset("d", &two_shards);
    Served *served = served_open(&(ServedSpec){.sources = {{"d", 1}}, .count = 1});
    ShardStream *stream = &served->streams[SPLIT_TRAIN];
    FrameCache *cache = frame_cache_open(1 << 20, 1, damaged);
    for (int times = 0; times < 3; times++) {
        CachedFrame *frame = get(cache, stream, 9);
        CHECK_EQUAL(frame->state, FRAME_FAILED);
        CHECK(frame_fail(frame) < 0);
        CHECK(!strchr(err_text(), '/'));
        CHECK_ERROR(EX_DATA, "train shard 1, frame 1 is damaged");
    }
    CHECK_EQUAL(frame_cache_stats(cache).bytes, 0);
    CHECK(frame_cache_forget(cache, stream));
    CHECK(frame_cache_close(cache));
    served_close(served);
}

// --- how often clients of one loader have frames decoded

enum { T = 64, ROWS = 16, CLIENTS = 32, BATCHES = 80 };

static uint64_t frames_decoded(void) {
    char command[5000];
    snprintf(command, sizeof command, "'%s/loader' serve-status --endpoint ipc://p --json >status", test_bin);
    CHECK(system(command) == 0);
    char *text = read_file("status", NULL), *at = strstr(text, "\"frames_decoded\": ");
    CHECK(at);
    uint64_t frames = strtoull(at + 18, NULL, 10);
    free(text);
    return frames;
}

// Batches of an epoch for clients with seeds of their own, one batch for each in turn.
static void read_batches(const TestDataset *spec, unsigned clients) {
    Feed *feeds[CLIENTS];
    for (unsigned i = 0; i < clients; i++) feeds[i] = open_test_feed(TEST_FEED(T, ROWS, .window = 2));
    for (uint64_t batch_number = 0; batch_number < BATCHES; batch_number++)
        for (unsigned i = 0; i < clients; i++) {
            FeedRequest request = {SPLIT_TRAIN, SAMPLING_EPOCH, ROWS, 1000 + i, batch_number * ROWS, 0, 0};
            SampleOrder order;
            ShuffleGroup group;
            FeedBatch batch;
            CHECK(feed_request(feeds[i], &request) == 0 && feed_next(feeds[i], &batch) == FEED_BATCH);
            CHECK(sample_order_init(&order, SAMPLING_EPOCH, SPLIT_TRAIN, 1000 + i, 0, spec->train_tokens, T) == 0);
            for (uint64_t row = 0; row < ROWS; row++) {
                sample_order_group(&order, request.first_sample + row, &group);
                uint64_t token = sample_order_token(&order, &group, request.first_sample + row);
                for (uint64_t t = 0; t <= T; t++)
                    CHECK_EQUAL(((const uint16_t *)batch.ids)[row * (T + 1) + t],
                                test_id(spec->salt, SPLIT_TRAIN, token + t));
            }
            feed_release(feeds[i], &batch);
        }
    for (unsigned i = 0; i < clients; i++) feed_close(feeds[i]);
}

// fault 45
TEST_CI(loader_decodes_at_most_twice_the_frames_for_32_clients_with_32_seeds) {
    const TestDataset spec = {
        .salt = 3, .train_tokens = 200000, .val_tokens = 100, .shard_tokens = 60000, .frame_tokens = 2048};
    make_test_dataset("d", &spec);
    pid_t pid = start_loader("d", "p");
    read_batches(&spec, 1);
    uint64_t one = frames_decoded();
    CHECK(one >= 50); // the samples are of every frame
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    pid = start_loader("d", "p");
    read_batches(&spec, CLIENTS);
    uint64_t all = frames_decoded();
    CHECK(all <= 2 * one);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}
