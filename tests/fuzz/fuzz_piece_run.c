// Any bytes as a run file of counted pieces: what is read are pieces with counts in order, or the file is bad data. Its
// checksum is correct in three files of four, and the first byte makes one file or two of the bytes.
#include "common/hash.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/training/bpe_training.h"
#include "tokenizer/training/piece_run.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

typedef struct {
    BpeTraining *training;
    uint64_t hash, pieces, bytes;
    bool adds;
} Taken;

static int take_piece(void *context, Bytes piece, uint64_t count) {
    Taken *taken = context;
    const uint64_t hash = piece_hash(piece);
    if (!count || !piece.size || (taken->pieces && hash < taken->hash)) abort();
    taken->hash = hash, taken->pieces++, taken->bytes += piece.size;
    if (taken->adds) return bpe_training_add(taken->training, piece, count);
    return bpe_training_announce(taken->training, piece.size, count);
}

static void show(void *context, uint32_t count) { (void)context, (void)count; }

static PieceRun write_run(const char *folder, uint64_t number, Bytes bytes, bool correct) {
    char path[PATH_MAX_BYTES];
    piece_run_path(path, folder, number);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes.data, bytes.size) != (ssize_t)bytes.size || close(fd)) abort();
    const uint32_t crc = crc32c(0, bytes.data, bytes.size);
    return (PieceRun){.number = number, .bytes = bytes.size, .crc = correct ? crc : ~crc};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char folder[64];
    if (!size) return 0;
    if (!*folder && (snprintf(folder, sizeof folder, "/tmp/fuzz-piece-run-XXXXXX"), !mkdtemp(folder))) abort();
    const uint8_t options = *data++;
    const Bytes all = {data, size - 1}, half = {data, all.size / 2}, rest = {data + half.size, all.size - half.size};
    const bool correct = options % 4 != 0, two = options & 4;
    const PieceRun runs[] = {write_run(folder, 0, two ? half : all, correct),
                             write_run(folder, 1, two ? rest : all, correct)};
    Taken taken = {.training = bpe_training_open(64 << 20, 20)};
    const BpeMerge *merges;
    int status = piece_runs_merge(folder, runs, two ? 2 : 1, take_piece, &taken);
    if (status == 0 && !correct) abort();
    if (status == 0 && taken.bytes > all.size) abort();
    if (status == 0) status = bpe_training_begin(taken.training);
    taken.adds = true, taken.pieces = 0;
    if (status == 0 && piece_runs_merge(folder, runs, two ? 2 : 1, take_piece, &taken) < 0) abort();
    if (status == 0 && bpe_training_run(taken.training, &merges, show, NULL) < 0) abort();
    if (status < 0 && err_code() != EX_DATA) abort();
    err_clear();
    bpe_training_close(taken.training);
    return 0;
}
