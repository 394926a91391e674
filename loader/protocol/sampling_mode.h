// The table of the sampling modes, and their numbers for programs that only choose one. sampling.h specifies the modes.
#pragma once

#include <stdbool.h>

// One row per mode: MODE(NAME, name, number, ends, documents, blocks, group, token, ...)
//   name       the word in configurations
//   number     on the wire, and never used for a second mode. 1, 4 and 5 were epoch, shifted and documents of version
//              0.1, whose groups came from 8 places; 2 was never built.
//   ends       true: the samples end after one pass over the split; false: sample numbers are unlimited
//   documents  true: a row begins at the next start of a document (sampling.h)
//   blocks, group, token  the mode's functions in sampling.c
//   ...        passed through to MODE
#define SAMPLING_MODES(MODE, ...)                                                                                      \
    MODE(EPOCH, epoch, 6, false, false, epoch_blocks, epoch_group, epoch_token, __VA_ARGS__)                           \
    MODE(SHIFTED, shifted, 7, false, false, shifted_blocks, shifted_group, epoch_token, __VA_ARGS__)                   \
    MODE(DOCUMENTS, documents, 8, false, true, shifted_blocks, shifted_group, epoch_token, __VA_ARGS__)                \
    MODE(CROP, crop, 0, false, false, crop_blocks, crop_group, crop_token, __VA_ARGS__)                                \
    MODE(PERMUTED, permuted, 9, true, false, epoch_blocks, permuted_group, permuted_token, __VA_ARGS__)                \
    MODE(SEQUENTIAL, sequential, 3, true, false, epoch_blocks, sequential_group, sequential_token, __VA_ARGS__)

// With the mode that is not an order of training samples: the end of a split, for evaluations of every token.
#define SAMPLING_ALL_MODES(MODE, ...)                                                                                  \
    SAMPLING_MODES(MODE, __VA_ARGS__)                                                                                  \
    MODE(REST, rest, 10, true, false, rest_blocks, rest_group, rest_token, __VA_ARGS__)

#define SAMPLING_NUMBER(NAME, name, number, ...) SAMPLING_##NAME = (number),
typedef enum { SAMPLING_ALL_MODES(SAMPLING_NUMBER, ) } Sampling;

bool sampling_ends(unsigned number); // the column of the mode with this number; false for a number without a mode

// SAMPLING_MODES(SAMPLING_WORD, W) is W(SAMPLING_EPOCH, "epoch") and so on, for the words of a configuration key.
#define SAMPLING_WORD(NAME, name, number, ends, documents, blocks, group, token, W) W(SAMPLING_##NAME, #name)
