// metrics.jsonl: one JSON object on each line, appended during the run. The first member of every line is "step", the
// number of steps that the run had done; it never decreases. The second member gives the kind of the line:
//
//   loss              a step: its loss, the mean over its targets that count, in nats, with z_loss added; null: not
//                     finite
//     targets         loss_tokens=answers only: targets that count; 0: loss and norm are null, and nothing is applied
//     norm            norm of the gradient before it was clipped; null: not finite
//     loss_scale      float16 only
//     lr              learning rate
//     first_sample    the step has this sample of the dataset and those after it (which finds their documents)
//     chain           its link in the hash chain, in hex
//     ms, tok_s       milliseconds of the step; its tokens a second, of all processes
//     product_share   its FLOPs a second, by the rate of a large matrix product on all devices, measured at the start
//     wait            percent of ms in which no batch was there
//     sent            several processes only: bytes that this one has sent in the step
//   val_loss          an evaluation, its losses as above; train_loss: of training samples
//     ema_val_loss, ema_train_loss   of the averaged weights, with ema; not before the first update
//     val_bpb, train_bpb   bits per byte of text; null: the targets have no text, or the loss is not finite
//     val/NAME, train/NAME   losses of the sources of a mixture
//     epochs          training tokens so far by the dataset's; not of a mixture
//     eval_rule       16 hex digits; only losses of the same rule compare
//   dataset           the name of the dataset that the next step reads; written at the start and after a change
//     fingerprint     its own, in hex
//     sources         of a mixture: name and weight of each, of 65,536, or its tokens if `sampling` reads all as one
//                     split
//     weights_from    the weights changed and hold from this sample on
//     old, consumed   after a change: the fingerprint before it, and the samples that the run has taken of the new one
//   arena_bytes       a process has begun: the memory of its plan
//     world           number of processes
//     bits            version of the arithmetic of a step; 1 before the member was written
//     answer_share    loss_tokens=answers, and the dataset is on this machine: of the ids of answers, those that the
//                     first epoch counts
//     version, config   of the trainer; the configuration, as in a checkpoint
//     machine         what computes the bits: the first line of choices in state.json
//     data or loader  the dataset's folder, or the endpoint of a loader
//   spike             standard deviations of the loss or norm of this step above those before; applied: whether it was
//                     updated
//   cooldown_begun    until only: the step from which the rate falls; a replay takes it from here
//     cooldown_steps  steps that are left of the fall, from the line's own step on
//     cooldown_done   the part of the fall before that step; above 0 where its length was changed
//     at_once         the fall began before its time
//     end_s           seconds that evaluation, save and sample after the last step are expected to take
//   until             as given; until_at: that time in seconds since 1970
//   evaluate_s        until only: seconds of the slowest evaluation so far, its report included
//     evaluate_step_s seconds of a step at that time, 0: not known
//   branched_from     the run goes on from this checkpoint of another one, whose lines are those before
//   saved_step        a checkpoint of this step is on the disk; save_ms: the time of its save
//   save_wait_ms      milliseconds that training has waited for a save that runs beside it
//   lost_steps        steps that an earlier process has done and not saved: killed, or ended by an error
//   rolled_back_from  after steps that were not finite: the step before; nonfinite: how many in all; skip_from,
//                     skip_to: the samples from skip_from to skip_to - 1 will be left out
//   passed_from       the samples from passed_from to passed_to - 1 were left out
//   step_time_ratio   the median of the last steps by the usual one, when it has become slow or usual again
//   processor_lost    the share of the time that the process could use in which other programs had the processor, in
//                     the last 32 steps: if it is above 0.2, and once when it no longer is
//   gpu_used_bytes, gpu_free_bytes, gpu_busy   of the GPU, by all its processes, if its driver tells; busy is 0 to 1
//   sample            text that the model continued
//   items_accuracy    a grade by items: the share of right items, the mean of its tasks; items-STEP.jsonl has each
//     items_sha256    of the file of items; only grades of the same file compare
//     items_best, items_best_step   the highest of these grades so far, and its step
//     items/TASK      the share of a task
//
// A resumed run removes the lines after its checkpoint and writes them again, so the file holds each step once.
#pragma once

#include "trainer/records/event_file.h"

// The state that a run continues from: which lines of the record were written before it was saved.
typedef struct {
    int64_t step;      // -1: nothing
    bool evaluated;    // the evaluation of `step`
    bool rolled_back;  // a roll-back to `step`
    uint64_t consumed; // samples of the dataset, those passed over included
} MetricsEnd;

typedef struct {
    int fd;
    char path[PATH_MAX_BYTES];
    uint64_t bytes;      // of the lines in the file
    Buffer pending;      // lines that could not be written yet, or are kept by metrics_follow
    bool follows;        // of the last step alone
    MetricsEnd begun;    // metrics_follow's
    uint64_t warned_ns;  // time of the last warning about that
    EventFile events;    // the same for TensorBoard, if it is open
    uint64_t lost_steps; // steps in the lines that were removed when it was opened
    uint64_t kept_step;  // of the last line that was left in it then; of `pending` while it follows
    unsigned kills;      // how often that was so before: lines with "lost_steps"
} Metrics;

// Opens out_dir/metrics.jsonl and truncates it to the lines up to `end`, because a resumed run writes the later ones
// again. From the lines of the step itself, those from the first on that was written later are removed, and so is a
// torn last line. `events` adds an event file beside it.
int metrics_open(Metrics *metrics, const char *out_dir, MetricsEnd end, bool events);

// Writes out_dir/metrics.jsonl: the lines of another run up to `end`, which it may not have, and a line with `members`.
int metrics_copy(const char *out_dir, const char *run, MetricsEnd end, Bytes members);

// For a process that writes no lines while another process does: keeps its last step's, from `begun` on, where the run
// continues. When the other process has ended, metrics_take_over opens the file in its place and writes them as the
// lines of `step`, which may be missing. Those of the step of `begun` were written before, and stay.
void metrics_follow(Metrics *metrics, MetricsEnd begun);
int metrics_take_over(Metrics *metrics, const char *out_dir, uint64_t step, bool events);

// Appends one line: "step", then the members that `format` prints. Lines that cannot be written, as on a full disk, are
// kept with a warning once a minute, and written with a later line or by metrics_sync. Nothing happens if neither
// metrics_open nor metrics_follow was called.
void metrics_add(Metrics *metrics, uint64_t step, const char *format, ...) __attribute__((format(printf, 3, 4)));
void metrics_add_members(Metrics *metrics, uint64_t step, Bytes members); // as `, "KEY": VALUE, "KEY": VALUE`

// Adds a line with lost_steps, which later calls of metrics_open count as a kill.
void metrics_add_lost(Metrics *metrics, uint64_t step);

// If somebody has removed the file, creates it for the kept and later lines. Another run may have made the directory
// anew: call it only while the lock of the directory is held. -1 after fail().
int metrics_replace(Metrics *metrics);

// Writes the kept lines, but not the event file's; -1 after fail() when they could not be written.
int metrics_flush(Metrics *metrics);
int metrics_sync(Metrics *metrics);   // the same, and waits until the disk has them
void metrics_close(Metrics *metrics); // accepts a zeroed struct

// Whether a last line without a line feed can be one that a killed process has left torn.
bool metrics_is_part(Bytes line);

// The last step in out_dir/metrics.jsonl, also of a live run. False: no step.
typedef struct {
    uint64_t step;
    double loss, tokens_per_s; // tokens_per_s: the median of the last 100 steps or fewer
} MetricsStep;
bool metrics_last(MetricsStep *last, const char *out_dir);

// The last line in it that has the member: "val_loss" of an evaluation, beside "step", "train_loss", "val_bpb", ...;
// "gpu_busy" of the GPU. NULL: no such line.
struct json_t *metrics_last_with(const char *out_dir, const char *member);
// The last line that has one of two members.
struct json_t *metrics_last_of(const char *out_dir, const char *member, const char *other);

// The step with the highest grade by items, of the last grade up to the step `most`. 0: no grade.
uint64_t metrics_graded(const char *out_dir, uint64_t most);
