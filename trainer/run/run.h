// A training run: everything it owns, from the lock on its directory to the loader's window. Opened in the order that
// says a misfit before anything is allocated: configuration, plan, directory, checkpoint, loader, memory.
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/model/evaluate.h"
#include "trainer/optim/step.h"
#include "trainer/run/backend_for.h"
#include "trainer/run/loader_process.h"
#include "trainer/run/metrics.h"
#include <signal.h>

typedef struct {
    const Config *config; // `chosen`
    Config chosen;        // as asked, and what was auto
    const Backend *backend;
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
    char checkpoint[PATH_MAX_BYTES];       // resumed from; "" = a fresh run
    char backend_text[BACKEND_TEXT_BYTES]; // device, type and reason, for the report
    volatile sig_atomic_t stop; // set by signal handlers: 1, or LOADER_PROCESS_ENDED when the loader process ended
    uint64_t saved_step;        // of the last checkpoint written or resumed from
    int failed_saves;           // without a success between
    Buffer sample;              // text made after training, for the report
} Run;

// `fresh` moves an earlier run in out_dir aside. -1 after fail(): 2, 65, 66, 69, 73, 76, 82, 83; FEED_STOPPED's 75 when
// a signal came while waiting for the loader.
int run_open(Run *run, const Config *config, bool fresh);
void run_close(Run *run); // accepts a zeroed struct

// The loader has another dataset: takes it as the current one, with its own count of samples, and writes the data log.
// 75 when on_dataset_change is stop; 2 when it is too small.
int run_dataset(Run *run);

int run_save(Run *run, bool last); // a checkpoint now. A failure is a warning, unless it is the third or `last`
int run_roll_back(Run *run);       // after three steps that were not finite: to the last good checkpoint, once; then 81

static inline DatasetUse *run_use(Run *run) { return &run->state.datasets[run->state.dataset]; }
static inline uint64_t run_sequences(const Run *run) { // of a step
    return (uint64_t)(run->config->batch_size.value * run->config->gradient_accumulation_steps);
}
