// The JSON documents of a checkpoint: state.json and config.json, to and from text.
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include <jansson.h>

typedef struct {
    uint8_t model[SAFE_HASH_BYTES], optimizer[SAFE_HASH_BYTES]; // of the headers, which hash the tensors
} CheckpointHashes;

typedef struct {
    RunState state;
    CheckpointHashes hashes;
    json_t *config; // the keys' values as text
} SavedState;

void state_print(const RunState *state, const Config *config, const CheckpointHashes *hashes, Buffer *out);
int state_parse(SavedState *saved, Bytes text); // 65 when damaged or written by a newer program
void saved_close(SavedState *saved);            // accepts a zeroed struct

// 2 with every difference when the model or the order of samples would be another; other changes are only said.
int saved_compare(const SavedState *saved, const Config *config, const char *path);

void saved_choices(const SavedState *saved, Config *config); // checkpoint_chosen

// As transformers' GPT2Config has it.
void model_config_print(const ModelShape *shape, Buffer *out);
