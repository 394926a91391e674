// The configuration of a run as in its checkpoint, against the present one.
#pragma once

#include "trainer/checkpoint/run_state.h"

// Whether a file of a checkpoint is there: -1 (66) when it is missing, 74 when it is an empty file, which no save
// leaves. Others than files are refused when they are opened.
int saved_file_check(const char *path);

// Reads state.json of a checkpoint; the other files are not looked at. -1 (65, 66, 74, ...) with the path in the
// message.
int saved_state_read(SavedState *saved, const char *directory);

bool saved_state_is_of(const SavedState *saved, const Config *config); // whether the model is the same

// -1 (2) with a list of the differences when the model or the order of samples differs. Other changes are logged.
int saved_state_compare(const SavedState *saved, const Config *config, const char *path);

// Sets the keys that define evaluation and sampling to the run's values: dtype, the size of an evaluation, and whether
// only the best checkpoints are saved.
void saved_state_settings(const SavedState *saved, Config *config);

// Sets the keys that neither a file nor a flag has set to the run's values. `origin`: where they come from.
void saved_state_fill(const SavedState *saved, ConfigReader *reader, const char *origin);

void saved_state_resolve_auto(const SavedState *saved, Config *config); // checkpoint_resolve_auto
