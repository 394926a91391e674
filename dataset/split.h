// The splits of a dataset. The loader's protocol uses the same numbers (wire.h).
#pragma once

enum { SPLIT_TRAIN, SPLIT_VAL, SPLIT_COUNT };
extern const char *const split_names[SPLIT_COUNT]; // "train", "val"
