// The table of the sampling modes, and their numbers for programs that only choose one. See sampling.h for what they
// mean.
#pragma once

// One row per mode: MODE(NAME, name, number, ends, documents, ...)
//   name       the word in configurations. sampling.c defines name_blocks, name_group and name_token.
//   number     on the wire, and never used for a second mode. 2 is not assigned: protocol version 1 reserved it for
//              a mode that was never built.
//   ends       true: the samples end after one pass over the split; false: sample numbers are unlimited
//   documents  true: a row begins at the next start of a document (sampling.h)
//   ...        passed through to MODE
#define SAMPLING_MODES(MODE, ...)                                                                                      \
    MODE(EPOCH, epoch, 1, false, false, __VA_ARGS__)                                                                   \
    MODE(SHIFTED, shifted, 4, false, false, __VA_ARGS__)                                                               \
    MODE(DOCUMENTS, documents, 5, false, true, __VA_ARGS__)                                                            \
    MODE(CROP, crop, 0, false, false, __VA_ARGS__)                                                                     \
    MODE(SEQUENTIAL, sequential, 3, true, false, __VA_ARGS__)

#define SAMPLING_NUMBER(NAME, name, number, ...) SAMPLING_##NAME = (number),
typedef enum { SAMPLING_MODES(SAMPLING_NUMBER, ) } Sampling;

// SAMPLING_MODES(SAMPLING_WORD, W) is W(SAMPLING_EPOCH, "epoch") and so on, for the words of a configuration key.
#define SAMPLING_WORD(NAME, name, number, ends, documents, W) W(SAMPLING_##NAME, #name)
