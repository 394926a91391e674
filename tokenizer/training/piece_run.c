// Writes, reads and merges run files.
#include "tokenizer/training/piece_run.h"
#include "common/err.h"
#include "common/hash.h"
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCK_BYTES = 256 << 10, MAGIC_BYTES = 8 };
static const char magic[MAGIC_BYTES + 1] = "PIECERN1";

void piece_run_path(char path[PATH_MAX_BYTES], const char *folder, uint64_t number) {
    path_join(path, folder, PIECE_RUN_PREFIX "%06" PRIu64, number);
}

static int write_block(PieceRunWriter *writer) {
    Buffer *block = &writer->block;
    writer->run.crc = crc32c(writer->run.crc, block->data, block->size);
    writer->run.bytes += block->size;
    const int status = newfile_write(&writer->file, block->data, block->size);
    block->size = 0;
    return status;
}

int piece_run_create(PieceRunWriter *writer, const char *folder, uint64_t number) {
    char path[PATH_MAX_BYTES];
    *writer = (PieceRunWriter){.run.number = number};
    piece_run_path(path, folder, number);
    buffer_add(&writer->block, magic, MAGIC_BYTES);
    return newfile_open(&writer->file, path);
}

int piece_run_add(PieceRunWriter *writer, Bytes piece, uint64_t count) {
    Buffer *block = &writer->block;
    buffer_add_leb128(block, count);
    buffer_add_leb128(block, piece.size);
    buffer_add(block, piece.data, piece.size);
    return block->size >= BLOCK_BYTES ? write_block(writer) : 0;
}

int piece_run_finish(PieceRunWriter *writer, PieceRun *run) {
    int status = write_block(writer);
    if (status == 0) status = newfile_commit(&writer->file);
    buffer_close(&writer->block);
    *run = writer->run;
    return status;
}

void piece_run_abandon(PieceRunWriter *writer) {
    newfile_abandon(&writer->file);
    buffer_close(&writer->block);
}

int piece_run_write(PieceCounts *counts, const char *folder, uint64_t number, PieceRun *run) {
    PieceRunWriter writer;
    const uint64_t pieces = piece_counts_sort(counts);
    int status = piece_run_create(&writer, folder, number);
    for (uint64_t i = 0; status == 0 && i < pieces; i++)
        status = piece_run_add(&writer, piece_count_bytes(counts, &counts->slots[i]), counts->slots[i].count);
    if (status == 0) status = piece_run_finish(&writer, run);
    piece_run_abandon(&writer);
    piece_counts_clear(counts);
    return status;
}

typedef struct {
    int fd;
    char path[PATH_MAX_BYTES];
    Buffer block; // block.data[at .. block.size) was read from the file and not yet taken
    size_t at;
    uint64_t left; // bytes of the file that were not read
    uint32_t crc, want_crc;
    bool has_piece;
    Bytes piece; // in the block, padded
    uint64_t hash, count;
} PieceRunReader;

static int fail_damaged(const PieceRunReader *reader) {
    return fail(EX_DATA, "'%s' is damaged: --force counts the pieces again", reader->path);
}

// Makes `size` bytes available from `at` on, if the file has as many. The block moves. False with or without an error.
static bool fill_block(PieceRunReader *reader, size_t size) {
    Buffer *block = &reader->block;
    if (block->size - reader->at >= size) return true;
    if (size - (block->size - reader->at) > reader->left) return false;
    if (reader->at) memmove(block->data, block->data + reader->at, block->size -= reader->at);
    reader->at = 0;
    size_t more = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    if (more > reader->left) more = (size_t)reader->left;
    buffer_reserve(block, more + PIECE_PADDING);
    if (fd_read(reader->fd, block->data + block->size, more, reader->path) != (ssize_t)more) return false;
    reader->crc = crc32c(reader->crc, block->data + block->size, more);
    block->size += more, reader->left -= more;
    return block->size >= size;
}

static bool read_number(PieceRunReader *reader, uint64_t *number) {
    *number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (!fill_block(reader, 1)) return false;
        const uint8_t byte = reader->block.data[reader->at++];
        if (shift == 63 && byte > 1) return false;
        *number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

// The next piece, in has_piece; false at the end. -1 after fail() (65).
static int next_piece(PieceRunReader *reader) {
    uint64_t size;
    const uint64_t hash = reader->hash;
    const bool first = !reader->has_piece;
    reader->has_piece = false;
    if (!reader->left && reader->at == reader->block.size)
        return reader->crc == reader->want_crc ? 0 : fail_damaged(reader);
    if (!read_number(reader, &reader->count) || !read_number(reader, &size)) return fail_damaged(reader);
    if (!reader->count || !size || size > reader->left + reader->block.size || !fill_block(reader, (size_t)size))
        return fail_damaged(reader);
    reader->piece = (Bytes){reader->block.data + reader->at, (size_t)size};
    reader->hash = piece_hash(reader->piece);
    reader->at += (size_t)size;
    reader->has_piece = true;
    return first || reader->hash >= hash ? 0 : fail_damaged(reader);
}

static int open_reader(PieceRunReader *reader, const char *folder, const PieceRun *run) {
    *reader = (PieceRunReader){.left = run->bytes, .want_crc = run->crc};
    piece_run_path(reader->path, folder, run->number);
    reader->fd = file_open(reader->path);
    if (reader->fd < 0) return fail_errno("cannot open '%s'", reader->path);
    if (!fill_block(reader, MAGIC_BYTES) || memcmp(reader->block.data, magic, MAGIC_BYTES)) return fail_damaged(reader);
    reader->at = MAGIC_BYTES;
    return next_piece(reader);
}

static void close_reader(PieceRunReader *reader) {
    if (reader->fd > 0) close(reader->fd);
    buffer_close(&reader->block);
}

static bool reader_is_before(const PieceRunReader *a, const PieceRunReader *b) {
    if (a->hash != b->hash) return a->hash < b->hash;
    if (a->piece.size != b->piece.size) return a->piece.size < b->piece.size;
    return memcmp(a->piece.data, b->piece.data, a->piece.size) < 0;
}

static PieceRunReader *first_reader(PieceRunReader *readers, size_t count) {
    PieceRunReader *first = NULL;
    for (size_t i = 0; i < count; i++)
        if (readers[i].has_piece && (!first || reader_is_before(&readers[i], first))) first = &readers[i];
    return first;
}

static int merge_readers(PieceRunReader *readers, size_t count, int (*take)(void *context, Bytes piece, uint64_t count),
                         void *context) {
    for (PieceRunReader *first; (first = first_reader(readers, count));) {
        uint64_t sum = first->count;
        // The readers before `first` have other pieces.
        for (PieceRunReader *other = first + 1; other < readers + count; other++) {
            if (!other->has_piece || reader_is_before(first, other)) continue;
            if (__builtin_add_overflow(sum, other->count, &sum)) return fail_damaged(other);
            if (next_piece(other) < 0) return -1;
        }
        if (take(context, first->piece, sum) < 0 || next_piece(first) < 0) return -1;
    }
    return 0;
}

int piece_runs_merge(const char *folder, const PieceRun *runs, size_t count,
                     int (*take)(void *context, Bytes piece, uint64_t count), void *context) {
    PieceRunReader *readers = allocate_zeroed(count + 1, sizeof *readers);
    int status = 0;
    for (size_t i = 0; status == 0 && i < count; i++) status = open_reader(&readers[i], folder, &runs[i]);
    if (status == 0) status = merge_readers(readers, count, take, context);
    for (size_t i = 0; i < count; i++) close_reader(&readers[i]);
    free(readers);
    return status;
}
