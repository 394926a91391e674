// The splits of a dataset. Their numbers are also those of the loader's protocol (wire.h).
#pragma once

enum { SPLIT_TRAIN, SPLIT_VAL, SPLIT_COUNT };
extern const char *const split_names[SPLIT_COUNT]; // "train", "val"
