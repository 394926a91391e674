// A training run and all that it owns. It is opened in the order configuration, plan, directory, checkpoint, loader,
// memory, so that errors are reported before memory is allocated.
#pragma once

#include "common/machine/processor_time.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/optim/step.h"
#include "trainer/ranks/ranks.h"
#include "trainer/records/metrics.h"
#include "trainer/records/step_times.h"
#include "trainer/run/chain.h"
#include "trainer/setup/backend_for.h"
#include "trainer/setup/vocabulary.h"
#include <stdatomic.h>

// The checkpoints of a run (run_save.h).
typedef struct {
    char resumed_from[PATH_MAX_BYTES]; // the checkpoint; "": a new run
    uint64_t step;                     // step of the last checkpoint written or resumed from
    bool evaluated;                    // that has the evaluation of its step
    CheckpointWriter writer;
    uint64_t started_ns; // start of the save that runs beside training
    double wait;         // of the save that runs beside training
    double seconds,
        cost; // of a save: its length, and the training time that it costs (save_interval_s); 0: not measured
    uint64_t begun, interval; // of checkpoint_interval, in steps and the same in all processes: the last save's, and
                              // the distance to the next; 0: not planned
} RunSaves;

// The speed of this process's steps (loop_record.h).
typedef struct {
    // FLOP/s of matrix products in all processes together: measured, and the GPUs' peak (0: not known)
    double gemm_rate, peak_rate;
    uint64_t first_step; // the step at which the training loop began
    uint64_t began_ns;   // when its first step began
    uint64_t steps;      // done since; after a roll-back, steps that are made again count again
    StepTimes step_times;
    ProcessorTime processor;          // at the end of the last window of step times
    double lost;                      // of the processor in that window, if it was recorded
    int slow_windows;                 // windows of step times in a row that are slow
    bool slow;                        // the last message about step times was the warning that they are slow
    int spikes;                       // steps in a row that are spikes
    double step_seconds, step_tokens; // of all steps of this process
} RunPace;

typedef struct {
    Config config; // with a value for every auto
    const Backend *backend;
    char backend_text[BACKEND_TEXT_BYTES]; // device, type and reason, for the report
    Collective collective;                 // the processes of this run
    Model model;
    MemoryPlan plan;
    Network network;
    Lock lock;
    Metrics metrics;
    LoaderProcess loader_process;
    Feed *feed;
    BatchSource source;
    BatchStream stream;
    Chain chain;
    bool prints_batches;    // see print_ranks
    bool replays;           // computes steps of an earlier run again: out_dir is read alone (trainer/audit/replay.h)
    uint64_t replayed_from; // the checkpoint that it begins with; 0: the initial weights
    DatasetUse replayed;    // the dataset of the first step
    const char *replayed_choices; // of the backend, where it begins with the initial weights
    uint8_t token_bytes[IDS_MAX]; // of the vocabulary, for bits per byte
    RunState state;
    RunState before_streak; // of the last steps, if they were not finite: they have changed no tensor
    RunSaves saves;
    uint64_t
        host_left; // bytes of this machine's memory beside the plan and a required copy, before it was allocated; UINT64_MAX: not known
    RunPace pace;
    atomic_int stop;  // set by the thread that waits for signals
    bool stop_agreed; // all processes of the run stop
} Run;

// `fresh` moves an earlier run in out_dir to a sub-directory; with `print_ranks` all processes print. -1 after fail():
// 2, 65, 66, 69, 73, 76, 82, 83, or 75 when a signal arrived while the trainer waited for the loader.
int run_open(Run *run, const Config *config, bool fresh, bool print_ranks);
void run_close(Run *run); // accepts a zeroed struct

// Loads the checkpoint that the run resumes from, the model of init_from, or initial weights into run_whole.
int run_open_weights(Run *run);

static inline DatasetUse *run_use(Run *run) { return &run->state.datasets[run->state.dataset]; }
// Whether this process reads and writes the directory: it is rank 0, or has taken over from it.
static inline bool run_owns(const Run *run) { return run->lock.fd > 0; }
MetricsEnd run_metrics_end(const Run *run);            // that of its state
static inline uint64_t run_sequences(const Run *run) { // sequences in a step
    return (uint64_t)(run->config.batch_size.value * run->config.gradient_accumulation_steps);
}
// Whether the checkpoint that the run resumes from is of its last step.
static inline bool run_is_complete(const Run *run) {
    return *run->saves.resumed_from && run->state.step >= (uint64_t)run->config.max_iters && !run->config.eval_only;
}
// Whether the ranks divide master parameters and optimizer state.
static inline bool run_divided(const Run *run) { return run->plan.shards > 1; }
// The network that checkpoints are read into and written from. Where the ranks divide the state, it is the copy of rank
// 0's checkpoint writer.
static inline Network *run_whole(Run *run) { return run_divided(run) ? &run->saves.writer.view : &run->network; }
