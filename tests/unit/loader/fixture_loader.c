// Datasets with known ids, and loader processes, for the loader's tests.
#include "tests/unit/loader/fixture_loader.h"
#include "loader/client/query.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define SMALL(number)                                                                                                  \
    { .salt = number, .train_tokens = 100000, .val_tokens = 5000, .shard_tokens = 60000, .frame_tokens = 4096 }
const TestDataset test_small = SMALL(1), test_second = SMALL(2);

uint16_t test_id(unsigned salt, int split, uint64_t position) {
    if (position % 97 == 96) return TEST_EOT;
    uint64_t z = (position / 3 + 1000000007u * (uint64_t)salt + (uint64_t)split) * 0x9E3779B97F4A7C15ull;
    return (uint16_t)((z >> 40) % 5000 + position % 3 * 11000);
}

static void make_shard(Dataset *dataset, int split, const TestDataset *spec, uint64_t first, uint64_t tokens) {
    char path[PATH_MAX_BYTES], directory[PATH_MAX_BYTES];
    dataset_shard_path(path, dataset->path, split, dataset->shard_count[split]);
    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
    CHECK(dir_make(directory) == 0);
    ShardParams params = {.frame_tokens = spec->frame_tokens, .vocab_size = TEST_VOCAB, .eot_id = TEST_EOT};
    memcpy(params.vocab_fp, dataset->vocab_fp, 32);
    ShardWriter writer;
    ShardEncoder *encoder = shard_encoder_open();
    uint16_t *ids = malloc(spec->frame_tokens * sizeof *ids);
    Buffer frame = {0};
    CHECK(ids && shard_writer_open(&writer, path, -1, &params, (first % 97) != 0) == 0);
    for (uint64_t at = 0; at < tokens;) {
        size_t count = tokens - at < spec->frame_tokens ? tokens - at : spec->frame_tokens;
        for (size_t i = 0; i < count; i++)
            ids[i] = spec->constant ? (uint16_t)spec->salt : test_id(spec->salt, split, first + at + i);
        frame.size = 0;
        CHECK(shard_encode(encoder, &params, ids, count, &frame) == 0);
        CHECK(shard_writer_append(&writer, ids, count, (Bytes){frame.data, frame.size}, 0) == 0);
        at += count;
    }
    CHECK(shard_writer_finish(&writer) == 0);
    DatasetShard shard = {.tokens = tokens,
                          .documents = writer.documents,
                          .bytes = writer.file.written,
                          .from = {"a", 0},
                          .to = {"a", 1}};
    memcpy(shard.content_hash, writer.content_hash, 32);
    memcpy(shard.stored_hash, writer.stored_hash, 16);
    dataset_add(dataset, split, &shard);
    buffer_close(&frame);
    shard_encoder_close(encoder);
    free(ids);
}

void make_test_dataset(const char *path, const TestDataset *spec) {
    Dataset dataset;
    dataset_begin(&dataset, path);
    if (spec->other_vocabulary)
        memset(dataset.vocab_fp, 0x22, 32);
    else
        hex_decode(dataset.vocab_fp, TEST_VOCAB_FP, 32);
    dataset.vocab_size = TEST_VOCAB, dataset.eot_id = TEST_EOT;
    dataset.params = "frame_tokens=32768", dataset.val = "0.05";
    for (uint64_t at = 0; at < spec->train_tokens; at += spec->shard_tokens)
        make_shard(&dataset, SPLIT_TRAIN, spec, at,
                   spec->train_tokens - at < spec->shard_tokens ? spec->train_tokens - at : spec->shard_tokens);
    if (spec->val_tokens) make_shard(&dataset, SPLIT_VAL, spec, 0, spec->val_tokens);
    CHECK(dataset_save(&dataset) == 0);
    dataset_close(&dataset);
}

void damage_frame(const char *path, uint64_t frame) {
    ShardFile shard;
    uint8_t byte = 0;
    CHECK(shard_file_open(&shard, path) == 0);
    const off_t offset = (off_t)(shard.frames[frame].offset + shard.frames[frame].bytes / 2);
    shard_file_close(&shard);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, offset) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, offset) == 1 && close(fd) == 0);
}

static void log_path(char log[4096], const char *place) {
    snprintf(log, 4096, "%s.log", strstr(place, "://") ? "tcp" : place);
}

pid_t start_loader_with(const char *dataset, const char *place, const char *option, const char *option2) {
    char program[4096], endpoint[4096], log[4096], parent[40];
    snprintf(program, sizeof program, "%s/loader", test_bin);
    snprintf(parent, sizeof parent, "--die-with-parent=%d", (int)getpid());
    bool tcp = strstr(place, "://");
    snprintf(endpoint, sizeof endpoint, "--endpoint=%s%s", tcp ? "" : "ipc://", place);
    log_path(log, place);
    const char *arguments[] = {program, "serve", dataset, endpoint, parent, tcp && !option ? "--insecure" : option,
                               option2, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    pid_t pid;
    CHECK(posix_spawn(&pid, program, &actions, NULL, (char **)(uintptr_t)arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    test_owns(pid);
    return pid;
}

pid_t start_loader(const char *dataset, const char *place) { return start_loader_with(dataset, place, NULL, NULL); }

pid_t serve_test_dataset(const TestDataset *spec) {
    make_test_dataset("d", spec);
    return start_loader("d", "p");
}

int stop_loader(pid_t pid, int signal) {
    int status;
    kill(pid, signal);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void wait_for_line(const char *place, const char *part, int times) {
    char log[4096];
    log_path(log, place);
    for (int tries = 0; tries < 24000; tries++) { // two minutes: only a loader that is broken takes that long
        char *text = read_file(log, NULL), *at = text;
        int seen = 0;
        while (at && (at = strstr(at, part))) seen++, at++;
        free(text);
        if (seen >= times) return;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    test_failed(part, __FILE__, __LINE__);
}

void wait_for_loader(const char *place, int times) { wait_for_line(place, "ready:", times); }

const char *tcp_endpoint(void) {
    static char endpoint[40];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (*endpoint) return endpoint;
    // The socket stays bound, without listening, so that the kernel gives its port to no other program; libzmq binds with
    // SO_REUSEADDR, too, and therefore can still take it.
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), reuse = 1;
    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) == 0);
    CHECK(bind(fd, (struct sockaddr *)&address, size) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
    return endpoint;
}

void read_status(Status *status, const char *endpoint) {
    Query query;
    WireMessage request, reply;
    Buffer tables = {0};
    memset(&request, 0, sizeof request);
    request.header.type = WIRE_STATS;
    CHECK(query_open(&query, endpoint, NULL, NULL) == 0);
    CHECK(query_send(&query, &request, (Bytes){0}, FOREVER, &reply, &tables) == 0);
    CHECK(status_decode(status, &reply.stats, (Bytes){tables.data, tables.size}) == 0);
    buffer_close(&tables);
    query_close(&query);
}

Feed *open_test_feed(const FeedConfig *config) {
    Feed *feed = feed_open(config);
    CHECK(feed && feed_attach(feed) == 0);
    return feed;
}

void request_rows(Feed *feed, uint32_t rows, uint64_t first) {
    const FeedRequest request = {
        .split = SPLIT_TRAIN, .mode = SAMPLING_SEQUENTIAL, .rows = rows, .first_sample = first};
    CHECK(feed_request(feed, &request) == 0);
}

FeedResult result_of_rows(Feed *feed, uint32_t rows, uint64_t first) {
    FeedBatch batch;
    request_rows(feed, rows, first);
    const FeedResult result = feed_next(feed, &batch);
    if (result == FEED_BATCH) feed_release(feed, &batch);
    return result;
}

void read_rows(Feed *feed, unsigned salt, uint32_t rows, uint64_t T, uint64_t first) {
    FeedBatch batch;
    request_rows(feed, rows, first);
    CHECK(feed_next(feed, &batch) == FEED_BATCH);
    CHECK_EQUAL(batch.first_sample, first);
    take_rows(feed, &batch, salt, rows, T);
}

void take_rows(Feed *feed, const FeedBatch *batch, unsigned salt, uint64_t rows, uint64_t T) {
    CHECK_EQUAL(batch->rows, rows);
    for (uint64_t i = 0; i < rows * (T + 1); i++)
        CHECK_EQUAL(((const uint16_t *)batch->ids)[i],
                    test_id(salt, 0, (batch->first_sample + i / (T + 1)) * T + i % (T + 1)));
    feed_release(feed, batch);
}

// libzmq is not built with the sanitizers: they do not see its accesses, and a connection that ends during its
// handshake is sometimes freed only when the process ends.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libzmq.so\n"; }
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "called_from_lib:libzmq.so\nrace:libzmq.so\n"; }
