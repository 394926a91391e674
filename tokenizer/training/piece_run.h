// Run files: distinct pieces with their counts, in the order of piece_counts.h.
//
//   "PIECERN1", then for each piece its count and its size as LEB128 numbers, and its bytes
//
// The CRC32C and the size of a file are in the journal of the run that wrote it.
#pragma once

#include "common/file/file.h"
#include "tokenizer/training/piece_counts.h"

typedef struct {
    uint64_t number; // in its name
    uint64_t bytes;
    uint32_t crc;
} PieceRun;

#define PIECE_RUN_PREFIX ".counts-"                                                  // of its name; the number follows
void piece_run_path(char path[PATH_MAX_BYTES], const char *folder, uint64_t number); // dies when it is too long

typedef struct {
    NewFile file;
    Buffer block; // not yet written
    PieceRun run;
} PieceRunWriter;

int piece_run_create(PieceRunWriter *writer, const char *folder, uint64_t number);
int piece_run_add(PieceRunWriter *writer, Bytes piece, uint64_t count);
int piece_run_finish(PieceRunWriter *writer, PieceRun *run); // the file is durable
void piece_run_abandon(PieceRunWriter *writer);              // accepts a finished or zeroed writer

// Writes the pieces of a table, and clears it.
int piece_run_write(PieceCounts *counts, const char *folder, uint64_t number, PieceRun *run);

// Merges runs: calls `take` with each piece and the sum of its counts, in order, which may fail (-1). 65 when a file
// has changed since it was written. 256 KiB of memory a run, and the longest piece.
int piece_runs_merge(const char *folder, const PieceRun *runs, size_t count,
                     int (*take)(void *context, Bytes piece, uint64_t count), void *context);
