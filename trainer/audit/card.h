// The card of an exported model, README.md: its training data and settings, and the hashes by which they can be
// checked.
#pragma once

#include "common/file/file.h"

// Writes README.md into `exported`, the complete directory of a model that was made of `checkpoint`, of a model of
// `parameters` parameters with this name. -1 after fail(): 66 when it is not a checkpoint of a run.
int card_write(const char *exported, const char *checkpoint, const char *name, uint64_t parameters, bool inputs);
