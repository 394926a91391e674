// The distinct pieces of a text as one array of symbols, in which tokens grow by merges.
//
// A byte is one symbol of 32 bits. A token of several bytes has its id at its first and at its last byte and HOLE
// between, so that the tokens before and after a place are found without a search, and a token never moves. END is
// before, between and after the pieces. The pieces are sorted by falling count, so that the count of a place is a step
// function of the place.
#pragma once

#include "common/bytes.h"

#define SYMBOL_END  UINT32_MAX
#define SYMBOL_HOLE (UINT32_MAX - 1)
#define SYMBOLS_MAX ((uint64_t)UINT32_MAX - 2)

// The places below `end`, and not below the end of the region before, are in pieces that occur `count` times.
typedef struct {
    uint64_t count, end;
} TrainingRegion;

// While the pieces are announced, the number of their symbols; then where the next piece goes.
typedef struct {
    uint64_t count, symbols; // count 0: an empty slot
    uint64_t end;            // of the region
} TrainingCount;

typedef struct {
    uint32_t *symbols;
    uint64_t symbol_count, piece_count; // of pieces of two bytes and more
    uint64_t text_bytes;                // of all their occurrences, below TEXT_BYTES_MAX
    TrainingCount *counts;              // a hash table
    TrainingRegion *regions;
    uint64_t region_count, slot_count;
} TrainingText;

#define TEXT_BYTES_MAX (1ull << 62) // so that no sum of counts overflows

bool training_text_announce(TrainingText *text, size_t piece_bytes, uint64_t count); // false: beyond TEXT_BYTES_MAX
void training_text_begin(TrainingText *text);                            // after the last piece was announced
bool training_text_add(TrainingText *text, Bytes piece, uint64_t count); // false: it was not announced
void training_text_close(TrainingText *text);                            // accepts a zeroed struct

// The smallest count such that the pieces that occur as often have at most `symbols` symbols together.
uint64_t training_text_min_count(const TrainingText *text, uint64_t symbols);

// The region of a place, searched from the region of a lower place.
const TrainingRegion *training_region(const TrainingText *text, const TrainingRegion *from, uint64_t place);
