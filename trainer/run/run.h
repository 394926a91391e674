// A training run: an engine, and the directory that it writes.
#pragma once

#include "common/machine/processor_time.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/engine/engine.h"
#include "trainer/items/items.h"
#include "trainer/records/metrics.h"
#include "trainer/records/step_times.h"

// The checkpoints of a run (run_save.h).
typedef struct {
    uint64_t step;  // step of the last checkpoint written or resumed from
    bool evaluated; // that has the evaluation of its step
    CheckpointWriter writer;
    uint64_t started_ns; // start of the save that runs beside training
    double wait;         // of the save that runs beside training
    double seconds;      // of a save; 0: not measured
    double cost;         // of a save: the training time that it takes (save_interval_s); 0: not measured
    double last;         // of the save behind the last step, for which training waits (save_last_s); 0: not measured
    // Of checkpoint_interval, in steps and the same in all processes: the last save's, and the distance to the next; 0:
    // not planned.
    uint64_t begun, interval;
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

// The time at which the run is to be finished (until.h). The seconds are measured in this process.
typedef struct {
    struct json_t *line; // the last one of the record about it; read only with the key
    bool at_once;        // an earlier process has begun to cool down before its time
    bool now;
    clockid_t clock;
    double at;              // by this clock; 0: no time
    double recorded_at;     // by CLOCK_REALTIME
    double step_s;          // of the last steps; 0: not measured
    double evaluate_s;      // of the slowest evaluation, its report included, also of earlier processes
    double evaluate_step_s; // of a step at that time; 0: not measured
    double forecast_s;      // of an evaluation, if there was none
    double sample_s;
    double end_s;       // of all that follows the last step, as an earlier process has measured it
    double other_s;     // of evaluations since the last step
    uint64_t looked_ns; // before the last step
    unsigned steps;     // measured
} RunUntil;

// Its grades by items (run_items.h).
typedef struct {
    ItemsFile file;
    const Vocab *vocab; // NULL: the run is not graded
    uint64_t graded;    // the last step that was, 0: none; step 0 is not graded
    double best;        // the grade of state.graded_step; NAN: none by this file
} RunItems;

typedef struct {
    Engine engine;
    Lock lock;
    Metrics metrics;
    RunSaves saves;
    RunPace pace;
    RunUntil until;
    RunItems items;
    bool warned_of_targets; // that no target of a step counts
    bool stop_agreed;       // all processes of the run stop
} Run;

// `fresh` moves an earlier run in out_dir to a sub-directory; with `print_ranks` all processes print. -1 after fail():
// as engine_open.
int run_open(Run *run, const Config *config, bool fresh, bool print_ranks);
void run_close(Run *run); // accepts a zeroed struct

// Whether this process reads and writes the directory: it is rank 0, or has taken over from it.
static inline bool run_owns(const Run *run) { return run->lock.fd > 0; }
MetricsEnd run_metrics_end(const RunState *state);
// Whether the checkpoint that the run resumes from is of its last step.
static inline bool run_is_complete(const Run *run) {
    return *run->engine.begins_with && run->engine.state.step >= engine_end(&run->engine);
}
