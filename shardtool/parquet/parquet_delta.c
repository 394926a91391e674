// Header: varints block size, miniblocks per block, number of values, and zigzag first value. Block: zigzag smallest
// difference, one byte of bit width per miniblock, the miniblocks. Sums wrap, as the format wants it.
#include "shardtool/parquet/parquet_delta.h"
#include "shardtool/parquet/parquet_rle.h"
#include "shardtool/parquet/thrift_compact.h"

bool delta_open(DeltaReader *delta, Bytes bytes, unsigned type_bits) {
    *delta = (DeltaReader){.cursor = cursor_init(bytes), .type_bits = type_bits, .first = true};
    uint64_t block_values = cursor_leb128(&delta->cursor), miniblocks = cursor_leb128(&delta->cursor);
    delta->left = cursor_leb128(&delta->cursor);
    delta->value = (uint64_t)zigzag_decode(cursor_leb128(&delta->cursor));
    if (delta->cursor.failed || !block_values || block_values > INT32_MAX || block_values % 128 || !miniblocks ||
        block_values % miniblocks || block_values / miniblocks % 32 || delta->left > INT32_MAX)
        return false;
    delta->miniblock_values = block_values / miniblocks;
    delta->miniblock_count = delta->miniblock = (unsigned)miniblocks;
    return true;
}

static bool next_miniblock(DeltaReader *delta) {
    if (delta->miniblock == delta->miniblock_count) {
        delta->difference = (uint64_t)zigzag_decode(cursor_leb128(&delta->cursor));
        delta->widths = cursor_take(&delta->cursor, delta->miniblock_count);
        delta->miniblock = 0;
        if (!delta->widths) return false;
    }
    unsigned width = delta->widths[delta->miniblock++];
    if (width > delta->type_bits) return false;
    size_t size = (size_t)(delta->miniblock_values / 8 * width);
    delta->bits = (Bytes){cursor_take(&delta->cursor, size), size};
    delta->bit = 0;
    delta->miniblock_left = delta->miniblock_values;
    return !delta->cursor.failed;
}

bool delta_next(DeltaReader *delta, int64_t *value) {
    if (!delta->left) return false;
    if (delta->first)
        delta->first = false;
    else {
        if (!delta->miniblock_left && !next_miniblock(delta)) return false;
        unsigned width = delta->widths[delta->miniblock - 1];
        delta->value += delta->difference + bits_at(delta->bits, delta->bit, width);
        delta->bit += width;
        delta->miniblock_left--;
    }
    delta->left--;
    *value = delta->type_bits == 32 ? (int32_t)(uint32_t)delta->value : (int64_t)delta->value;
    return true;
}

bool delta_rest(const DeltaReader *delta, Bytes *rest) {
    DeltaReader ahead = *delta;
    uint64_t left = ahead.left - (ahead.left && ahead.first);
    left -= left < ahead.miniblock_left ? left : ahead.miniblock_left;
    while (left) {
        if (!next_miniblock(&ahead)) return false;
        left -= left < ahead.miniblock_values ? left : ahead.miniblock_values;
    }
    *rest = (Bytes){ahead.cursor.at, (size_t)(ahead.cursor.end - ahead.cursor.at)};
    return true;
}
