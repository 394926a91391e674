// Checkpoints: directories out_dir/ckpt-STEP, each complete or absent.
//
//   model.safetensors      fp32, Hugging Face GPT-2's names and layout (transformers loads the directory)
//   config.json            the model, as transformers wants it
//   optimizer.safetensors  the ranges that the optimizer's row names (adamw.m.NAME, adamw.v.NAME), in our own layout
//   state.json             the rest of the run: what RunState holds, the configuration, the hashes of the other files;
//                          its last key is the hash of the text before it
#pragma once

#include "common/file.h"
#include "trainer/model/network.h"
#include "trainer/optim/loss_scaler.h"

enum { DATASETS_MAX = 16, CHANGES_MAX = 64 };

typedef struct {
    uint8_t fingerprint[32];
    char name[64];
    uint64_t consumed; // training samples
} DatasetUse;

typedef struct {
    uint64_t step, consumed; // samples the new dataset had given before
    uint8_t old[32], new[32];
} DatasetChange;

// Everything of a run besides its tensors. A step is a function of this, the tensors, the configuration and the data.
typedef struct {
    uint64_t step;                           // optimizer steps done, those not applied included
    uint64_t updates;                        // applied
    uint64_t nonfinite, nonfinite_streak;    // steps not applied: in all, and the last ones without a break
    LossScaler scaler;                       // of the loss
    bool evaluated;                          // at this very step
    double first_loss, last_loss, best_loss; // of the validation split, NAN: none; last: at this very step
    uint64_t best_step;                      // of the checkpoint with best_loss
    uint8_t vocab_fp[32];
    DatasetUse datasets[DATASETS_MAX];
    int dataset_count, dataset;         // dataset: the current one
    DatasetChange changes[CHANGES_MAX]; // the data log, oldest first; the last CHANGES_MAX of it
    int change_count;
    bool rolled_back;            // once a run: then 81
    uint64_t skip_from, skip_to; // samples to pass over: those that gave no finite gradients
} RunState;

void state_open(RunState *state); // of a run that has not begun

// Gives keys that are auto the values that the newest checkpoint's run had: dtype and recompute, and batch_size where
// it cut the same steps.
void checkpoint_chosen(const char *out_dir, Config *config);

// Writes out_dir/ckpt-STEP and then removes all but the last two and the best. Does nothing when it is there already.
int checkpoint_save(Network *network, const RunState *state, const Config *config, const char *out_dir);

// The newest checkpoint of out_dir that is whole, each byte checked; those that are not are set aside with a warning.
// 1: found, its path and state are given; 0: there is none; -1: 65 when there are some and all are damaged, 2 when the
// configuration asks for another model or order of samples (with each difference).
int checkpoint_find(const char *out_dir, const Config *config, char path[PATH_MAX_BYTES], RunState *state);

// The same for who only reads: nothing is compared or set aside.
int checkpoint_newest(const char *out_dir, char path[PATH_MAX_BYTES], RunState *state);

// Any checkpoint of out_dir, unread. false: there is none.
bool checkpoint_any(const char *out_dir, char path[PATH_MAX_BYTES], uint64_t *step);

// The tensors of a directory into the network, packed. With `optimizer` the moments too, else they stay zero. Foreign
// directories (init_from) need only model.safetensors: 65 when a tensor lacks or has another shape or type.
int checkpoint_load(Network *network, const char *path, bool optimizer);

// Sets the model's keys from a directory's config.json, a foreign one too. 65, or 76 when the vocabulary is not
// GPT-2's.
int checkpoint_config(const char *path, Config *config);
