// A trained model on a backend, for commands that evaluate it or sample from it.
#pragma once

#include "common/file/file.h"
#include "trainer/config/config.h"
#include "trainer/model/network.h"

typedef struct {
    Model model;
    MemoryPlan plan;
    Network network;
    char path[PATH_MAX_BYTES]; // of the checkpoint
    bool average;              // its averaged weights
} Trained;

// The words of --ckpt, and what it selects.
#define TRAINED_WHICH "newest|best|graded|STEP[:ema]"
#define TRAINED_MEANING                                                                                                \
    "checkpoint; without it the newest, or the best if only the best are saved; best has the lowest validation loss, " \
    "graded the highest grade by items; :ema takes its averaged weights"

// Finds the model that trained_open loads, and sets the keys as it does. `average`: `which` ends with ":ema". -1 after
// fail().
int trained_find(char path[PATH_MAX_BYTES], bool *average, ConfigReader *reader, const char *which);

// Loads the checkpoint of out_dir that `which` selects (checkpoint_select), or the directory that init_from names when
// there is no checkpoint or init_from was set and out_dir was not. If both are set, --init_from wins over a run that
// began from another model, and the run over the init_from of its own configuration file; else 2. The keys of the model
// are set from its config.json, and the keys of evaluation and sampling that the user has not set from the run. -1
// after fail().
int trained_open(Trained *trained, ConfigReader *reader, const char *which);
// Sets the training samples of a dataset that the run had consumed at the checkpoint; 0: none, or not a checkpoint of a
// run. -1 after fail() when its state cannot be read now.
int trained_consumed(const Trained *trained, const FeedDataset *dataset, uint64_t *consumed);
void trained_close(Trained *trained); // accepts a zeroed struct
