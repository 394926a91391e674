// Fixtures of the trainer's tests: a tiny model on the CPU backend, and a source of batches without a loader.
#pragma once

#include "tests/small_network.h"
#include "tests/test.h"

// The position of a run after `steps` steps, all of them applied.
#define AFTER_STEPS(steps) (&(const StepPosition){(uint64_t)(steps), (uint64_t)(steps), 1, NULL, NULL})

typedef struct {
    int layers, heads, channels, block, vocab;
    int batch, accumulation, eval_batch, chunk_rows;
    Recompute recompute;
    int recompute_layers;
    bool bias;
    Device device; // DEVICE_AUTO: the CPU
    Dtype type;
    OptimizerState optimizer_state;
    bool warm_up;
    OffloadMode offload;
    double dropout;
    int end_of_text;            // 0: no document_mask
    int threads;                // 0: two
    unsigned world;             // processes that the plan is made for; 0: one
    const Optimizer *optimizer; // NULL: AdamW
    const char *cache_dir;      // of the backend; NULL: none
    const char *options;        // of the model, as "norm=rmsnorm,mlp=swiglu"; NULL: none
} TinyShape;

// What most tests start from; TINY_SHAPE(.batch = 4) has other values for members, which then come twice.
#pragma GCC diagnostic ignored "-Woverride-init"
#define TINY_MEMBERS                                                                                                   \
    .layers = 2, .heads = 2, .channels = 32, .block = 16, .vocab = 97, .batch = 2, .accumulation = 1, .eval_batch = 2, \
    .bias = true
#define TINY_SHAPE(...) (&(const TinyShape){TINY_MEMBERS, __VA_ARGS__})
extern const TinyShape tiny_shape;

// Serves requests in order, at most `window` outstanding; returns `event` instead of batch `event_at`, once.
typedef struct {
    int T, vocab;
    uint32_t window;
    FeedRequest requests[16];
    uint32_t count, most; // outstanding requests, and their maximum
    uint64_t served, event_at;
    FeedResult event; // FEED_BATCH: none
    uint16_t *ids;
} TestSource;

typedef struct {
    Config config;
    const Backend *backend;
    Model model;
    MemoryPlan plan;
    Network network;
    TestSource memory; // what `source` reads, whose rows are those of test_row_id
    BatchSource source;
    BatchStream stream; // of training batches
} Tiny;

// Initialized from seed 1337. Any failure ends the test.
void tiny_open(Tiny *tiny, const TinyShape *shape);
void tiny_close(Tiny *tiny);

void tiny_start(Tiny *tiny, uint64_t sample); // the next step takes training samples from this one on
// One step from that sample on, for which there are batches.
StepResult tiny_step(Tiny *tiny, uint64_t sample, const StepPosition *position);
// Steps first .. end - 1 of a run, all finite, with no request left; `losses`, by step, may be NULL.
void tiny_train(Tiny *tiny, int first, int end, double losses[]);

// Row `sample` of a split: T+1 ids below `vocab`, a pure function of all of them; rows of neighbouring samples overlap
// by one id.
uint16_t test_row_id(int split, uint64_t sample, int t, int T, int vocab);

// Calls to malloc, calloc, realloc and aligned_alloc so far, by our code and the tests (malloc_counter.c).
uint64_t test_allocations(void);

// All floats of a range of the arena; the caller frees them.
float *tiny_read(const Tiny *tiny, size_t range);
