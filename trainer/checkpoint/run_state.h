// The state of a run besides its tensors, and state.json of a checkpoint, to and from text.
#pragma once

#include "kernels/backend.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/optim/loss_scaler.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/spikes.h"

// BITS: the version of the arithmetic of a step, which rises when a step of the same state has other bits than before.
// state.json and the record of a run have it; without it a run has version 1.
enum { DATASETS_MAX = 16, CHANGES_MAX = 64, CHAIN_RULE = 2, BITS = 2 };

typedef struct {
    uint8_t fingerprint[32];
    char name[64];
    uint64_t consumed; // training samples
} DatasetUse;

typedef struct {
    uint64_t step, consumed; // samples of the new dataset consumed before the change
    uint8_t old[32], new[32];
} DatasetChange;

// A step is a function of this state, the tensors, the configuration and the data.
typedef struct {
    uint64_t step;                        // steps done, including those whose update was not applied
    uint64_t updates;                     // steps whose update was applied
    uint64_t tokens;                      // tokens trained on
    uint8_t chain[32];                    // the link of `step` (trainer/engine/chain.h); zero: before the first step
    uint64_t chain_rule;                  // CHAIN_RULE; 0: of a run that an earlier version began
    uint64_t bits;                        // BITS of the last step
    uint64_t sampling;                    // number of the sampling mode (sampling_mode.h); 0 in version 0.1.0
    uint64_t nonfinite, nonfinite_streak; // steps that were not finite: all, and consecutive ones up to `step`
    LossScaler scaler;
    SpikeWindow spikes;
    Cooldown cooldown;
    bool evaluated;                          // an evaluation was made at `step`
    double first_loss, last_loss, best_loss; // validation loss at step 0, at `step`, and the lowest; NAN: none
    uint64_t best_step;                      // step with best_loss
    uint64_t graded_step;                    // with the highest grade (run_items.h), 0: none; not in state.json
    uint64_t eval_rule;                      // of best_loss (evaluation.h); 0 in version 0.1.0
    uint8_t vocab_fp[32];
    DatasetUse datasets[DATASETS_MAX];
    int dataset_count, dataset;         // dataset: the current one
    DatasetChange changes[CHANGES_MAX]; // the last CHANGES_MAX changes of the dataset, oldest first
    int change_count;
    bool rolled_back;              // a second roll-back ends the run (81)
    uint64_t skip_from, skip_to;   // samples to skip, whose gradients were not finite
    char choices[CHOICES_BYTES];   // of the backend: the bits of a step depend on them (backend.h)
    char init_from[CHOICES_BYTES]; // directory of the initial weights, cut to fit; "": scratch
} RunState;

void run_state_init(RunState *state); // a run before its first step

// The samples that the run took while this was its dataset. `consumed` also has those before a change of the weights
// alone (loader swap :WEIGHT), which makes another dataset that continues with the samples.
uint64_t run_state_own_samples(const RunState *state, int dataset);

typedef struct {
    uint8_t model[SAFE_HASH_BYTES], optimizer[SAFE_HASH_BYTES]; // of the headers, which hold the hashes of the tensors
    uint8_t model_config[SAFE_HASH_BYTES];                      // of config.json
    bool has_model_config;                                      // checkpoints of version 0.1.0 lack it
} CheckpointHashes;

typedef struct {
    RunState state;
    CheckpointHashes hashes;
    struct json_t *config; // the values of the keys as text
} SavedState;

// The configuration as in a checkpoint: a JSON object of texts. A number or word behind the word of a key, as in
// mlp=gelu:tanh, is under a name of its own, as gelu.
struct json_t *run_state_config(const Config *config);
// The keys of it that a run cannot change, a line KEY=VALUE for each.
void run_state_print_fixed(const Config *config, Buffer *out);
// To such an object, read from a checkpoint or a record: the keys that it has only with values other than the default.
void run_state_add_defaults(struct json_t *config);
// To the keys and words of this version, if an earlier one wrote it.
void run_state_upgrade(struct json_t *config);
// Whether two texts of state.json have the same values. Both are valid, and an earlier version may have written one.
bool run_state_same(Bytes text, Bytes other);

void run_state_print(const RunState *state, const Config *config, const CheckpointHashes *hashes, Buffer *out);
int saved_state_parse(SavedState *saved, Bytes text); // 65 when damaged or written by a newer program
void saved_state_close(SavedState *saved);            // accepts a zeroed struct
