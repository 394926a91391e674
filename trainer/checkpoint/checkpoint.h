// Checkpoints: directories out_dir/ckpt-STEP, each complete or absent.
//
//   model.safetensors      fp32, Hugging Face GPT-2's names and layout (transformers loads the directory)
//   config.json            the model, in the format of transformers
//   optimizer.safetensors  the ranges that the optimizer's row names (adamw.m.NAME, adamw.v.NAME, muon.momentum.NAME),
//                          in our own layout: matrices of blocks are outputs x inputs, not transposed as in
//                          model.safetensors; with `ema` also the averaged weights (ema.NAME)
//   state.json             the rest of the run: RunState, the configuration, the hashes of the other files. The last
//                          key is "hash", of the text before its comma; model_hash and optimizer_hash are of the
//                          JSON headers of the .safetensors files, which have those of the tensors;
//                          model_config_hash is of config.json. All are XXH3-128, canonical
//   vocab.json, ...        the tokenizer for other tools (tokenizer_files.h), with characters.txt for its own: hard
//                          links to the files of the checkpoint before
#pragma once

#include "common/file/file.h"
#include "trainer/checkpoint/run_state.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/model/network.h"

// Replaces auto by the values of the newest checkpoint: dtype, recompute, and batch_size if it splits the same step. -1
// when it cannot be read; one that is damaged is reported when it is loaded.
int checkpoint_resolve_auto(const char *out_dir, Config *config);

// The bytes of a checkpoint: parameters and optimizer state (NULL: none) in fp32, and some for headers and JSON.
uint64_t checkpoint_bytes(const Model *model, const Optimizer *optimizer);

// The free bytes of the disk of a directory, or of the first of its parents that exists; `at` is set to its path. -1
// with errno.
int64_t checkpoint_space(const char *directory, char at[PATH_MAX_BYTES]);

// 74 when one checkpoint of `bytes` does not fit the disk of out_dir.
int checkpoint_check_space(const char *out_dir, uint64_t bytes);

// Removes all checkpoints but the last two, those of the lowest loss and of the highest grade, and that before the
// cooldown (schedule_cooldown): after a save, and at the start of a run, if a kill had left a part of one.
void checkpoint_rotate(const char *out_dir, const RunState *state, const Config *config);

// Writes out_dir/ckpt-STEP, and removes old ones. Does nothing if it exists. 73, and nothing is left, when out_dir is
// no longer the directory of the lock, before or after the files are written; NULL: not looked at.
int checkpoint_save(Network *network, const RunState *state, const Config *config, const char *out_dir,
                    const Lock *lock);

// The names and shapes of a model.safetensors. `all`: a model with biases, because transformers' GPT-2 always has them.
void checkpoint_name_tensors(SafeWriter *writer, const Model *all);

// Finds the newest undamaged checkpoint of out_dir; every byte is checked. Newer, damaged ones are renamed, with a
// warning. Returns 1 with its path and state, or 0 when there is no checkpoint, or -1: 65 when all are damaged, another
// code when one cannot be read (74, of permission 77, of descriptors 71, of memory 82), since it may be whole, 2 when
// the configuration has another model or order of samples (the message lists each difference). Damage is what was read
// and has another form or hash; a file that is not there, too, but not an empty one, which no save leaves.
int checkpoint_find(const char *out_dir, const Config *config, char path[PATH_MAX_BYTES], RunState *state);

// The same without renaming anything; config NULL: nothing is compared.
int checkpoint_newest(const char *out_dir, const Config *config, char path[PATH_MAX_BYTES], RunState *state);

// The checkpoint that `which` selects: "newest", "best" (the lowest validation loss), the number of a step, or "": the
// best of a run with always_save_checkpoint = False, as in nanoGPT, else the newest. `settings` gets the keys of the
// run that define evaluation and sampling. 1, 0 or -1 as checkpoint_find; 65 when the newest or the one of that step is
// damaged, 66 without a checkpoint of that step.
int checkpoint_select(const char *out_dir, const char *which, char path[PATH_MAX_BYTES], Config *settings);

// The checkpoint of one step: 1 with its path and state, or -1 (66 when it is missing, 65 when it is damaged).
int checkpoint_of_step(const char *out_dir, uint64_t step, char path[PATH_MAX_BYTES], RunState *state);

void checkpoint_path(char path[PATH_MAX_BYTES], const char *out_dir, uint64_t step);

// The newest checkpoint of a step up to `most`, by its name. One without state.json, whose removal was killed, does not
// count. false: no checkpoint.
bool checkpoint_up_to(const char *out_dir, uint64_t most, uint64_t *step);

// Whether checkpoint_rotate was killed while it removed the checkpoint of this step: it lacks state.json, and is
// neither one of the two newest nor the best.
bool checkpoint_is_remnant(const char *out_dir, uint64_t step);

// Compares a checkpoint with this state: every file that checkpoint_save would write. 1: they are the same; 0: `which`
// names a file that differs; -1 (65) when one is damaged.
int checkpoint_compare(Network *network, const RunState *state, const Config *config, const char *path,
                       const char **which);

// The newest checkpoint of out_dir by its name alone. false: out_dir has no checkpoint.
bool checkpoint_any(const char *out_dir, char path[PATH_MAX_BYTES], uint64_t *step);

// Checks the files of a model directory that a checkpoint has, if it is one: it has state.json. 65 when one is damaged.
int checkpoint_verify_model(const char *directory);

// Loads the tensors of a directory into the network and packs them, with `optimizer` also the moments, which are zero
// otherwise. A directory made by others needs model.safetensors, or model.safetensors.index.json and the files that it
// lists; tensors may be F32, F16 or BF16, and wpe may have more rows than the model's block. 65 when a tensor is
// missing, is damaged, does not fit, or is not part of the model.
int checkpoint_load(Network *network, const char *path, bool optimizer);
// The same for the averaged weights of a checkpoint of a run with `ema`; 2 if it has none.
int checkpoint_load_average(Network *network, const char *path);
// Writes them as the model.safetensors of the checkpoint would have them.
int checkpoint_write_average(const char *path, const char *to);
// The same for a model that lacks the last `added` ids of the network: their rows become the mean of the others, summed
// in double precision.
int checkpoint_load_model(Network *network, const char *path, unsigned added);
