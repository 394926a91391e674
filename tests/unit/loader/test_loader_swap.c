// `loader swap` while clients read: the batches they get, and refusals, which change nothing.
#include "common/err.h"
#include "loader/client/query.h"
#include "loader/protocol/keys.h"
#include "tests/unit/loader/fixture_loader.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { T = 64, ROWS = 8 };

static Feed *open_feed(bool inline_only) { return open_test_feed(TEST_FEED(T, ROWS, .inline_only = inline_only)); }

// The exit code of `loader ARGUMENTS --endpoint ipc://p`; its output is in the file out.
static int loader_command(const char *arguments) {
    char command[4096];
    snprintf(command, sizeof command, "'%s/loader' %s --endpoint ipc://p >out 2>&1", test_bin, arguments);
    int status = system(command);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void check_output(const char *part) { CHECK_TEXT(read_file("out", NULL), part); }

static const struct {
    const char *arguments, *reason;
    int code;
} cases[] = {
    {"swap foreign", "the new dataset has another vocabulary", EX_PROTOCOL},
    {"swap a foreign", "have different vocabularies", EX_DATA},
    {"swap brief", "the val split of 'brief' has 64 tokens, a connected trainer needs 65", EX_DATA},
    {"swap a:3 tiny:1", "the train split of 'tiny' has 64 tokens, a connected trainer needs 65", EX_DATA},
    {"swap cut", "000001.zst", EX_DATA},
    {"swap nowhere", "nowhere", EX_NOINPUT},
    {"swap a:0 a:0", "all 0", EX_USAGE},
    {"swap a:9999999999", "a weight is a whole number", EX_USAGE},
    {"swap a:0.7", "a': '0.7': a weight is a whole number up to 1000000: 3 and 7 for 0.3 and 0.7", EX_USAGE},
    {"swap a:1/3 a:2/3", "'1/3': a weight is a whole number", EX_USAGE},
    {"swap a:1e-9", "'1e-9': a weight is a whole number", EX_USAGE},
    {"swap a --schedule x", "--schedule needs several datasets", EX_USAGE},
    {"swap a a:2 --schedule x", "/x", EX_NOINPUT},
    {"swap", "swap needs 1 to 16 arguments", EX_USAGE},
    {"swap :1 :2", "a single dataset has no weights", EX_USAGE},
    {"swap :1", "swap needs a :WEIGHT argument for each dataset", EX_USAGE},
    {"swap a :1", "for all datasets or none", EX_USAGE},
    {"swap a a --from 5", "--from is for weights alone", EX_USAGE},
    {"swap :1 :1 --check", "not for weights alone", EX_USAGE},
};

// fault 40
TEST(loader_refuses_a_swap_that_does_not_fit_and_continues_to_serve) {
    TestDataset foreign = test_small, brief = test_small, tiny = test_small;
    foreign.other_vocabulary = true, brief.val_tokens = T, tiny.train_tokens = T;
    make_test_dataset("a", &test_small);
    make_test_dataset("foreign", &foreign);
    make_test_dataset("brief", &brief);
    make_test_dataset("tiny", &tiny);
    make_test_dataset("cut", &test_small);
    CHECK(system("truncate -s -10 cut/train/000/000001.zst") == 0);
    pid_t pid = start_loader("a", "p");
    Feed *feed = open_feed(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_EQUAL(loader_command(cases[i].arguments), cases[i].code);
        check_output(cases[i].reason);
        read_rows(feed, 1, ROWS, T, i * ROWS);
    }
    // After a refusal a swap that fits is accepted; SIGHUP opens the served dataset again, not that of the command
    // line.
    CHECK_EQUAL(loader_command("swap a"), 0);
    check_output("the dataset is the same as before");
    make_test_dataset("b", &test_second);
    CHECK_EQUAL(loader_command("swap b"), 0);
    kill(pid, SIGHUP);
    wait_for_line("p", "the dataset is the same as before", 2);
    FeedBatch batch;
    request_rows(feed, ROWS, 0);
    FeedResult result = feed_next(feed, &batch);
    if (result == FEED_BATCH) { // the request was faster than the notice
        take_rows(feed, &batch, 1, ROWS, T);
        request_rows(feed, ROWS, 0);
        result = feed_next(feed, &batch);
    }
    CHECK_EQUAL(result, FEED_CHANGED);
    read_rows(feed, 2, ROWS, T, 0);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

static FeedResult next_of_epoch(Feed *feed, uint64_t first) {
    FeedRequest what = {.split = SPLIT_TRAIN, .mode = SAMPLING_EPOCH, .rows = ROWS, .first_sample = first};
    FeedBatch batch;
    CHECK(feed_request(feed, &what) == 0);
    const FeedResult result = feed_next(feed, &batch);
    if (result == FEED_BATCH) feed_release(feed, &batch);
    return result;
}

// fault 40
TEST(loader_refuses_weights_for_a_source_that_is_too_short) {
    TestDataset tiny = test_small;
    tiny.train_tokens = T;
    make_test_dataset("a", &test_small);
    make_test_dataset("tiny", &tiny);
    write_file("schedule", "", 0);
    pid_t pid = start_loader_with("a:1", "p", "tiny:0", "--schedule=schedule");
    Feed *feed = open_feed(false);
    CHECK(next_of_epoch(feed, 0) == FEED_BATCH);
    CHECK_EQUAL(loader_command("swap :3 :1"), EX_DATA);
    check_output("the train split of 'tiny' has 64 tokens, a connected trainer needs 65");
    CHECK(next_of_epoch(feed, ROWS) == FEED_BATCH);
    CHECK(!*read_file("schedule", NULL));
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    // With such a line in the schedule, the rows that do not need the source are served.
    write_file("schedule", "100000 0 1\n", 11);
    pid = start_loader_with("a:1", "p", "tiny:0", "--schedule=schedule");
    feed = open_feed(false);
    CHECK(next_of_epoch(feed, 100000 - ROWS) == FEED_BATCH);
    CHECK(next_of_epoch(feed, 100000 - ROWS + 1) == FEED_ERROR);
    CHECK_ERROR(EX_DATA, "'tiny'");
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// A dataset of one shard under many names, and `base`, which has the shard alone.
static void make_linked_dataset(const char *base, const char *path, uint64_t shards) {
    const TestDataset spec = {.salt = 1, .train_tokens = 1000, .shard_tokens = 1000, .frame_tokens = 1000};
    Dataset one, many;
    make_test_dataset(base, &spec);
    CHECK(dataset_open(&one, base) == 0);
    dataset_begin(&many, path);
    memcpy(many.vocab_fp, one.vocab_fp, 32);
    many.vocab_size = one.vocab_size, many.eot_id = one.eot_id, many.params = "", many.val = "0";
    for (uint64_t i = 0; i < shards; i++) {
        char shard[PATH_MAX_BYTES], folder[PATH_MAX_BYTES];
        dataset_shard_path(shard, path, SPLIT_TRAIN, i);
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(shard, '/') - shard), shard);
        CHECK(dir_make(folder) == 0 && link(one.shards[SPLIT_TRAIN][0].path, shard) == 0);
        dataset_add(&many, SPLIT_TRAIN, &one.shards[SPLIT_TRAIN][0]);
    }
    CHECK(dataset_save(&many) == 0);
    dataset_close(&many), dataset_close(&one);
}

// fault 40
TEST_CI(loader_names_the_limit_on_mappings_when_the_shards_of_a_swap_do_not_fit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("a sanitizer maps memory of its own, which fails while the loader is at the limit");
#endif
    enum { DEFAULT_MAPPINGS = 65530, SHARDS = DEFAULT_MAPPINGS / 2 + 100 };
    int limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    CHECK(file && fscanf(file, "%d", &limit) == 1 && fclose(file) == 0);
    if (limit != DEFAULT_MAPPINGS) SKIP("vm.max_map_count is not the kernel's default");
    make_linked_dataset("one", "a", SHARDS);
    make_linked_dataset("two", "b", SHARDS - 1);
    pid_t pid = start_loader("a", "p");
    Feed *feed = open_feed(false);
    CHECK_EQUAL(loader_command("swap b"), EX_MEMORY);
    char words[100];
    snprintf(words, sizeof words, "while the %d shards that are served stay mapped: ", SHARDS);
    check_output(words);
    snprintf(words, sizeof words, " of %d shards are mapped (vm.max_map_count is %d; raise it, ", SHARDS - 1,
             DEFAULT_MAPPINGS);
    check_output(words);
    read_rows(feed, 1, ROWS, T, 0);
    CHECK_EQUAL(loader_command("swap one"), 0);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// The reply to SWAP with one word, with `bytes` bytes of words.
static void send_swap(Query *query, const char *words, size_t bytes, WireMessage *reply, Buffer *sentence) {
    WireMessage request;
    memset(&request, 0, sizeof request);
    request.header.type = WIRE_CONTROL;
    request.control.action = WIRE_SWAP, request.control.words = 1;
    sentence->size = 0;
    CHECK(query_send(query, &request, (Bytes){(const uint8_t *)words, bytes}, FOREVER, reply, sentence) == 0);
    buffer_add(sentence, "", 1);
}

TEST(loader_accepts_a_swap_from_its_own_key_only) {
    KeyPair loader, trainer;
    CHECK(keys_make(&loader, "loader.key") == 0 && keys_make(&trainer, "trainer.key") == 0);
    write_file("allow", trainer.public_key, strlen(trainer.public_key));
    make_test_dataset("a", &test_small);
    pid_t pid = start_loader_with("a", tcp_endpoint(), "--key=loader.key", "--allow=allow");
    Query query;
    WireMessage reply;
    Buffer sentence = {0};
    CHECK(query_open(&query, tcp_endpoint(), "trainer.key", loader.public_key) == 0);
    send_swap(&query, "a", 2, &reply, &sentence);
    CHECK_EQUAL(reply.control.exit_code, EX_PERMISSION);
    CHECK_TEXT((char *)sentence.data, "only the loader's own key may do this");
    query_close(&query);
    CHECK(query_open(&query, tcp_endpoint(), "loader.key", NULL) == 0);
    const struct {
        const char *words;
        size_t bytes;
    } bad[] = {{"a", 1}, {"a\0b", 4}, {"a\0b", 3}, {"", 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        send_swap(&query, bad[i].words, bad[i].bytes, &reply, &sentence);
        CHECK_EQUAL(reply.control.exit_code, EX_PROTOCOL);
    }
    send_swap(&query, "a", 2, &reply, &sentence);
    CHECK_EQUAL(reply.control.exit_code, 0);
    buffer_close(&sentence);
    query_close(&query);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

TEST(a_request_after_an_answer_notices_that_the_loader_has_ended) {
    Query query;
    WireMessage request, reply;
    Buffer tables = {0};
    memset(&request, 0, sizeof request);
    request.header.type = WIRE_STATS;
    make_test_dataset("a", &test_small);
    pid_t pid = start_loader("a", "p");
    wait_for_loader("p", 1);
    CHECK(query_open(&query, "ipc://p", NULL, NULL) == 0);
    CHECK(query_send(&query, &request, (Bytes){0}, FOREVER, &reply, &tables) == 0);
    CHECK_EQUAL(stop_loader(pid, SIGKILL), 128 + SIGKILL);
    CHECK(query_send(&query, &request, (Bytes){0}, 60000, &reply, &tables) < 0);
    CHECK_ERROR(EX_PEER, "the loader at 'ipc://p' closed the connection");
    query_close(&query);
    buffer_close(&tables);
}

static uint64_t frames_decoded(void) {
    static Status status;
    read_status(&status, "ipc://p");
    return status.totals.frames_decoded;
}

// Reads all of a dataset, so that nothing is left that could be read ahead.
static void read_all(Feed *feed, unsigned salt) {
    for (uint64_t first = 0; first + ROWS < test_small.train_tokens / T; first += ROWS)
        read_rows(feed, salt, ROWS, T, first);
}

TEST(loader_keeps_decoded_frames_of_shards_that_it_still_serves) {
    make_test_dataset("a", &test_small);
    make_test_dataset("b", &test_second);
    pid_t pid = start_loader("a", "p");
    Feed *feed = open_feed(false);
    read_all(feed, 1);
    uint64_t frames = frames_decoded();
    CHECK_EQUAL(frames, 15 + 10); // of 4096 tokens, in shards of 60000 and 40000
    kill(pid, SIGHUP);
    wait_for_line("p", "files have been opened again", 1);
    read_all(feed, 1);
    CHECK_EQUAL(frames_decoded(), frames);
    feed_close(feed);
    CHECK_EQUAL(loader_command("swap b a"), 0); // the shards of b come first in the stream now
    feed = open_feed(false);
    FeedBatch batch;
    request_rows(feed, ROWS, 1600); // of a: the first 100,000 tokens are those of b
    CHECK(feed_next(feed, &batch) == FEED_BATCH);
    for (uint64_t i = 0; i < ROWS * (T + 1); i++)
        CHECK_EQUAL(((const uint16_t *)batch.ids)[i],
                    test_id(1, 0, 1600 * T - test_small.train_tokens + i / (T + 1) * T + i % (T + 1)));
    feed_release(feed, &batch);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}
