// Checkpoints: directories out_dir/ckpt-STEP, each complete or absent.
//
//   model.safetensors      fp32, Hugging Face GPT-2's names and layout (transformers loads the directory)
//   config.json            the model, in the format of transformers
//   optimizer.safetensors  the ranges that the optimizer's row names (adamw.m.NAME, adamw.v.NAME), in our own layout
//   state.json             the rest of the run: what RunState holds, the configuration, the hashes of the other files;
//                          its last key is the hash of the text before it
#pragma once

#include "common/file/file.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/model/network.h"
#include "trainer/optim/loss_scaler.h"
#include "trainer/optim/spikes.h"

enum { DATASETS_MAX = 16, CHANGES_MAX = 64 };

typedef struct {
    uint8_t fingerprint[32];
    char name[64];
    uint64_t consumed; // training samples
} DatasetUse;

typedef struct {
    uint64_t step, consumed; // samples of the new dataset consumed before the change
    uint8_t old[32], new[32];
} DatasetChange;

// The state of a run besides its tensors. A step is a function of this state, the tensors, the configuration and the
// data.
typedef struct {
    uint64_t step;                        // steps done, including those whose update was not applied
    uint64_t updates;                     // steps whose update was applied
    uint64_t tokens;                      // tokens trained on
    uint64_t nonfinite, nonfinite_streak; // steps that were not finite: all, and consecutive ones up to `step`
    LossScaler scaler;
    SpikeWindow spikes;
    bool evaluated;                          // an evaluation was made at `step`
    double first_loss, last_loss, best_loss; // validation loss at step 0, at `step`, and the lowest; NAN: none
    uint64_t best_step;                      // step with best_loss
    uint8_t vocab_fp[32];
    DatasetUse datasets[DATASETS_MAX];
    int dataset_count, dataset;         // dataset: the current one
    DatasetChange changes[CHANGES_MAX]; // the last CHANGES_MAX changes of the dataset, oldest first
    int change_count;
    bool rolled_back;            // a second roll-back ends the run (81)
    uint64_t skip_from, skip_to; // samples to skip, whose gradients were not finite
    char choices[CHOICES_BYTES]; // of the backend, by timing: the bits of a step depend on them (backend.h)
} RunState;

void state_open(RunState *state); // a run before its first step

// Replaces auto by the values of the newest checkpoint: dtype, recompute, and batch_size if it splits the same step.
void checkpoint_resolve_auto(const char *out_dir, Config *config);

// Writes out_dir/ckpt-STEP, then removes all checkpoints but the last two and the best. Does nothing if it exists.
int checkpoint_save(Network *network, const RunState *state, const Config *config, const char *out_dir);

// The names and shapes of a model.safetensors. `all`: a model with biases, because transformers' GPT-2 always has them.
void checkpoint_name_tensors(SafeWriter *writer, const Model *all);

// Finds the newest undamaged checkpoint of out_dir; every byte is checked. Newer, damaged ones are renamed, with a
// warning. Returns 1 with its path and state, or 0 when there is no checkpoint, or -1: 65 when all are damaged, 77, 71
// or 82 when one cannot be read for want of permission, descriptors or memory, 2 when the
// configuration has another model or order of samples (the message lists each difference).
int checkpoint_find(const char *out_dir, const Config *config, char path[PATH_MAX_BYTES], RunState *state);

// The same without comparing the configuration and without renaming anything.
int checkpoint_newest(const char *out_dir, char path[PATH_MAX_BYTES], RunState *state);

// The checkpoint that `which` selects: "newest", "best" (the lowest validation loss), the number of a step, or "": the
// best of a run with always_save_checkpoint = False, as in nanoGPT, else the newest. `settings` gets the keys of the
// run that define evaluation and sampling. 1, 0 or -1 as checkpoint_find; 66 without a checkpoint of that step.
int checkpoint_select(const char *out_dir, const char *which, char path[PATH_MAX_BYTES], Config *settings);

// The newest checkpoint of out_dir by its name alone. false: there is none.
bool checkpoint_any(const char *out_dir, char path[PATH_MAX_BYTES], uint64_t *step);

// Loads the tensors of a directory into the network and packs them, with `optimizer` also the moments, which are zero
// otherwise. A directory made by others needs model.safetensors, or model.safetensors.index.json and the files that it
// lists; tensors may be F32, F16 or BF16, and wpe may have more rows than the model's block. 65 when a tensor is
// missing, does not fit, or is not part of the model.
int checkpoint_load(Network *network, const char *path, bool optimizer);
