// A run's header is a varint: length << 1 of equal values, or groups << 1 | 1 of 8 packed values each.
#include "shardtool/parquet/parquet_rle.h"

uint64_t bits_at(Bytes data, uint64_t at, unsigned width) {
    if (!width) return 0;
    const uint8_t *from = data.data + at / 8;
    size_t left = data.size - (size_t)(at / 8);
    unsigned shift = (unsigned)(at % 8);
    uint64_t low = 0;
    if (left >= 8)
        low = get_u64(from);
    else
        memcpy(&low, from, left);
    uint64_t value = low >> shift;
    if (shift + width > 64) value |= (uint64_t)from[8] << (64 - shift);
    return width == 64 ? value : value & ((1ull << width) - 1);
}

RleReader rle_open(Bytes bytes, unsigned width) { return (RleReader){.cursor = cursor_init(bytes), .width = width}; }

RleReader rle_open_packed(Bytes bytes, unsigned width) {
    return (RleReader){.width = width,
                       .high_first = true,
                       .packed = true,
                       .bits = bytes,
                       .run_left = width ? bytes.size * 8ull / width : UINT64_MAX};
}

static bool next_run(RleReader *rle) {
    uint64_t header = cursor_leb128(&rle->cursor);
    if (rle->cursor.failed || header > UINT32_MAX) return false;
    uint64_t count = header >> 1;
    rle->packed = header & 1;
    if (rle->packed) {
        // Some writers leave out the padding of the last group.
        uint64_t left = (uint64_t)(rle->cursor.end - rle->cursor.at), size = count * rle->width;
        if (size > left) size = left;
        rle->bits = (Bytes){cursor_take(&rle->cursor, (size_t)size), (size_t)size};
        rle->bit = 0;
        rle->run_left = rle->width ? size * 8 / rle->width : count * 8;
        return true;
    }
    const uint8_t *value = cursor_take(&rle->cursor, (rle->width + 7) / 8);
    if (!value) return false;
    rle->value = 0;
    memcpy(&rle->value, value, (rle->width + 7) / 8);
    rle->run_left = count;
    return rle->width == 32 || rle->value >> rle->width == 0;
}

bool rle_next(RleReader *rle, uint32_t *value) {
    while (!rle->run_left)
        if (!next_run(rle)) return false;
    rle->run_left--;
    *value = rle->value;
    if (!rle->packed) return true;
    if (!rle->high_first)
        *value = (uint32_t)bits_at(rle->bits, rle->bit, rle->width);
    else {
        *value = 0;
        for (unsigned i = 0; i < rle->width; i++) {
            uint64_t bit = rle->bit + i;
            *value = *value << 1 | ((unsigned)rle->bits.data[bit / 8] >> (7 - bit % 8) & 1u);
        }
    }
    rle->bit += rle->width;
    return true;
}
