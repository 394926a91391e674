// For the loader's tests: datasets with known ids, and loader processes.
#pragma once

#include "dataset/dataset.h"
#include "loader/client/feed.h"
#include "loader/protocol/status.h"
#include "tests/test.h"
#include <sys/types.h>

enum { TEST_VOCAB = 50257, TEST_EOT = 50256 };
#define TEST_VOCAB_FP "4a155e7ccd300e17a6ae4acfecc77a9abd086ff78a6f5b52c536499071748e6c" // of GPT-2

// The id at `position` of a split of the dataset made with `salt`.
uint16_t test_id(unsigned salt, int split, uint64_t position);

// Writes dataset directory `path`: train shards of `shard_tokens` up to train_tokens, one val shard.
typedef struct {
    unsigned salt; // selects the ids
    uint64_t train_tokens, val_tokens, shard_tokens;
    uint32_t frame_tokens;
    bool other_vocabulary;
    bool constant; // every id is `salt`, so that all such shards have the same size
} TestDataset;
void make_test_dataset(const char *path, const TestDataset *spec);
void damage_frame(const char *shard, uint64_t frame); // changes one bit in its middle
extern const TestDataset test_small, test_second;     // salt 1 and 2: 100000 and 5000 tokens

// Starts `loader serve DATASET --endpoint ipc://PLACE` (or PLACE itself when it contains "://") with stderr appended to
// PLACE.log or tcp.log; does not wait until it is ready. A tcp endpoint without options gets --insecure. It is killed
// when the test ends.
pid_t start_loader(const char *dataset, const char *place);
pid_t start_loader_with(const char *dataset, const char *place, const char *option, const char *option2);
pid_t serve_test_dataset(const TestDataset *spec); // made as "d", served at ipc://p
int stop_loader(pid_t pid, int signal);            // the exit status, or 128 + the signal that ended it
void wait_for_line(const char *place, const char *part, int times); // until PLACE.log contains `part` that many times
void wait_for_loader(const char *place, int times);                 // until its log contains "ready:" that many times
const char *tcp_endpoint(void);                                     // of this process, at a port that no other has
void read_status(Status *status, const char *endpoint);             // of a loader without keys

enum { FOREVER = 120000 }; // ms, a limit that only a defect reaches
// A configuration of a loader at ipc://p; members that are named, as in TEST_FEED(T, ROWS, .window = 1), come twice.
#pragma GCC diagnostic ignored "-Woverride-init"
#define TEST_FEED(T, rows, ...)                                                                                        \
    (&(const FeedConfig){.endpoint = "ipc://p",                                                                        \
                         .vocab_size = 50304,                                                                          \
                         .sequence_tokens = (T),                                                                       \
                         .max_rows = (rows),                                                                           \
                         .timeout_ms = FOREVER,                                                                        \
                         __VA_ARGS__})
Feed *open_test_feed(const FeedConfig *config); // attached

// Requests `rows` rows of the train split in order, from sample `first` on.
void request_rows(Feed *feed, uint32_t rows, uint64_t first);
// The result of such a request, for which no other one waits; a batch is released.
FeedResult result_of_rows(Feed *feed, uint32_t rows, uint64_t first);
void read_rows(Feed *feed, unsigned salt, uint32_t rows, uint64_t T, uint64_t first); // and checks them by take_rows
// The batch holds `rows` rows of the dataset with `salt`, sequential from first_sample on; releases it.
void take_rows(Feed *feed, const FeedBatch *batch, unsigned salt, uint64_t rows, uint64_t T);
