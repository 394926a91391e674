// The trainer's side of the loader: a window of requested batches, answered in order into the trainer's own ring of
// slots. The feed hides restarts, resends and swaps of the loader; what it hands out is a pure function of what was
// asked (the law, loader/protocol/wire.h).
//
//   feed_open      finds the loader and says HELLO (waits, a line every 5 s, 69 after the timeout)
//   feed_attach    makes the ring and hands it over
//   feed_request       requests a batch; at most `window` are out at once
//   feed_next      waits for the oldest batch asked and lends its slot
//   feed_release      gives the slot back
#pragma once

#include "common/bytes.h"
#include "shardtool/format/split.h"
#include <stdbool.h>

typedef enum { SAMPLING_CROP = 0, SAMPLING_EPOCH = 1, SAMPLING_SEQUENTIAL = 3 } Sampling;

typedef struct {
    const char *endpoint;     // "ipc://DIR" (its data.sock and ctl.sock), NULL = the default directory
    uint32_t vocab_size;      // the model's
    uint8_t vocab_fp[32];     // zero = take the loader's (a fresh run)
    uint8_t dataset_fp[32];   // the dataset of the checkpoint, zero = any: a wish; feed_dataset says what is served
    uint32_t sequence_tokens; // T: rows are T+1 ids
    uint32_t max_rows;        // the largest batch that will be asked
    uint32_t window;          // requests out at once, 0 = 4
    uint64_t timeout_ms;      // data_timeout: this long without the data asked for ends in 69
    const char *key_file;     // ours, for tcp beyond this machine (loader keygen); NULL = none
    const char *loader_key;   // the loader's public key; NULL = none
    bool inline_only;         // payload over the socket even where the ring would work (tests, benchmarks)
    void (*pin)(void *address, size_t bytes); // pins the ring for the device; NULL = nothing to do
    void (*unpin)(void *address);             // before it is unmapped; NULL = nothing to do
    const volatile int *stop; // set by a signal handler: feed_next returns FEED_STOPPED soon after; may be NULL
} FeedConfig;

typedef struct {
    uint8_t fingerprint[32], vocab_fp[32];
    uint64_t tokens[SPLIT_COUNT], documents[SPLIT_COUNT];
    uint32_t vocab_size, eot_id;
    char name[64];
} FeedDataset;

typedef struct {
    uint8_t split; // SPLIT_TRAIN, SPLIT_VAL
    uint8_t mode;  // Sampling
    uint32_t rows;
    uint64_t seed, first_sample;
} FeedRequest;

typedef struct {
    const uint16_t *ids; // (rows, T+1) as stored; in the slot, valid until feed_release
    uint32_t rows;       // 0 = past the end of a sequential split
    uint32_t slot;
    uint64_t first_sample, epoch;
} FeedBatch;

// What feed_next found. FEED_CHANGED: the loader now serves another dataset (same vocabulary); all that was asked is
// forgotten; look at feed_dataset and ask anew, or close. Errors: 69 no data in time, 76 another vocabulary, T or
// protocol (both named).
typedef enum { FEED_BATCH = 0, FEED_CHANGED = 1, FEED_STOPPED = 2, FEED_ERROR = -1 } FeedResult;

typedef struct {
    uint64_t batches, resends, duplicates, reconnects, wait_ns; // wait_ns: spent in feed_next
    bool ring;                                                  // false: inline payload
} FeedStats;

typedef struct Feed Feed;
Feed *feed_open(const FeedConfig *config); // NULL after fail()
const FeedDataset *feed_dataset(const Feed *feed);
int feed_attach(Feed *feed);
int feed_request(Feed *feed, const FeedRequest *ask); // never waits; a bug to pass the window
uint32_t feed_capacity(const Feed *feed);             // how many more can be asked now
FeedResult feed_next(Feed *feed, FeedBatch *batch);
void feed_release(Feed *feed, const FeedBatch *batch);
void feed_cancel(Feed *feed); // drops everything asked and not yet handed out (a changed plan, an evaluation)
FeedStats feed_stats(const Feed *feed);
void feed_close(Feed *feed); // says BYE; accepts NULL
