// The trainer's client of a loader: requests batches ahead of their use and receives them in order, in slots of a ring
// that belongs to the trainer. The feed hides restarts, resends and reloads of the loader: the rows of a batch depend
// only on the request (the law in loader/protocol/wire.h).
//
//   feed_open      connects and sends HELLO; waits for a loader, with a log line every 5 s, and fails with 69 after the
//                  timeout
//   feed_attach    allocates the ring and shares it with the loader
//   feed_request   requests a batch; at most `window` requests can be outstanding
//   feed_next      waits for the oldest requested batch and lends its slot to the caller
//   feed_release   returns the slot
#pragma once

#include "common/bytes.h"
#include "dataset/split.h"
#include "loader/protocol/mixture.h"
#include "loader/protocol/sampling_mode.h"
#include <stdatomic.h>
#include <stdbool.h>

typedef struct {
    const char *endpoint; // "ipc://DIR" or "tcp://HOST:PORT", or several, separated by commas, which are tried in
                          // turn; NULL = the default directory, where feed_open waits for at most 5 s
    uint32_t vocab_size;  // of the model
    uint8_t vocab_fp[32]; // of the model's vocabulary; zero = accept the loader's (a fresh run)
    uint8_t dataset[32];  // fingerprint of the dataset that the run has used last; zero = none
    bool as_before;       // describe a mixture as it was with this fingerprint, without weights from later samples on
    uint32_t sequence_tokens; // T: rows are T+1 ids
    uint32_t max_rows;        // of the largest batch that will be requested
    uint32_t window;          // most outstanding requests; 0 = 4
    uint64_t timeout_ms;      // waiting this long without receiving requested data fails with 69
    const char *key_file;     // the trainer's key pair, for a loader with keys (loader keygen); NULL = none
    const char *loader_key;   // the loader's public key; NULL = none
    const char *name;         // of the run, for `loader serve-status` beside host and process id; NULL = none
    bool inline_only;         // receive rows over the socket even if a ring is possible (tests, benchmarks)
    void (*pin)(void *address, size_t bytes); // page-locks the ring for the device; NULL = not needed
    void (*unpin)(void *address);             // called before the ring is unmapped; NULL = not needed
    const atomic_int *stop;                   // when set, a call that waits ends: feed_next with FEED_STOPPED. It and
                                              // feed_close take FEED_STOP_MS at most, whatever the loader and the
                                              // network do. May be NULL
    int (*while_waiting)(void *self); // called every 100 ms or more often while the feed waits; -1 after fail() ends
                                      // the wait with this error; NULL = nothing to do
    void *while_waiting_self;
} FeedConfig;

enum { FEED_SOURCES_MAX = MIXTURE_SOURCES_MAX, FEED_STOP_MS = 2000 };

typedef struct {
    uint8_t fingerprint[32], vocab_fp[32];
    uint64_t tokens[SPLIT_COUNT], documents[SPLIT_COUNT];
    uint32_t vocab_size, eot_id;
    char name[64];
    unsigned source_count; // datasets of a mixture; 1: the dataset itself
    struct {
        char name[64];
        uint64_t tokens[SPLIT_COUNT];
    } sources[FEED_SOURCES_MAX];
} FeedDataset;

typedef struct {
    uint8_t split; // SPLIT_TRAIN, SPLIT_VAL
    uint8_t mode;  // Sampling
    uint32_t rows;
    uint64_t seed, first_sample;
    uint32_t sequence_tokens; // T of these rows, at most the feed's; 0 = the feed's
    uint16_t source;          // 0: all; i: only source i of the dataset, the first being 1
} FeedRequest;

typedef struct {
    const void *ids; // (rows, T+1), in the slot; valid until feed_release. 2 or 4 bytes: id_bytes(vocab_size) of
                     // the dataset (common/id_array.h)
    uint32_t rows;   // fewer than requested only at the end of a sequential split, 0 past it
    uint32_t slot;
    uint64_t first_sample, epoch;
} FeedBatch;

// FEED_CHANGED: the loader serves another dataset now (with the same vocabulary), all requests are cancelled;
// feed_dataset describes it, and the caller requests from it or closes the feed. Errors: 69 no data in time, 65 the
// data is damaged, 74 the loader cannot read it, 76 another vocabulary or protocol version.
typedef enum { FEED_BATCH = 0, FEED_CHANGED = 1, FEED_STOPPED = 2, FEED_ERROR = -1 } FeedResult;

typedef struct {
    uint64_t batches, resends, reconnects;
    uint64_t dropped; // messages that are not the answer to a waiting request: late, repeated, damaged
    uint64_t wait_ns; // time spent in feed_next
    bool ring;        // false: rows arrive over the socket
} FeedStats;

typedef struct Feed Feed;
Feed *feed_open(const FeedConfig *config); // NULL after fail()
const FeedDataset *feed_dataset(const Feed *feed);
// The weight of a source, the first being 0, for the train sample of this number; the sum over all sources is 65,536.
uint32_t feed_weight(const Feed *feed, unsigned source, uint64_t sample);
uint64_t feed_weights_end(const Feed *feed, uint64_t sample); // the next sample with other weights; UINT64_MAX: none
// The fingerprint of the dataset; of a mixture, without the weights that hold from a sample after this one on.
const uint8_t *feed_fingerprint(const Feed *feed, uint64_t sample);
// The train samples before this number are those of the dataset with this fingerprint: UINT64_MAX if the loader serves
// it, 0 if it is neither that nor an earlier one of its schedule.
uint64_t feed_same_samples(const Feed *feed, const uint8_t fingerprint[32]);
int feed_attach(Feed *feed);
int feed_request(Feed *feed, const FeedRequest *request); // does not wait; the caller checks feed_capacity first
uint32_t feed_capacity(const Feed *feed);                 // number of further requests that are possible now
FeedResult feed_next(Feed *feed, FeedBatch *batch);
void feed_release(Feed *feed, const FeedBatch *batch);
void feed_cancel(Feed *feed); // cancels all requests whose batch feed_next has not returned
FeedStats feed_stats(const Feed *feed);
void feed_close(Feed *feed); // sends BYE; accepts NULL
