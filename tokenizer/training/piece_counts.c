// The table: open addressing, the slot from the high bits of the hash.
#include "tokenizer/training/piece_counts.h"
#include "common/machine/hugepages.h"
#include <assert.h>
#include <xxhash.h>

enum {
    SHORT_BYTES = 15,
    FIRST_SHIFT = 64 - 13,
    SPARE_SLOTS = 64, // after the last: the table is full when they are
    AHEAD = 64        // pieces whose slots are prefetched together
};
#define LONG_PIECE (0xFFull << 56) // in the place of a size

static uint64_t slots_bytes(unsigned shift) { return ((1ull << (64 - shift)) + SPARE_SLOTS) * sizeof(PieceCount); }

static void load_short(uint64_t key[2], const uint8_t *piece, size_t size) {
    // Two masks of bytes: all of the first word, or as many as there are.
    const uint64_t low = size >= 8 ? UINT64_MAX : (1ull << 8 * size) - 1,
                   high = size > 8 ? (1ull << 8 * (size - 8)) - 1 : 0;
    key[0] = get_u64(piece) & low;
    key[1] = (get_u64(piece + 8) & high) | (uint64_t)size << 56;
}

static uint64_t hash_short(const uint64_t key[2]) {
    const __uint128_t product = (__uint128_t)(key[0] ^ 0x9E3779B97F4A7C15) * (key[1] ^ 0xD6E8FEB86659FD93);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static bool is_long(const PieceCount *slot) { return (slot->key[1] & LONG_PIECE) == LONG_PIECE; }
static uint64_t slot_hash(const PieceCount *slot) { return is_long(slot) ? slot->key[0] : hash_short(slot->key); }

uint64_t piece_hash(Bytes piece) {
    uint64_t key[2];
    if (piece.size > SHORT_BYTES) return XXH3_64bits(piece.data, piece.size);
    load_short(key, piece.data, piece.size);
    return hash_short(key);
}

void piece_counts_open(PieceCounts *counts, uint64_t memory) {
    assert(memory >= PIECE_COUNTS_MEMORY);
    *counts = (PieceCounts){.memory = memory, .shift = FIRST_SHIFT};
    counts->slot_count = (1ull << (64 - FIRST_SHIFT)) + SPARE_SLOTS;
    counts->slots = hugepages_alloc_or_die(slots_bytes(FIRST_SHIFT));
}

void piece_counts_close(PieceCounts *counts) {
    hugepages_free(counts->slots);
    buffer_close(&counts->long_pieces);
    *counts = (PieceCounts){0};
}

void piece_counts_clear(PieceCounts *counts) {
    memset(counts->slots, 0, counts->slot_count * sizeof *counts->slots);
    counts->long_pieces.size = counts->used = 0;
}

Bytes piece_count_bytes(const PieceCounts *counts, const PieceCount *slot) {
    if (!is_long(slot)) return (Bytes){(const uint8_t *)slot->key, (size_t)(slot->key[1] >> 56)};
    const uint8_t *at = counts->long_pieces.data + (slot->key[1] & ~LONG_PIECE);
    return (Bytes){at + sizeof(uint64_t), get_u64(at)};
}

// The empty slot for a hash, from its first one on; NULL when the table is full there.
static PieceCount *empty_slot(PieceCount *slot, const PieceCount *end) {
    while (slot < end && slot->count) slot++;
    return slot < end ? slot : NULL;
}

// Twice as many slots. False when the memory does not allow it, or when a new slot is full, which no text of honest
// origin causes.
static bool grow(PieceCounts *counts) {
    const unsigned shift = counts->shift - 1;
    if (slots_bytes(counts->shift) + slots_bytes(shift) + counts->long_pieces.capacity > counts->memory) return false;
    PieceCount *slots = hugepages_alloc_or_die(slots_bytes(shift)), *slot;
    const PieceCount *end = slots + (1ull << (64 - shift)) + SPARE_SLOTS;
    for (uint64_t i = 0; i < counts->slot_count; i++) {
        const PieceCount *old = &counts->slots[i];
        if (!old->count) continue;
        if (!(slot = empty_slot(slots + (slot_hash(old) >> shift), end))) return hugepages_free(slots), false;
        *slot = *old;
    }
    hugepages_free(counts->slots);
    counts->slots = slots, counts->slot_count = (uint64_t)(end - slots), counts->shift = shift;
    return true;
}

// Room for one more piece and for the bytes of a long one.
static bool has_room(PieceCounts *counts, uint64_t long_bytes) {
    if (counts->used >= counts->slot_count / 8 * 5 && !grow(counts)) return false;
    const Buffer *bytes = &counts->long_pieces;
    if (!long_bytes || bytes->size + long_bytes <= bytes->capacity) return true;
    // A buffer at least doubles, and both are there for a moment. A piece that is larger than the table goes in alone.
    return !counts->used || slots_bytes(counts->shift) + 3 * bytes->capacity + long_bytes <= counts->memory;
}

static bool add_short(PieceCounts *counts, const uint64_t key[2], uint64_t hash) {
    PieceCount *slot = counts->slots + (hash >> counts->shift), *end = counts->slots + counts->slot_count;
    for (; slot < end && slot->count; slot++)
        if (slot->key[0] == key[0] && slot->key[1] == key[1]) return ++slot->count;
    if (slot == end || !has_room(counts, 0)) return false;
    slot = empty_slot(counts->slots + (hash >> counts->shift), counts->slots + counts->slot_count);
    if (!slot) return false;
    *slot = (PieceCount){{key[0], key[1]}, 1};
    return ++counts->used;
}

static bool add_long(PieceCounts *counts, Bytes piece, uint64_t hash) {
    PieceCount *slot = counts->slots + (hash >> counts->shift), *end = counts->slots + counts->slot_count;
    for (; slot < end && slot->count; slot++)
        if (is_long(slot) && slot->key[0] == hash) {
            const Bytes there = piece_count_bytes(counts, slot);
            if (there.size == piece.size && !memcmp(there.data, piece.data, piece.size)) return ++slot->count;
        }
    const uint64_t size = piece.size, bytes = sizeof size + size + PIECE_PADDING;
    if (slot == end || !has_room(counts, bytes)) return false;
    slot = empty_slot(counts->slots + (hash >> counts->shift), counts->slots + counts->slot_count);
    if (!slot) return false;
    *slot = (PieceCount){{hash, LONG_PIECE | counts->long_pieces.size}, 1};
    buffer_reserve(&counts->long_pieces, bytes);
    buffer_add(&counts->long_pieces, &size, sizeof size);
    buffer_add(&counts->long_pieces, piece.data, size);
    counts->long_pieces.size += PIECE_PADDING;
    return ++counts->used;
}

size_t piece_counts_add(PieceCounts *counts, const uint8_t *text, const uint32_t *starts, size_t count) {
    uint64_t keys[AHEAD][2], hashes[AHEAD];
    for (size_t from = 0; from < count; from += AHEAD) {
        const size_t part = count - from < AHEAD ? count - from : AHEAD;
        for (size_t i = 0; i < part; i++) {
            const uint32_t start = starts[from + i], size = starts[from + i + 1] - start;
            if (size <= SHORT_BYTES) {
                load_short(keys[i], text + start, size);
                hashes[i] = hash_short(keys[i]);
            } else {
                hashes[i] = XXH3_64bits(text + start, size);
            }
            __builtin_prefetch(counts->slots + (hashes[i] >> counts->shift), 1);
        }
        for (size_t i = 0; i < part; i++) {
            const uint32_t start = starts[from + i], size = starts[from + i + 1] - start;
            if (!(size <= SHORT_BYTES ? add_short(counts, keys[i], hashes[i])
                                      : add_long(counts, (Bytes){text + start, size}, hashes[i])))
                return from + i;
        }
    }
    return count;
}

static bool is_before(const PieceCounts *counts, const PieceCount *a, const PieceCount *b) {
    const uint64_t hash_a = slot_hash(a), hash_b = slot_hash(b);
    if (hash_a != hash_b) return hash_a < hash_b;
    const Bytes x = piece_count_bytes(counts, a), y = piece_count_bytes(counts, b);
    return x.size != y.size ? x.size < y.size : memcmp(x.data, y.data, x.size) < 0;
}

// Only the pieces between two empty slots can be out of order, so an insertion sort moves each a few places.
uint64_t piece_counts_sort(PieceCounts *counts) {
    PieceCount *slots = counts->slots;
    uint64_t sorted = 0;
    for (uint64_t i = 0; i < counts->slot_count; i++) {
        if (!slots[i].count) continue;
        const PieceCount piece = slots[i];
        uint64_t at = sorted++;
        for (; at && is_before(counts, &piece, &slots[at - 1]); at--) slots[at] = slots[at - 1];
        slots[at] = piece;
    }
    return sorted;
}
