// state.json of a checkpoint, to and from text.
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include <jansson.h>

typedef struct {
    uint8_t model[SAFE_HASH_BYTES], optimizer[SAFE_HASH_BYTES]; // of the headers, which hold the hashes of the tensors
    uint8_t model_config[SAFE_HASH_BYTES];                      // of config.json
    bool has_model_config;                                      // checkpoints of version 0.1.0 lack it
} CheckpointHashes;

typedef struct {
    RunState state;
    CheckpointHashes hashes;
    json_t *config; // the values of the keys as text
} SavedState;

void state_print(const RunState *state, const Config *config, const CheckpointHashes *hashes, Buffer *out);
int state_parse(SavedState *saved, Bytes text); // 65 when damaged or written by a newer program
void saved_close(SavedState *saved);            // accepts a zeroed struct

// -1 (2) with a list of the differences when the model or the order of samples differs. Other changes are logged.
int saved_compare(const SavedState *saved, const Config *config, const char *path);

// Sets the keys that define evaluation and sampling as the run had them: dtype, the size of an evaluation, and whether
// only the best checkpoints are saved.
void saved_settings(const SavedState *saved, Config *config);

void hash_text(const void *text, size_t size, uint8_t hash[SAFE_HASH_BYTES]);

void saved_resolve_auto(const SavedState *saved, Config *config); // checkpoint_resolve_auto
