// The table of the sampling modes, and their numbers for programs that only choose one. See sampling.h for what they
// mean.
#pragma once

// One row per mode: MODE(NAME, name, number, ends, seeded_groups, ...)
//   name           the word in configurations. sampling.c defines name_blocks, name_group and name_token.
//   number         on the wire, and never used for a second mode. 2 is not assigned: protocol version 1 reserved it for
//                  a mode that was never built.
//   ends           true: the samples end after one pass over the split; false: sample numbers are unlimited
//   seeded_groups  true: the extents of a group depend on the seed, so that two seeds share no decoded frames
//   ...            passed through to MODE
#define SAMPLING_MODES(MODE, ...)                                                                                      \
    MODE(EPOCH, epoch, 1, false, true, __VA_ARGS__)                                                                    \
    MODE(CROP, crop, 0, false, false, __VA_ARGS__)                                                                     \
    MODE(SEQUENTIAL, sequential, 3, true, false, __VA_ARGS__)

#define SAMPLING_NUMBER(NAME, name, number, ...) SAMPLING_##NAME = (number),
typedef enum { SAMPLING_MODES(SAMPLING_NUMBER, ) } Sampling;

// SAMPLING_MODES(SAMPLING_WORD, W) is W(SAMPLING_EPOCH, "epoch") and so on, for the words of a configuration key.
#define SAMPLING_WORD(NAME, name, number, ends, seeded_groups, W) W(SAMPLING_##NAME, #name)
