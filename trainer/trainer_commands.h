// The commands of trainer, and what they share.
#pragma once

#include "common/cli.h"
#include "common/file.h"
#include "trainer/config/config.h"
#include "trainer/model/network.h"

extern const Command cmd_train, cmd_plan, cmd_eval, cmd_sample, cmd_status;

// Keeps --key=value of the configuration for config_read.
extern const MoreOptions config_options;
// Files, then the flags taken. Says what is ignored. -1 (2) after printing every mistake.
int config_read(ConfigReader *reader, int count, char **files);

// A model on a backend, for commands that only look at a trained one: from the newest checkpoint of out_dir, else from
// init_from. Takes the model's keys from there.
typedef struct {
    Model model;
    MemoryPlan plan;
    Network network;
    char path[PATH_MAX_BYTES]; // of the checkpoint
} Trained;
int trained_open(Trained *trained, Config *config);
void trained_close(Trained *trained); // accepts a zeroed struct

// The backend by the configuration, with one line saying which and why. NULL after fail().
const Backend *backend_for(const Config *config, bool facts_only);

// Continues `start`: the whole text, appended to `out`.
int sample_text(Network *network, const char *start, uint64_t tokens, double temperature, uint64_t top_k, uint64_t seed,
                uint64_t stream, Buffer *out);
