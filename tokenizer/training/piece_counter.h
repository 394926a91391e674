// Counts the pieces of documents. A full table is written to a run file, and counting continues with an empty one.
#pragma once

#include "tokenizer/merge/pattern.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/training/piece_run.h"

// Shared by all counters of a run.
typedef struct {
    Pattern pattern;
    InvalidUtf8 invalid;
    uint64_t max_word;
    uint64_t memory; // of one counter
    // Writes the table, which is full, and clears it. -1 after fail().
    int (*flush)(void *context, PieceCounts *counts);
    void *context;
} PieceCounterOptions;

// One thread's counter.
typedef struct PieceCounter PieceCounter;
enum { PIECE_COUNTER_MEMORY = PIECE_COUNTS_MEMORY + (1 << 19) };      // the least
PieceCounter *piece_counter_open(const PieceCounterOptions *options); // `options` is borrowed
void piece_counter_close(PieceCounter *counter);                      // accepts NULL

// Counts the pieces of a text that begins and ends at the edge of a document, or where pretokenize_cut cuts one; it has
// PIECE_PADDING bytes after it. `offset`: of the text in its document, for errors. -1 after fail().
int piece_counter_add(PieceCounter *counter, Bytes text, uint64_t offset);

int piece_counter_flush(PieceCounter *counter); // writes the counted pieces, if any
uint64_t piece_counter_pieces(const PieceCounter *counter);
uint64_t piece_counter_replaced(const PieceCounter *counter); // U+FFFD counted for invalid bytes
