// metrics.jsonl: one JSON object on each line, appended during the run. The first key of every line is "step".
#pragma once

#include "trainer/records/event_file.h"

typedef struct {
    int fd;
    char path[PATH_MAX_BYTES];
    uint64_t bytes;                          // of the lines in the file
    Buffer pending;                          // lines that could not be written yet, or are kept by metrics_follow
    bool follows;                            // of the last step alone
    uint64_t warned_ns;                      // time of the last warning about that
    EventFile events;                        // the same for TensorBoard, where it is open
    uint64_t lost_steps;                     // steps in the lines that were removed when it was opened
    uint64_t kept_step;                      // of the last line that was left in it then; of `pending` while it follows
    unsigned kills;                          // how often that was so before: lines with "lost_steps"
    void (*compare)(void *self, Bytes line); // set: receives each line, and nothing is written
    void *compare_self;
} Metrics;

// Opens out_dir/metrics.jsonl and truncates it to the lines of steps up to `step` (-1: none), because a resumed run
// writes the later ones again. The lines from the evaluation at `step` on are removed too, unless the run was saved
// after it (`evaluated`), and so is a torn last line. `events` adds an event file beside it.
int metrics_open(Metrics *metrics, const char *out_dir, int64_t step, bool evaluated, bool events);

// For a process that writes no lines while another one does: keeps those of its last step. When the other process has
// ended, metrics_take_over opens the file in its place and writes them as the lines of `step`, which may be missing.
void metrics_follow(Metrics *metrics);
int metrics_take_over(Metrics *metrics, const char *out_dir, uint64_t step, bool events);

// Appends one line: "step", then the members that `format` prints. Lines that cannot be written, as on a full disk, are
// kept with a warning once a minute, and written with a later line or by metrics_sync. Nothing happens where
// neither metrics_open nor metrics_follow was called, unless `compare` is set.
void metrics_add(Metrics *metrics, uint64_t step, const char *format, ...) __attribute__((format(printf, 3, 4)));

// Adds a line with lost_steps, which later calls of metrics_open count as a kill.
void metrics_add_lost(Metrics *metrics, uint64_t step);

int metrics_flush(Metrics *metrics);  // writes the kept lines; -1 after fail() when they could not be written
int metrics_sync(Metrics *metrics);   // the same, and waits until the disk has them
void metrics_close(Metrics *metrics); // accepts a zeroed struct

// The last step in out_dir/metrics.jsonl, also of a live run. False: there is none.
typedef struct {
    uint64_t step;
    double loss, tokens_per_s; // tokens_per_s: the median of the last 100 steps or fewer
} MetricsStep;
bool metrics_last(MetricsStep *last, const char *out_dir);

// The last line in it that has the member: "val_loss" of an evaluation, beside "step", "train_loss", "val_bpb", ...; "gpu_busy"
// of the GPU. NULL: there is none.
struct json_t *metrics_last_with(const char *out_dir, const char *member);
