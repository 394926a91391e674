// Measures the loader for `make bench-loader`: prints "name value" lines, which bench_loader.py compares with its
// peers. "cpu" is CPU seconds per 10^9 tokens, of the loader and of this client together.
//   bench_loader LOADER_PROGRAM FOLDER 0|1     creates datasets in FOLDER unless they exist, by the shardtool that lies
//                                              beside the loader; 1: the long form
#include "common/err.h"
#include "common/log.h"
#include "loader/client/feed.h"
#include "loader/server/row_reader.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { T = 1024, TRAIN_TOKENS = 48 << 20, EOT = 50256 };
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
    ids[count - 1] = EOT;
}

static void shardtool(const char *loader, const char *arguments) {
    char command[PATH_MAX_BYTES];
    snprintf(command, sizeof command, "%.*s/shardtool %s", (int)(strrchr(loader, '/') - loader), loader, arguments);
    check(system(command) == 0);
}

// `set`, and `large` of 10^10 tokens: its shard under many names, so that frames are decoded again and again while the
// file stays in memory.
static void make_datasets(const char *loader) {
    if (access("large", F_OK) == 0) return;
    uint16_t *ids = malloc(TRAIN_TOKENS * sizeof *ids);
    int fd = open("train.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(ids && fd >= 0);
    make_ids(ids, TRAIN_TOKENS);
    check(fd_write(fd, ids, TRAIN_TOKENS * sizeof *ids, "train.bin") == 0);
    close(fd);
    free(ids);
    shardtool(loader, "import-tokens --quiet --force --format nanogpt -o set train.bin");
    shardtool(loader, "merge --quiet --allow-duplicates -o large $(yes set | head -n 200)");
}

static double seconds_since(uint64_t ns) { return (double)(clock_ns() - ns) * 1e-9; }

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_median_and_most(const char *name, double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    printf("%s_p50 %.4g\n%s_max %.4g\n", name, values[count / 2], name, values[count - 1]);
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
        row_reader_prefetch(reader);
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

static pid_t start_loader_on(char *program, char *dataset, const char *endpoint, char *cache) {
    char option[64], parent[40];
    snprintf(parent, sizeof parent, "--die-with-parent=%d", (int)getpid());
    snprintf(option, sizeof option, "--endpoint=%s", endpoint);
    char *arguments[] = {program,
                         (char[]){"serve"},
                         dataset,
                         option,
                         (char[]){"--insecure"},
                         parent,
                         (char[]){"--quiet"},
                         (char[]){"--cache"},
                         cache,
                         NULL};
    pid_t pid;
    check(posix_spawn(&pid, program, NULL, NULL, arguments, environ) == 0);
    return pid;
}

static pid_t start_loader(char *program, const char *endpoint) {
    return start_loader_on(program, (char[]){"set"}, endpoint, (char[]){"1G"});
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

// Requests the batches that follow, as many as the window takes.
static void fill_window(Feed *feed, FeedRequest *next) {
    for (; feed_capacity(feed); next->first_sample += next->rows) check(feed_request(feed, next) == 0);
}

// CPU seconds of a process and its threads.
static double cpu_of(pid_t pid) {
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    check(file && fread(text, 1, sizeof text - 1, file));
    fclose(file);
    const char *at = strrchr(text, ')'); // the 2nd field; user and system time are the 14th and 15th
    for (int field = 2; at && field < 14; field++) at = strchr(at + 1, ' ');
    check(at && sscanf(at, "%lu %lu", &user, &system) == 2);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

typedef struct {
    uint32_t rows, window;
    bool inline_only;
    Sampling mode;
    uint64_t warm; // samples before the measurement
    double seconds;
    pid_t pid; // of the loader
} Run;

typedef struct {
    double rate, cpu;
} Rate;

// Batches until the time has passed.
static Rate feed_rate(const Run *run) {
    Feed *feed = open_feed(run->rows, run->window, run->inline_only);
    FeedRequest next = {.split = SPLIT_TRAIN, .mode = (uint8_t)run->mode, .rows = run->rows, .seed = 1337};
    uint64_t got = 0, began = 0, counted = 0;
    double cpu = 0;
    while (!began || seconds_since(began) < run->seconds) {
        fill_window(feed, &next);
        FeedBatch batch;
        check(feed_next(feed, &batch) == FEED_BATCH);
        feed_release(feed, &batch);
        got += run->rows;
        if (!began && got >= run->warm) began = clock_ns(), counted = got, cpu = cpu_of(run->pid) + cpu_of(getpid());
    }
    double tokens = (double)(got - counted) * T;
    Rate rate = {tokens / seconds_since(began), (cpu_of(run->pid) + cpu_of(getpid()) - cpu) * 1e9 / tokens};
    feed_close(feed);
    return rate;
}

// Compares crops with the ids of which the dataset was made.
static void check_crops(const FeedBatch *batch, uint64_t seed, const uint16_t *ids) {
    SampleOrder order;
    ShuffleGroup group;
    check(sample_order_init(&order, SAMPLING_CROP, SPLIT_TRAIN, seed, 0, TRAIN_TOKENS, T) == 0);
    for (uint32_t row = 0; row < batch->rows; row++) {
        sample_order_group(&order, batch->first_sample + row, &group);
        uint64_t token = sample_order_token(&order, &group, batch->first_sample + row);
        check(!memcmp((const uint16_t *)batch->ids + (size_t)row * (T + 1), ids + token, (T + 1) * sizeof *ids));
    }
}

// From kill -9 of the loader to the next batch, which is compared with the data.
static void bench_restart(char *program, const char *name, const char *endpoint, bool inline_only, int count) {
    double *ms = calloc((size_t)count, sizeof *ms);
    int file = open("train.bin", O_RDONLY | O_CLOEXEC);
    const uint16_t *ids = mmap(NULL, TRAIN_TOKENS * sizeof *ids, PROT_READ, MAP_PRIVATE, file, 0);
    check(ms && ids != MAP_FAILED);
    close(file);
    pid_t pid = start_loader(program, endpoint);
    Feed *feed = open_feed_at(endpoint, 64, 4, inline_only);
    uint64_t sample = 0;
    for (int kills = -1; kills < count; kills++) {
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
        if (kills >= 0) ms[kills] = seconds_since(began) * 1e3;
        check_crops(&batch, request.seed, ids);
        feed_release(feed, &batch);
    }
    print_median_and_most(name, ms, (size_t)count);
    munmap((void *)ids, TRAIN_TOKENS * sizeof *ids);
    free(ms);
    feed_close(feed);
    stop_loader(pid, SIGTERM);
}

// Random crops of 10^10 tokens, 20 GB, of which the cache, which is full after the warm-up, has 2.5 %.
static void bench_large(char *program, double seconds) {
    pid_t pid = start_loader_on(program, (char[]){"large"}, ring_endpoint, (char[]){"512M"});
    Run run = {.rows = 512, .window = 8, .mode = SAMPLING_CROP, .warm = 10000, .seconds = seconds, .pid = pid};
    Rate rate = feed_rate(&run);
    printf("large_crop %.4g\nlarge_crop_cpu %.4g\n", rate.rate, rate.cpu);
    stop_loader(pid, SIGTERM);
}

static double first_batch_ms(char *program) {
    pid_t pid = start_loader(program, ring_endpoint);
    Feed *feed = open_feed(64, 4, false);
    uint64_t began = clock_ns();
    FeedRequest request = {.split = SPLIT_TRAIN, .mode = SAMPLING_EPOCH, .rows = 64, .seed = 1};
    FeedBatch batch;
    check(feed_request(feed, &request) == 0 && feed_next(feed, &batch) == FEED_BATCH);
    double ms = seconds_since(began) * 1e3;
    feed_close(feed);
    stop_loader(pid, SIGTERM);
    return ms;
}

static void bench_rates(pid_t pid) {
    const uint32_t sizes[] = {16, 64, 512};
    Run run = {.window = 8, .mode = SAMPLING_CROP, .warm = 1 << 16, .seconds = 0.7, .pid = pid};
    for (int i = 0; i < 3; i++)
        for (int inline_only = 0; inline_only < 2; inline_only++) {
            const char *name = inline_only ? "inline" : "ring";
            run.rows = sizes[i], run.inline_only = inline_only;
            Rate rate = feed_rate(&run);
            printf("%s_%u %.4g\n%s_%u_cpu %.4g\n", name, sizes[i], rate.rate, name, sizes[i], rate.cpu);
        }
    run.rows = 64, run.inline_only = false, run.mode = SAMPLING_EPOCH;
    Rate rate = feed_rate(&run);
    printf("ring_epoch_64 %.4g\nring_epoch_64_cpu %.4g\n", rate.rate, rate.cpu);
}

// ZeroMQ allocates each message that arrives. By default glibc returns freed memory to the kernel, more or less from
// run to run, and with the page faults that follow inline rates differ by 3 times.
static void keep_freed_memory(void) {
    check(mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1 && mallopt(M_TRIM_THRESHOLD, 64 << 20) == 1);
}

int main(int argc, char **argv) {
    keep_freed_memory();
    if (argc != 4 || (mkdir(argv[2], 0755) < 0 && errno != EEXIST)) return 2;
    char program[PATH_MAX_BYTES];
    if (!realpath(argv[1], program) || chdir(argv[2]) < 0) return 2;
    bool whole = *argv[3] == '1';
    int kills = whole ? 1000 : 50;
    make_datasets(program);
    bench_read();
    pid_t pid = start_loader(program, ring_endpoint);
    bench_rates(pid);
    stop_loader(pid, SIGTERM);
    bench_large(program, whole ? 30 : 5);
    printf("cold_ms %.4g\n", first_batch_ms(program));
    bench_restart(program, "restart_ring_ms", ring_endpoint, false, kills);
    bench_restart(program, "restart_inline_ms", ring_endpoint, true, kills);
    bench_restart(program, "restart_tcp_ms", "tcp://127.0.0.1:29517", false, kills);
    return 0;
}
