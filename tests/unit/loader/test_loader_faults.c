// A loader whose files or moments are bad: damaged, exchanged or truncated shards, and reloads at any time.
#include "common/log.h"
#include "loader/client/feed_internal.h"
#include "loader/server/served.h"
#include "tests/unit/loader/fixture_loader.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum { T = 64, ROWS = 8 };
static const TestDataset other = {
    .salt = 2, .train_tokens = 90000, .val_tokens = 5000, .shard_tokens = 60000, .frame_tokens = 4096};

// A feed that was opened when the loader `*pid` served one dataset, and attached after another loader has begun to
// serve "b": the trainer initializes its weights in between, which takes seconds. Replaces *pid.
static Feed *attach_to_another(pid_t *pid) {
    Feed *feed = feed_open(TEST_FEED(T, ROWS));
    stop_loader(*pid, SIGKILL);
    *pid = start_loader("b", "p");
    wait_for_loader("p", 2);
    CHECK(feed_attach(feed) == 0);
    return feed;
}

// A caller to whom the change was not reported yet requests rows of a source that the new dataset does not have.
TEST(feed_reports_a_change_before_the_refusal_of_a_request_for_the_old_dataset) {
    make_test_dataset("a", &test_small);
    make_test_dataset("b", &other);
    pid_t pid = start_loader_with("a", "p", "b", NULL);
    Feed *feed = attach_to_another(&pid);
    const FeedRequest second = {.split = SPLIT_TRAIN, .mode = SAMPLING_EPOCH, .rows = ROWS, .source = 2};
    FeedBatch batch;
    CHECK(feed_request(feed, &second) == 0);
    zmq_pollitem_t refusal = {.socket = feed->link.socket, .events = ZMQ_POLLIN};
    CHECK_EQUAL(zmq_poll(&refusal, 1, FOREVER), 1);
    CHECK_EQUAL(feed_next(feed, &batch), FEED_CHANGED);
    read_rows(feed, 2, ROWS, T, 0);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// A feed that waits for the loader `self` for the fifth time gives it a dataset that can be used.
static int repair_dataset(void *self) {
    static int waits;
    const pid_t pid = *(pid_t *)self;
    if (!pid || ++waits != 5) return 0;
    CHECK(system("ln -sfn b d") == 0);
    return kill(pid, SIGHUP);
}

// fault 40
TEST(feed_waits_while_the_loader_serves_a_dataset_that_is_too_short) {
    TestDataset short_val = other;
    short_val.val_tokens = T;
    make_test_dataset("a", &test_small);
    make_test_dataset("b", &other);
    make_test_dataset("c", &short_val);
    CHECK(symlink("c", "d") == 0);
    pid_t pid = start_loader("a", "p"), to_repair = 0;
    Feed *feed = open_test_feed(TEST_FEED(T, ROWS, .while_waiting = repair_dataset, .while_waiting_self = &to_repair));
    read_rows(feed, 1, ROWS, T, 0);
    stop_loader(pid, SIGKILL);
    to_repair = pid = start_loader("d", "p");
    wait_for_loader("p", 2);
    // Whether the feed meets the short dataset before the repair or after it, it must end at b.
    CHECK_EQUAL(result_of_rows(feed, ROWS, 8), FEED_CHANGED);
    CHECK_EQUAL(feed_dataset(feed)->tokens[SPLIT_TRAIN], other.train_tokens);
    CHECK_EQUAL(feed_dataset(feed)->tokens[SPLIT_VAL], other.val_tokens);
    read_rows(feed, 2, ROWS, T, 16);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 40
TEST(loader_refuses_a_reload_that_a_connected_trainer_cannot_use) {
    TestDataset short_train = other;
    short_train.train_tokens = T;
    make_test_dataset("a", &test_small);
    make_test_dataset("c", &short_train);
    CHECK(symlink("a", "d") == 0);
    pid_t pid = start_loader("d", "p");
    Feed *feed = open_test_feed(TEST_FEED(T, ROWS));
    CHECK(unlink("d") == 0 && symlink("c", "d") == 0);
    kill(pid, SIGHUP);
    wait_for_line("p", "the train split of 'd' has 64 tokens, a connected trainer needs 65", 1);
    read_rows(feed, 1, ROWS, T, 0);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 33
TEST(loader_refuses_a_shard_with_the_content_of_another) {
    const TestDataset ones = {
        .salt = 1, .train_tokens = 40000, .shard_tokens = 40000, .frame_tokens = 4096, .constant = true};
    TestDataset twos = ones;
    twos.salt = 2;
    make_test_dataset("d", &ones);
    make_test_dataset("e", &twos);
    CHECK(rename("e/train/000/000000.zst", "d/train/000/000000.zst") == 0);
    CHECK_EQUAL(stop_loader(start_loader("d", "p"), 0), EX_DATA);
    const char *log = read_file("p.log", NULL);
    CHECK_TEXT(log, "000000.zst");
    CHECK_TEXT(log, "content hash differs");
}

// fault 32
TEST(loader_serves_a_repaired_shard_after_a_reload) {
    make_test_dataset("d", &test_small);
    CHECK(system("cp d/train/000/000000.zst whole") == 0);
    damage_frame("d/train/000/000000.zst", 2);
    pid_t pid = start_loader("d", "p");
    Feed *feed = open_test_feed(TEST_FEED(T, ROWS));
    CHECK_EQUAL(result_of_rows(feed, ROWS, 2 * 4096 / T), FEED_ERROR);
    CHECK_ERROR(EX_DATA, "");
    feed_close(feed);
    CHECK(rename("whole", "d/train/000/000000.zst") == 0);
    kill(pid, SIGHUP);
    wait_for_line("p", "files have been opened again", 1);
    feed = open_test_feed(TEST_FEED(T, ROWS));
    read_rows(feed, 1, ROWS, T, 2 * 4096 / T);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 31
TEST(loader_logs_a_truncated_shard_once_not_for_each_frame) {
    const uint64_t began_ns = clock_ns();
    pid_t pid = serve_test_dataset(&test_small);
    Feed *feed = open_test_feed(TEST_FEED(T, ROWS));
    CHECK(truncate("d/train/000/000001.zst", 4096) == 0);
    for (int frame = 1; frame < 9; frame++) {
        CHECK_EQUAL(result_of_rows(feed, 1, (60000 + (uint64_t)frame * 4096) / T + 1), FEED_ERROR);
        err_clear();
        feed_close(feed);
        feed = open_test_feed(TEST_FEED(T, ROWS));
    }
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    uint64_t lines = 0;
    for (const char *at = read_file("p.log", NULL); (at = strstr(at, "the file was truncated")); at++) lines++;
    CHECK(lines >= 1 && lines <= 1 + (clock_ns() - began_ns) / 10000000000u); // every 10 s
}

// fault 31
TEST(loader_survives_a_shard_that_is_truncated_while_it_is_served) {
    pid_t pid = serve_test_dataset(&test_small);
    Feed *feed = open_test_feed(TEST_FEED(T, ROWS));
    CHECK(system("cp d/train/000/000001.zst whole") == 0);
    CHECK(truncate("d/train/000/000001.zst", 4096) == 0); // before the first request, which starts the prefetching
    CHECK_EQUAL(result_of_rows(feed, ROWS, (60000 + 9 * 4096) / T + 1), FEED_ERROR);
    CHECK(!strchr(err_text(), '/'));
    CHECK_ERROR(EX_IO, "train shard 1, frame 9 cannot be read");
    feed_close(feed);
    CHECK_TEXT(read_file("p.log", NULL), "000001.zst': the file was truncated");
    // Repaired in place, it is read again.
    CHECK(system("cat whole >d/train/000/000001.zst") == 0);
    nanosleep(&(struct timespec){1, 100000000}, NULL); // a frame that failed is not tried again sooner
    feed = open_test_feed(TEST_FEED(T, ROWS));
    read_rows(feed, 1, ROWS, T, (60000 + 9 * 4096) / T + 1);
    feed_close(feed);
    feed = open_test_feed(TEST_FEED(T, ROWS)); // the loader still runs and serves the other shard
    for (uint64_t first = 0; first < 900; first += 64) read_rows(feed, 1, ROWS, T, first);
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// Opening reads headers and tables only: the pages inside data frames are not accessible here.
// As at vm.max_map_count, where mmap fails in the same way.
TEST(loader_names_the_limit_on_mappings) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("a sanitizer needs more address space than this test leaves");
#endif
    const TestDataset large = {.salt = 1, .train_tokens = 4 << 20, .shard_tokens = 2 << 20, .frame_tokens = 1 << 15};
    make_test_dataset("d", &large);
    Dataset dataset;
    CHECK(dataset_open(&dataset, "d") == 0);
    CHECK(dataset.shards[SPLIT_TRAIN][1].bytes > 1 << 20);
    struct rlimit before, limit;
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%lu", &pages) == 1);
    fclose(statm);
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before, limit.rlim_cur = pages * 4096 + dataset.shards[SPLIT_TRAIN][0].bytes * 3 / 2;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    Served *served = served_open(&(ServedSpec){.sources = {{"d", 1}}, .count = 1});
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(!served);
    CHECK_TEXT(err_text(), "1 of 2 shards are mapped (vm.max_map_count is ");
    CHECK_TEXT(err_text(), "000001.zst");
    CHECK_ERROR(EX_MEMORY, "");
    dataset_close(&dataset);
}

TEST(shard_open_does_not_touch_the_data_frames) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const TestDataset large = {.salt = 5, .train_tokens = 1 << 19, .shard_tokens = 1 << 19, .frame_tokens = 1 << 16};
    make_test_dataset("d", &large);
    size_t size;
    char *text = read_file("d/train/000/000000.zst", &size);
    ShardFile shard;
    CHECK(text && shard_file_open(&shard, "d/train/000/000000.zst") == 0);
    uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    memcpy(map, text, size);
    free(text);
    size_t first = shard.frames[0].offset, end = shard.frames[shard.frame_count - 1].offset;
    shard_file_close(&shard);
    first = (first + page - 1) / page * page, end = end / page * page;
    CHECK(end > first + 4 * page && mprotect(map + first, end - first, PROT_NONE) == 0);
    CHECK(shard_file_open_bytes(&shard, "shard", (Bytes){map, size}) == 0);
    CHECK_EQUAL(shard.tokens, 1 << 19);
    CHECK_EQUAL(shard.frame_count, 8);
    shard_file_close(&shard);
    munmap(map, size);
}
