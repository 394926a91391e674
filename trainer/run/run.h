// A training run and all that it owns. It is opened in the order configuration, plan, directory, checkpoint, loader,
// memory, so that errors are reported before memory is allocated.
#pragma once

#include "kernels/collective.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/model/evaluate.h"
#include "trainer/optim/step.h"
#include "trainer/records/metrics.h"
#include "trainer/records/step_times.h"
#include "trainer/setup/backend_for.h"
#include "trainer/setup/loader_process.h"
#include <stdatomic.h>

typedef struct {
    const Config *config; // points to `resolved`
    Config resolved;      // the configuration with a value for every auto
    const Backend *backend;
    Collective collective; // the processes of this run; ranks.h
    bool print_ranks;
    Model model;
    MemoryPlan plan;
    Network network;
    Lock lock;
    Metrics metrics;
    LoaderProcess loader_process;
    Feed *feed;
    BatchSource source;
    BatchStream stream;
    RunState state;
    char checkpoint[PATH_MAX_BYTES];       // that the run was resumed from; "": a new run
    char backend_text[BACKEND_TEXT_BYTES]; // device, type and reason, for the report
    atomic_int stop;                       // set by the thread that waits for signals
    bool stop_agreed;                      // by all processes of the run
    uint64_t saved_step;                   // step of the last checkpoint written or resumed from
    CheckpointWriter writer;
    uint64_t save_started_ns;                  // of the save that runs beside training
    double gemm_rate, peak_rate;               // FLOP/s of matrix products: measured, and the GPU's peak (0: not known)
    uint64_t loop_started_ns, loop_first_step; // start of the training loop in this process
    StepTimes step_times;
    bool slow;                 // a warning about slow steps was the last word about their time
    uint64_t report_warned_ns; // time of the last warning about report.html
    Buffer sample;             // sampled after training, for the report
} Run;

// `fresh` moves an earlier run in out_dir to a sub-directory. -1 after fail(): 2, 65, 66, 69, 73, 76, 82, 83, or 75
// when a signal arrived while the trainer waited for the loader.
int run_open(Run *run, const Config *config, bool fresh);
void run_close(Run *run); // accepts a zeroed struct

// Makes the loader's dataset the current one, with its own count of consumed samples, and logs the change. 75 when
// on_dataset_change is stop; 2 when the dataset is too small.
int run_dataset(Run *run);

// Writes a checkpoint. A failure is a warning, unless the save is the `last` one.
// Unless it is the last one, it is written beside training, and run_check_save takes note of its end.
int run_save(Run *run, bool last);
void run_check_save(Run *run);

// After three steps in a row that were not finite: goes back to the last checkpoint. The second time: -1 (81).
int run_roll_back(Run *run);

static inline DatasetUse *run_use(Run *run) { return &run->state.datasets[run->state.dataset]; }
// Whether this process reads and writes the directory: rank 0, or the one that took over.
static inline bool run_owns(const Run *run) { return run->lock.fd > 0; }
static inline uint64_t run_sequences(const Run *run) { // sequences in a step
    return (uint64_t)(run->config->batch_size.value * run->config->gradient_accumulation_steps);
}
