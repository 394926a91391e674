// The engine computes the steps of a run. It has the configuration, processes, model, memory, data and state. It reads
// files and writes none: training (trainer/run), an evaluation alone and a replay (trainer/audit) use it, and only
// training adds the writers.
//
// It is opened in the order engine_open, the state (engine_take_state, rank 0 alone), engine_connect,
// engine_open_weights, so that errors are reported before memory is allocated.
#pragma once

#include "trainer/checkpoint/host_copy.h"
#include "trainer/checkpoint/run_state.h"
#include "trainer/engine/chain.h"
#include "trainer/optim/step.h"
#include "trainer/ranks/ranks.h"
#include "trainer/setup/backend_for.h"
#include "trainer/setup/vocabulary.h"

typedef struct {
    Config config; // with a value for every auto
    const Backend *backend;
    char backend_text[BACKEND_TEXT_BYTES]; // device, type and reason, for the report
    Collective collective;                 // the processes of this run
    Model model;
    MemoryPlan plan;
    uint64_t host_left; // bytes of this machine's memory beside the plan and a required copy, before it was allocated;
                        // UINT64_MAX: not known
    Network network;
    HostCopy copy; // of the network, in rank 0 if the ranks divide the state; else if training saves beside steps
    LoaderProcess loader_process;
    Feed *feed;
    BatchSource source;
    BatchStream stream;
    Chain chain;
    bool prints_batches;              // see print_ranks
    uint8_t token_bytes[IDS_MAX];     // of the vocabulary, for bits per byte
    char begins_with[PATH_MAX_BYTES]; // the checkpoint; "": the model of init_from, or initial weights
    RunState state;
    RunState start;         // before the first step
    RunState before_streak; // of the last steps, if they were not finite: they have changed no tensor
    // Receives the members of each line about a result; NULL: nothing is recorded. Its step is state.step.
    void (*record)(void *self, Bytes members);
    void *record_self;
    const DatasetUse *recorded; // of a replay: the dataset as the run had it, by name and fingerprint; else NULL
} Engine;

// Processes, backend and plan. With `fresh` the checkpoints in out_dir do not count; with `print_ranks` all processes
// print. -1 after fail(): 2, 65, 66, 69, 71, 73, 76, 82, 83; so do the functions below, and 75 when a signal arrived
// while the trainer waited for the loader.
int engine_open(Engine *engine, const Config *config, bool fresh, bool print_ranks);

// Completes the state that rank 0 has read from the checkpoint `begins_with`, or `found` none.
int engine_take_state(Engine *engine, bool found);

// Shares the state, starts or finds the loader, and allocates the memory of the plan.
int engine_connect(Engine *engine);

// Loads the checkpoint, the model of init_from, or initial weights into engine_whole (rank 0), and shares them.
int engine_load(Engine *engine); // rank 0's part of it
int engine_open_weights(Engine *engine, bool warm_up);

void engine_close(Engine *engine); // accepts a zeroed struct

// Records a line, and frees its text.
void engine_record(Engine *engine, Buffer *members);

static inline DatasetUse *engine_use(Engine *engine) { return &engine->state.datasets[engine->state.dataset]; }
static inline uint64_t engine_sequences(const Engine *engine) { // in a step
    return (uint64_t)(engine->config.batch_size.value * engine->config.gradient_accumulation_steps);
}
// The number of steps of the run, as far as it is known.
static inline uint64_t engine_end(const Engine *engine) {
    return schedule_end(&engine->config, &engine->state.cooldown);
}
// Whether the ranks divide master parameters and optimizer state.
static inline bool engine_divided(const Engine *engine) { return engine->plan.shards > 1; }
// Whether there is an average of the parameters: not before the first update.
static inline bool engine_has_average(const Engine *engine) {
    return engine->plan.optimizer->averages && engine->state.updates;
}
// The network that checkpoints are read into and written from: the host copy if the ranks divide the state.
static inline Network *engine_whole(Engine *engine) {
    return engine_divided(engine) ? &engine->copy.view : &engine->network;
}
