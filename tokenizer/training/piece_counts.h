// Counts of distinct pieces: a hash table with a limit of memory. Used by one thread.
//
// Pieces are ordered by hash, then by size, then by bytes. The table is nearly in this
// order, and a run file (piece_run.h) is in it, so tables and runs are merged without a sort.
#pragma once

#include "common/bytes.h"

enum { PIECE_PADDING = 16 }; // bytes that can be read after a piece

uint64_t piece_hash(Bytes piece); // reads PIECE_PADDING bytes after it

typedef struct {
    uint64_t key[2]; // a short piece, zeros, and its size in the last byte; or the hash, and the offset of a long piece
    uint64_t count;  // 0: empty
} PieceCount;

typedef struct {
    PieceCount *slots;
    uint64_t slot_count, used; // 1 << (64 - shift) slots, and a few after them
    unsigned shift;
    Buffer long_pieces; // u64 size, bytes, padding
    uint64_t memory;    // limit of all of it, also while it grows

} PieceCounts;

// The smallest limit.
enum { PIECE_COUNTS_MEMORY = 1 << 20 };

void piece_counts_open(PieceCounts *counts, uint64_t memory);
void piece_counts_close(PieceCounts *counts); // accepts a zeroed struct

// Counts the pieces text[starts[i] .. starts[i + 1]). Returns how many were counted: fewer than `count` when the table
// is full. An empty table always takes at least one.
size_t piece_counts_add(PieceCounts *counts, const uint8_t *text, const uint32_t *starts, size_t count);

// Moves the pieces, in order, to the first slots, and returns their number. After that only piece_count_bytes and
// piece_counts_clear may be called.
uint64_t piece_counts_sort(PieceCounts *counts);
Bytes piece_count_bytes(const PieceCounts *counts, const PieceCount *slot); // padded; valid while the slot is
void piece_counts_clear(PieceCounts *counts);
