// What the trainer's tests share: a tiny model on the CPU backend, and a source of batches without a loader.
#pragma once

#include "tests/test.h"
#include "trainer/optim/step.h"

#define applied_steps(steps)                                                                                           \
    (&(const StepPlace){(uint64_t)(steps), (uint64_t)(steps), 1}) // before step `steps`, every earlier one applied

typedef struct {
    int layers, heads, channels, block, vocab;
    int batch, accumulation, eval_batch, chunk_rows, recompute;
    bool bias;
    Dtype type;
    OptimizerState optimizer_state;
    bool warm_up, offload;
    const Optimizer *optimizer; // NULL: AdamW
} TinyShape;
extern const TinyShape tiny_shape; // what most tests start from

typedef struct {
    Config config;
    const Backend *backend;
    Model model;
    MemoryPlan plan;
    Network network;
} Tiny;

// Initialised from seed 1337. Dies with the test when anything fails.
void tiny_open(Tiny *tiny, const TinyShape *shape);
void tiny_close(Tiny *tiny);

// Row `sample` of a split: T+1 ids below `vocab`, a pure function of all of them; ids of neighbours overlap by one.
uint16_t test_row_id(int split, uint64_t sample, int t, int T, int vocab);

// Answers asks in order, `window` of them at once; says `event` instead of batch number `event_at` (once).
typedef struct {
    int T, vocab;
    uint32_t window;
    FeedRequest asks[16];
    uint32_t count, most; // out now, and the most there were
    uint64_t given, event_at;
    FeedResult event; // FEED_BATCH: none
    uint16_t *ids;
} TestSource;
BatchSource test_source(TestSource *source, int T, int vocab);

// Calls to malloc and its like that our code has made, the tests' own included (test_allocations.c).
uint64_t test_allocations(void);

// All values of a range of the arena of floats, malloc'ed.
float *tiny_read(const Tiny *tiny, size_t range);
