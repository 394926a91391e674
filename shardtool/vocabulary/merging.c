// Reads the run file twice: to know the memory that the pieces need, and to fill it.
#include "shardtool/vocabulary/merging.h"
#include <stdlib.h>

typedef struct {
    const MergingOptions *options;
    BpeTraining *training;
    uint64_t pieces;
} PieceTaker;

static int announce_piece(void *context, Bytes piece, uint64_t count) {
    PieceTaker *taker = context;
    if (count < taker->options->min_count) return 0;
    taker->pieces++;
    return bpe_training_announce(taker->training, piece.size, count);
}

static int add_piece(void *context, Bytes piece, uint64_t count) {
    const PieceTaker *taker = context;
    return count < taker->options->min_count ? 0 : bpe_training_add(taker->training, piece, count);
}

static void show(void *progress, uint32_t count) { progress_update(progress, count); }

int merging_run(const MergingOptions *options, Merging *merging) {
    *merging = (Merging){0};
    PieceTaker taker = {.options = options, .training = bpe_training_open(options->memory, options->merges)};
    int status = piece_runs_merge(options->folder, &options->run, 1, announce_piece, &taker);
    if (status == 0) status = bpe_training_begin(taker.training);
    if (status == 0) status = piece_runs_merge(options->folder, &options->run, 1, add_piece, &taker);
    const BpeMerge *merges;
    const int64_t count = status == 0 ? bpe_training_run(taker.training, &merges, show, options->progress) : -1;
    if (count >= 0) {
        merging->pieces = taker.pieces, merging->count = (uint32_t)count;
        merging->merges = allocate_zeroed((size_t)count + 1, sizeof *merges);
        memcpy(merging->merges, merges, (size_t)count * sizeof *merges);
    }
    bpe_training_close(taker.training);
    return count < 0 ? -1 : 0;
}

void merging_close(Merging *merging) {
    free(merging->merges);
    *merging = (Merging){0};
}
