// Text to pieces, by GPT-2's pattern:
//   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// No piece is ever merged with another, so each can be encoded by itself.
#pragma once

#include "common/bytes.h"

enum { SPLIT_BATCH = 512, SPLIT_ROOM = SPLIT_BATCH + 128 };

// Walks over one text of less than 4 GiB, a batch of pieces a call.
typedef struct {
    Bytes text;
    size_t at;
} Splitter;

static inline Splitter splitter_of(Bytes text) { return (Splitter){text, 0}; }

// Writes where the next pieces start, at most SPLIT_BATCH, and behind them where the last one ends (so starts has
// SPLIT_ROOM). Returns how many pieces that are, 0 at the end of the text. Bytes that are not UTF-8 are CLASS_OTHER.
size_t split_next(Splitter *splitter, uint32_t *starts);

// A place to cut text in two that are split as the whole is: the last such place in [from, text.size), or 0. Nothing
// behind the text can change it, and no character is cut.
size_t split_cut(Bytes text, size_t from);
