// The feed delivers one stream of samples for any batch size, world size and transport, and whatever happens to the
// loader.
#include "common/hash.h"
#include "loader/protocol/sampling.h"
#include "tests/unit/loader/fixture_loader.h"
#include <signal.h>
#include <time.h>
#include <unistd.h>

static const TestDataset small = {1, 300000, 20001, 120000, 4096, false, false};
static const TestDataset other = {2, 250000, 9000, 120000, 4096, false, false};

// The rows by sampling.h and test_id, computed without a loader.
static void expected_rows(uint16_t *ids, const TestDataset *spec, const FeedRequest *request, uint32_t T) {
    SampleOrder order;
    uint64_t tokens = request->split == SPLIT_TRAIN ? spec->train_tokens : spec->val_tokens;
    CHECK(sample_order_init(&order, request->mode, request->split, request->seed,
                            request->source ? request->source - 1u : 0, tokens, T) == 0);
    ShuffleGroup group = {0};
    for (uint32_t row = 0; row < request->rows; row++) {
        uint64_t sample = request->first_sample + row;
        if (sample - group.first_sample >= group.samples) sample_order_group(&order, sample, &group);
        uint64_t token = sample_order_token(&order, &group, sample);
        uint32_t skip = 0, starts = sample_order_starts(&order, token);
        while (skip < starts && starts > 1 && test_id(spec->salt, request->split, token + skip) != TEST_EOT) skip++;
        if (skip < starts) token += skip;
        for (uint32_t t = 0; t <= T; t++) *ids++ = test_id(spec->salt, request->split, token + t);
    }
}

static void check_batch(const FeedBatch *batch, const TestDataset *spec, const FeedRequest *request, uint32_t T) {
    CHECK_EQUAL(batch->first_sample, request->first_sample);
    CHECK_EQUAL(batch->rows, request->rows);
    uint16_t *want = malloc((size_t)request->rows * (T + 1) * sizeof *want);
    expected_rows(want, spec, request, T);
    CHECK(!memcmp(want, batch->ids, (size_t)request->rows * (T + 1) * sizeof *want));
    free(want);
}

typedef struct {
    uint32_t rows, window, world;
    bool inline_only, tcp;
} Transport;

// The hash of samples [0, samples), requested by `world` trainers in turn.
static void hash_stream(const Transport *way, Sampling mode, uint32_t T, uint64_t samples, uint8_t digest[32]) {
    FeedConfig config = *TEST_FEED(T, way->rows);
    config.window = way->window, config.inline_only = way->inline_only;
    if (way->tcp) config.endpoint = tcp_endpoint();
    Feed *feeds[4];
    uint64_t requested[4], got = 0;
    for (uint32_t rank = 0; rank < way->world; rank++) {
        feeds[rank] = open_test_feed(&config);
        requested[rank] = (uint64_t)rank * way->rows;
        CHECK_EQUAL(feed_stats(feeds[rank]).ring, !way->inline_only && !way->tcp);
    }
    Sha256 sha;
    sha256_open(&sha);
    for (uint32_t rank = 0; got < samples; rank = (rank + 1) % way->world) {
        Feed *feed = feeds[rank];
        for (; feed_capacity(feed) && requested[rank] < samples; requested[rank] += (uint64_t)way->rows * way->world) {
            uint64_t left = samples - requested[rank];
            FeedRequest request = {
                SPLIT_TRAIN, (uint8_t)mode, left < way->rows ? (uint32_t)left : way->rows, 1337, requested[rank], 0, 0};
            CHECK(feed_request(feed, &request) == 0);
        }
        FeedBatch batch;
        CHECK(feed_next(feed, &batch) == FEED_BATCH);
        CHECK_EQUAL(batch.first_sample, got);
        sha256_add(&sha, batch.ids, (size_t)batch.rows * (T + 1) * sizeof(uint16_t));
        got += batch.rows;
        feed_release(feed, &batch);
    }
    sha256_close(&sha, digest);
    for (uint32_t rank = 0; rank < way->world; rank++) feed_close(feeds[rank]);
}

// fault 45
TEST(feed_stream_has_one_hash_for_any_batch_size_world_and_transport) {
    enum {
        T = 512,
        SAMPLES = 21000
    }; // an epoch has one group of 16384 samples and 2170 more, so the second epoch begins
    const TestDataset big = {3, 9500000, 0, 4 << 20, 32768, false, false};
    static const Transport ways[] = {
        {64, 4, 1, false, false}, {64, 4, 1, true, false}, {7, 8, 1, false, false}, {128, 1, 1, false, false},
        {16, 4, 2, false, false}, {8, 2, 4, true, false},  {32, 4, 2, false, true},
    };
    make_test_dataset("d", &big);
    pid_t pid = start_loader("d", "p"), tcp_pid = start_loader("d", tcp_endpoint());
    static const Sampling modes[] = {SAMPLING_CROP, SAMPLING_EPOCH, SAMPLING_DOCUMENTS};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        Sampling mode = modes[m];
        uint64_t samples = mode == SAMPLING_EPOCH ? SAMPLES : 3000;
        uint8_t want[32], got[32];
        FeedRequest all = {SPLIT_TRAIN, (uint8_t)mode, (uint32_t)samples, 1337, 0, 0, 0};
        uint16_t *ids = malloc(samples * (T + 1) * sizeof *ids);
        expected_rows(ids, &big, &all, T);
        sha256(ids, samples * (T + 1) * sizeof *ids, want);
        free(ids);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            hash_stream(&ways[i], mode, T, samples, got);
            CHECK(!memcmp(want, got, 32));
        }
    }
    CHECK_EQUAL(stop_loader(tcp_pid, SIGTERM), 0);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

TEST(feed_reads_one_source_of_a_mixture_and_its_weights) {
    enum { T = 100, ROWS = 8 };
    make_test_dataset("d", &small);
    make_test_dataset("e", &other);
    write_file("s", "5000 1 1\n", 9);
    pid_t pid = start_loader_with("d:3", "p", "e:1", "--schedule=s");
    Feed *feed = open_test_feed(TEST_FEED(T, ROWS));
    const FeedDataset *dataset = feed_dataset(feed);
    CHECK_EQUAL(dataset->source_count, 2);
    CHECK(!strcmp(dataset->sources[0].name, "d") && !strcmp(dataset->sources[1].name, "e"));
    CHECK_EQUAL(dataset->sources[1].tokens[SPLIT_VAL], other.val_tokens);
    CHECK(feed_weight(feed, 0, 4999) == 49152 && feed_weight(feed, 1, 4999) == 16384);
    CHECK(feed_weight(feed, 0, 5000) == 32768 && feed_weight(feed, 1, UINT64_MAX) == 32768);
    const struct {
        const TestDataset *dataset;
        uint8_t split, mode;
    } cases[] = {{&small, SPLIT_VAL, SAMPLING_PERMUTED},
                 {&other, SPLIT_VAL, SAMPLING_PERMUTED},
                 {&other, SPLIT_TRAIN, SAMPLING_EPOCH},
                 {&other, SPLIT_VAL, SAMPLING_SEQUENTIAL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const FeedRequest request = {.split = cases[i].split,
                                     .mode = cases[i].mode,
                                     .rows = ROWS,
                                     .seed = 5,
                                     .first_sample = 7,
                                     .source = cases[i].dataset == &small ? 1 : 2};
        FeedBatch batch;
        CHECK(feed_request(feed, &request) == 0 && feed_next(feed, &batch) == FEED_BATCH);
        check_batch(&batch, cases[i].dataset, &request, T);
        feed_release(feed, &batch);
    }
    FeedBatch batch;
    CHECK(feed_request(feed, &(FeedRequest){.mode = SAMPLING_EPOCH, .rows = 1, .source = 3}) == 0);
    CHECK_EQUAL(feed_next(feed, &batch), FEED_ERROR);
    CHECK_ERROR(EX_PROTOCOL, "the dataset has 2 sources, not 3");
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// A stream that checks every row, so that a lost, repeated or damaged sample fails at once.
typedef struct {
    const TestDataset *spec;
    Feed *feed;
    uint32_t rows, T;
    uint64_t requested, got;
} Stream;

static Stream stream_of(const FeedConfig *config) {
    return (Stream){&small, open_test_feed(config), config->max_rows, config->sequence_tokens, 0, 0};
}

static FeedRequest stream_request(const Stream *stream, uint64_t first) {
    return (FeedRequest){SPLIT_TRAIN, SAMPLING_EPOCH, stream->rows, 99, first, 0, 0};
}

static void request_all(Stream *stream) {
    for (; feed_capacity(stream->feed); stream->requested += stream->rows) {
        FeedRequest request = stream_request(stream, stream->requested);
        CHECK(feed_request(stream->feed, &request) == 0);
    }
}

static void receive(Stream *stream, int batches) {
    while (batches-- > 0) {
        FeedBatch batch;
        request_all(stream);
        CHECK(feed_next(stream->feed, &batch) == FEED_BATCH);
        FeedRequest request = stream_request(stream, stream->got);
        check_batch(&batch, stream->spec, &request, stream->T);
        feed_release(stream->feed, &batch);
        stream->got += stream->rows;
    }
}

// The first result that is not a batch, after the batches that were answered before it.
static FeedResult end_of_batches(Stream *stream) {
    FeedResult result = FEED_BATCH;
    for (int tries = 0; result == FEED_BATCH && tries < 100000; tries++) {
        FeedBatch batch;
        request_all(stream);
        if ((result = feed_next(stream->feed, &batch)) == FEED_BATCH) feed_release(stream->feed, &batch);
    }
    return result;
}

static void kill_loaders(const char *place, bool inline_only, int kills) {
    pid_t pid = start_loader("d", place);
    FeedConfig config = *TEST_FEED(128, 16);
    config.inline_only = inline_only;
    bool tcp = strstr(place, "://");
    if (tcp) config.endpoint = place;
    Stream stream = stream_of(&config);
    srand(1);
    for (int kill_number = 0; kill_number < kills; kill_number++) {
        receive(&stream, 5 + rand() % 60);
        request_all(&stream);
        nanosleep(&(struct timespec){0, rand() % 200000}, NULL); // somewhere in the answers
        CHECK_EQUAL(stop_loader(pid, SIGKILL), 128 + SIGKILL);
        pid = start_loader("d", place);
    }
    receive(&stream, 50);
    FeedStats stats = feed_stats(stream.feed);
    CHECK(stats.reconnects >= (uint64_t)kills);
    CHECK_EQUAL(stats.ring, !inline_only && !tcp);
    feed_close(stream.feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 39
TEST(feed_stream_survives_loaders_killed_at_random_points) {
    make_test_dataset("d", &small);
    kill_loaders("p", false, 20);
    kill_loaders("p", true, 10);
    kill_loaders(tcp_endpoint(), false, 3);
}

// Two loaders of the same data; the answering one is killed and started again.
static void kill_in_turn(const char *first, const char *second) {
    const char *places[] = {first, second};
    pid_t pids[] = {start_loader("d", first), start_loader("d", second)};
    char endpoints[200];
    for (int i = 0; i < 2; i++) wait_for_loader(places[i], 1); // so that the first one answers first
    snprintf(endpoints, sizeof endpoints, "%s%s,%s%s", strstr(first, "://") ? "" : "ipc://", first,
             strstr(second, "://") ? "" : "ipc://", second);
    Stream stream = stream_of(TEST_FEED(128, 16, .endpoint = endpoints));
    for (int round = 0; round < 6; round++) {
        const int victim = round % 2;
        receive(&stream, 10);
        request_all(&stream);
        CHECK_EQUAL(stop_loader(pids[victim], SIGKILL), 128 + SIGKILL);
        receive(&stream, 10); // only the other one runs
        pids[victim] = start_loader("d", places[victim]);
        wait_for_loader(places[victim], 2 + round / 2);
    }
    feed_close(stream.feed);
    for (int i = 0; i < 2; i++) CHECK_EQUAL(stop_loader(pids[i], SIGTERM), 0);
}

// fault 90
TEST(feed_continues_from_another_loader_of_its_list) {
    make_test_dataset("d", &small);
    kill_in_turn("p", "q");
    kill_in_turn("r", tcp_endpoint());
    CHECK(!feed_open(TEST_FEED(128, 16, .endpoint = "ipc://p,bogus")));
    CHECK_ERROR(EX_USAGE, "'bogus' is not an endpoint");
}

TEST(feed_stops_waiting_when_its_stop_flag_is_set) {
    static atomic_int stop = 1;
    make_test_dataset("d", &small);
    FeedConfig config = *TEST_FEED(32, 8);
    config.stop = &stop;
    CHECK(!feed_open(&config));
    CHECK_ERROR(EX_AGAIN, "");
    stop = 0;
    pid_t pid = start_loader("d", "p");
    Stream stream = stream_of(&config);
    receive(&stream, 1);
    stop_loader(pid, SIGKILL);
    stop = 1;
    CHECK_EQUAL(end_of_batches(&stream), FEED_STOPPED);
    feed_close(stream.feed);
}

// fault 40
TEST(feed_refuses_another_vocabulary_and_names_both) {
    TestDataset foreign = small;
    foreign.other_vocabulary = true;
    make_test_dataset("d", &foreign);
    pid_t pid = start_loader("d", "p");
    FeedConfig config = *TEST_FEED(32, 8);
    memset(config.vocab_fp, 0x11, 32);
    CHECK(!feed_open(&config));
    CHECK_TEXT(err_text(), "2222222222222222");
    CHECK_ERROR(EX_PROTOCOL, "1111111111111111");
    memset(config.vocab_fp, 0, 32);
    config.vocab_size = 1000;
    CHECK(!feed_open(&config));
    CHECK_TEXT(err_text(), "only 1000");
    CHECK_ERROR(EX_PROTOCOL, "50257 ids");
    stop_loader(pid, SIGTERM);
}

TEST(feed_follows_a_reload_of_the_loader) {
    TestDataset foreign = other;
    foreign.other_vocabulary = true;
    make_test_dataset("a", &small);
    make_test_dataset("b", &other);
    make_test_dataset("c", &foreign);
    CHECK(symlink("a", "d") == 0);
    pid_t pid = start_loader("d", "p");
    Stream stream = stream_of(TEST_FEED(64, 8));
    receive(&stream, 20);
    for (int turn = 0; turn < 4; turn++) { // b, c with another vocabulary, no dataset, a
        static const char *const to[] = {"b", "c", "nowhere", "a"};
        CHECK(unlink("d") == 0 && symlink(to[turn], "d") == 0);
        kill(pid, SIGHUP);
        if (turn == 1 || turn == 2) {
            wait_for_line("p", turn == 1 ? "another vocabulary" : "the dataset stays as it was: 'd' is not a dataset",
                          1);
            receive(&stream, 20);
            continue;
        }
        CHECK_EQUAL(end_of_batches(&stream), FEED_CHANGED);
        stream.spec = turn ? &small : &other;
        CHECK_EQUAL(feed_dataset(stream.feed)->tokens[SPLIT_TRAIN], stream.spec->train_tokens);
        stream.requested = stream.got = 0;
        receive(&stream, 20);
    }
    feed_close(stream.feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}
