// Measures the loader for `make bench-loader`: prints "name value" lines, which bench_loader.py compares with its
// peers.
//   bench_loader LOADER_PROGRAM FOLDER     creates FOLDER/set and FOLDER/train.bin unless they exist
#include "common/err.h"
#include "common/log.h"
#include "loader/client/feed.h"
#include "loader/server/row_reader.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { T = 1024, TRAIN_TOKENS = 48 << 20, VAL_TOKENS = 1 << 20, VOCAB = 50257, EOT = 50256 };
extern char **environ;

static void check(bool fine) {
    if (!fine) die(EX_BUG, "the benchmark failed: %s", err_text());
}

// Ids that compress about as well as text: some are frequent, and runs of earlier ids are repeated.
static void make_ids(uint16_t *ids, size_t count) {
    uint64_t state = 42;
    for (size_t i = 0; i < count;) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = state >> 33;
        size_t run = 2 + bits % 5;
        if (i > 5000 && bits % 100 < 60) {
            size_t from = i - 1 - (bits >> 8) % 4900;
            while (run-- && i < count) ids[i++] = ids[from++];
        } else {
            ids[i++] = (uint16_t)((bits >> 8) % 7 ? (bits >> 12) % 400 : (bits >> 12) % EOT);
        }
    }
    for (size_t i = 900; i < count; i += 1000) ids[i] = EOT;
}

static void add_shard(Dataset *dataset, int split, const uint16_t *ids, size_t count) {
    char path[PATH_MAX_BYTES], folder[PATH_MAX_BYTES];
    dataset_shard_path(path, dataset->path, split, dataset->shard_count[split]);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    ShardParams params = {SHARD_FRAME_TOKENS, VOCAB, EOT, {0}, {0}};
    memcpy(params.vocab_fp, dataset->vocab_fp, sizeof params.vocab_fp);
    ShardWriter writer;
    ShardEncoder *encoder = shard_encoder_open();
    Buffer frame = {0};
    check(dir_make(folder) == 0 && shard_writer_open(&writer, path, -1, &params, false) == 0);
    for (size_t at = 0; at < count; at += SHARD_FRAME_TOKENS) {
        size_t tokens = count - at < SHARD_FRAME_TOKENS ? count - at : SHARD_FRAME_TOKENS;
        frame.size = 0;
        check(shard_encode(encoder, &params, ids + at, tokens, &frame) == 0);
        check(shard_writer_append(&writer, ids + at, tokens, (Bytes){frame.data, frame.size}, 0) == 0);
    }
    check(shard_writer_finish(&writer) == 0);
    DatasetShard shard = {
        .tokens = count, .documents = writer.documents, .bytes = writer.file.written, .from = {"a", 0},
                   .to = {"a", 1}
    };
    memcpy(shard.content_hash, writer.content_hash, sizeof shard.content_hash);
    memcpy(shard.stored_hash, writer.stored_hash, sizeof shard.stored_hash);
    dataset_add(dataset, split, &shard);
    buffer_close(&frame);
    shard_encoder_close(encoder);
}

static void make_dataset(void) {
    if (access("set/dataset.jsonl", F_OK) == 0 && access("train.bin", F_OK) == 0) return;
    uint16_t *ids = malloc(TRAIN_TOKENS * sizeof *ids);
    check(ids);
    make_ids(ids, TRAIN_TOKENS);
    Dataset dataset;
    dataset_begin(&dataset, "set");
    memset(dataset.vocab_fp, 0x11, sizeof dataset.vocab_fp);
    dataset.vocab_size = VOCAB, dataset.eot_id = EOT;
    dataset.params = "frame_tokens=32768", dataset.val = "0";
    add_shard(&dataset, SPLIT_TRAIN, ids, TRAIN_TOKENS);
    add_shard(&dataset, SPLIT_VAL, ids, VAL_TOKENS);
    check(dataset_save(&dataset) == 0);
    dataset_close(&dataset);
    int fd = open("train.bin", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    check(fd >= 0 && fd_write(fd, ids, TRAIN_TOKENS * sizeof *ids, "train.bin") == 0);
    close(fd);
    free(ids);
}

static double seconds_since(uint64_t ns) { return (double)(clock_ns() - ns) * 1e-9; }

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_quantiles(const char *name, double *values, size_t count, double scale) {
    qsort(values, count, sizeof *values, by_value);
    printf("%s_p50 %.4g\n%s_p99 %.4g\n%s_max %.4g\n", name, values[count / 2] * scale, name,
           values[count * 99 / 100] * scale, name, values[count - 1] * scale);
}

// --- rows without a connection

static double read_rate(RowReader *reader, Served *served, Sampling mode, uint32_t rows, uint64_t samples,
                        uint16_t *ids) {
    uint64_t began = clock_ns(), done = 0;
    for (; done < samples; done += rows) {
        WireGet get = {.seed = 1337, .first_sample = done, .rows = rows, .sequence_tokens = T, .mode = (uint8_t)mode};
        static RowCopy copy;
        check(row_copy_begin(reader, &copy, served, &get, ids) == 0);
        for (RowResult result; (result = row_copy_advance(reader, &copy)) != ROWS_DONE;) {
            struct pollfd event = {frame_cache_event(row_reader_cache(reader)), POLLIN, 0};
            check(result != ROWS_FAILED);
            if (result == ROWS_WAIT) poll(&event, 1, -1);
            frame_cache_collect(row_reader_cache(reader));
        }
        row_copy_end(&copy);
        row_reader_read_ahead(reader);
    }
    return (double)done * T / seconds_since(began);
}

static void bench_read(void) {
    Served *served = served_open(&(ServedSpec){.sources = {{"set", 1}}, .count = 1});
    RowReader *reader = row_reader_open(1 << 30, 1);
    uint16_t *ids = malloc(512 * (T + 1) * sizeof *ids);
    check(served && reader && ids);
    uint64_t epoch = (TRAIN_TOKENS - 1) / T;
    read_rate(reader, served, SAMPLING_EPOCH, 64, 8192, ids);
    printf("epoch_decode %.4g\n", read_rate(reader, served, SAMPLING_EPOCH, 64, epoch, ids));
    read_rate(reader, served, SAMPLING_CROP, 64, 1 << 16, ids); // decodes the whole split
    const uint32_t sizes[] = {16, 64, 512};
    for (int i = 0; i < 3; i++)
        printf("crop_fill_%u %.4g\n", sizes[i], read_rate(reader, served, SAMPLING_CROP, sizes[i], 1 << 19, ids));
    while (!row_reader_forget(reader, served)) usleep(1000);
    row_reader_close(reader);
    served_close(served);
    free(ids);
}

// --- rows through a loader process

static const char ring_endpoint[] = "ipc://place";

static pid_t start_loader(char *program, const char *endpoint) {
    char option[64];
    snprintf(option, sizeof option, "--endpoint=%s", endpoint);
    char *arguments[] = {program,
                         (char[]){"serve"},
                         (char[]){"set"},
                         option,
                         (char[]){"--insecure"},
                         (char[]){"--die-with-parent"},
                         (char[]){"--quiet"},
                         NULL};
    pid_t pid;
    check(posix_spawn(&pid, program, NULL, NULL, arguments, environ) == 0);
    return pid;
}

static void stop_loader(pid_t pid, int signal) {
    kill(pid, signal);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

static Feed *open_feed_at(const char *endpoint, uint32_t rows, uint32_t window, bool inline_only) {
    FeedConfig config = {.endpoint = endpoint,
                         .vocab_size = 50304,
                         .sequence_tokens = T,
                         .max_rows = rows,
                         .window = window,
                         .timeout_ms = 10000,
                         .inline_only = inline_only};
    Feed *feed = feed_open(&config);
    check(feed && feed_attach(feed) == 0);
    return feed;
}

static Feed *open_feed(uint32_t rows, uint32_t window, bool inline_only) {
    return open_feed_at(ring_endpoint, rows, window, inline_only);
}

// Batches until `seconds` have passed; with a window of 1 each is a round trip.
static double feed_rate(uint32_t rows, uint32_t window, bool inline_only, Sampling mode, double seconds,
                        const char *trip) {
    enum { TRIPS = 1 << 16 };
    static double trips[TRIPS];
    Feed *feed = open_feed(rows, window, inline_only);
    uint64_t requested = 0, got = 0, warm = 1 << 16, began = 0, counted = 0, last = clock_ns();
    size_t count = 0;
    while (!began || seconds_since(began) < seconds) {
        for (; feed_capacity(feed); requested += rows) {
            FeedRequest request = {
                .split = SPLIT_TRAIN, .mode = (uint8_t)mode, .rows = rows, .seed = 1337, .first_sample = requested};
            check(feed_request(feed, &request) == 0);
        }
        FeedBatch batch;
        check(feed_next(feed, &batch) == FEED_BATCH);
        feed_release(feed, &batch);
        got += rows;
        uint64_t now = clock_ns();
        if (began && trip && count < TRIPS) trips[count++] = (double)(now - last) * 1e-3;
        last = now;
        if (!began && got >= warm) began = now, counted = got;
    }
    double rate = (double)(got - counted) * T / seconds_since(began);
    if (trip) print_quantiles(trip, trips, count, 1);
    feed_close(feed);
    return rate;
}

// From kill -9 of the loader to the next batch.
static void bench_restart(char *program, const char *name, const char *endpoint, bool inline_only) {
    enum { KILLS = 50 };
    double ms[KILLS];
    pid_t pid = start_loader(program, endpoint);
    Feed *feed = open_feed_at(endpoint, 64, 4, inline_only);
    uint64_t sample = 0;
    for (int kills = -1; kills < KILLS; kills++) {
        uint64_t began = clock_ns();
        if (kills >= 0) {
            stop_loader(pid, SIGKILL);
            pid = start_loader(program, endpoint);
        }
        // Answers from before the kill do not count: cancel and request a new batch.
        feed_cancel(feed);
        FeedRequest request = {
            .split = SPLIT_TRAIN, .mode = SAMPLING_CROP, .rows = 64, .seed = 1, .first_sample = sample++};
        FeedBatch batch;
        check(feed_request(feed, &request) == 0 && feed_next(feed, &batch) == FEED_BATCH);
        feed_release(feed, &batch);
        if (kills >= 0) ms[kills] = seconds_since(began) * 1e3;
    }
    print_quantiles(name, ms, KILLS, 1);
    feed_close(feed);
    stop_loader(pid, SIGTERM);
}

// A trainer at 1 M tokens/s: its wait for each batch, across the border of two shuffle groups.
static void bench_wait(void) {
    enum { STEPS = 60, ROWS = 64, GROUP = 8 << 10, FROM = GROUP - STEPS / 2 * ROWS };
    double us[STEPS];
    Feed *feed = open_feed(ROWS, 4, false);
    uint64_t requested = FROM, began = 0;
    for (int step = -2; step < STEPS; step++) {
        for (; feed_capacity(feed); requested += ROWS) {
            FeedRequest request = {
                .split = SPLIT_TRAIN, .mode = SAMPLING_EPOCH, .rows = ROWS, .seed = 7, .first_sample = requested};
            check(feed_request(feed, &request) == 0);
        }
        FeedBatch batch;
        uint64_t before = feed_stats(feed).wait_ns;
        check(feed_next(feed, &batch) == FEED_BATCH);
        if (step >= 0) us[step] = (double)(feed_stats(feed).wait_ns - before) * 1e-3;
        if (!step) began = clock_ns();
        usleep(ROWS * T);
        feed_release(feed, &batch);
    }
    double sum = 0, seconds = seconds_since(began);
    for (int step = 0; step < STEPS; step++) sum += us[step];
    printf("wait_percent %.4g\n", sum * 1e-4 / seconds);
    print_quantiles("wait_us", us, STEPS, 1);
    feed_close(feed);
}

static double first_batch_ms(char *program, uint64_t first) {
    pid_t pid = start_loader(program, ring_endpoint);
    Feed *feed = open_feed(64, 4, false);
    uint64_t began = clock_ns();
    FeedRequest request = {.split = SPLIT_TRAIN, .mode = SAMPLING_EPOCH, .rows = 64, .seed = 1, .first_sample = first};
    FeedBatch batch;
    check(feed_request(feed, &request) == 0 && feed_next(feed, &batch) == FEED_BATCH);
    double ms = seconds_since(began) * 1e3;
    feed_close(feed);
    stop_loader(pid, SIGTERM);
    return ms;
}

int main(int argc, char **argv) {
    if (argc != 3 || (mkdir(argv[2], 0755) < 0 && errno != EEXIST)) return 2;
    char program[PATH_MAX_BYTES];
    if (!realpath(argv[1], program) || chdir(argv[2]) < 0) return 2;
    make_dataset();
    bench_read();
    pid_t pid = start_loader(program, ring_endpoint);
    const uint32_t sizes[] = {16, 64, 512};
    for (int i = 0; i < 3; i++) {
        printf("ring_%u %.4g\n", sizes[i], feed_rate(sizes[i], 8, false, SAMPLING_CROP, 0.7, NULL));
        printf("inline_%u %.4g\n", sizes[i], feed_rate(sizes[i], 8, true, SAMPLING_CROP, 0.7, NULL));
    }
    printf("ring_epoch_64 %.4g\n", feed_rate(64, 8, false, SAMPLING_EPOCH, 0.7, NULL));
    feed_rate(64, 1, false, SAMPLING_CROP, 0.7, "trip_us");
    bench_wait();
    stop_loader(pid, SIGTERM);
    printf("cold_ms %.4g\n", first_batch_ms(program, 0));
    printf("cold_at_1e9_ms %.4g\n", first_batch_ms(program, 1000000000));
    bench_restart(program, "restart_ring_ms", ring_endpoint, false);
    bench_restart(program, "restart_inline_ms", ring_endpoint, true);
    bench_restart(program, "restart_tcp_ms", "tcp://127.0.0.1:29517", false);
    return 0;
}
