// The fast path of the piece cache: the steps of piece_cache_batch.h in plain C.
#include "tokenizer/cache/piece_cache_batch.h"

static void make_keys(PieceBatch *batch, const PieceTable *table, const uint8_t *text, const uint32_t *starts,
                      size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t size = starts[i + 1] - starts[i];
        const KeyRow *row = &key_rows[size <= SMALL_BYTES ? size : SMALL_BYTES + 1];
        for (size_t j = 0; j < SMALL_KEY; j++)
            batch->keys[i][j] = (get_u64(text + starts[i] + 8 * j) & row->mask[j]) | row->size[j];
        batch->buckets[i] = (uint32_t)(key_hash(batch->keys[i], SMALL_KEY) & table->mask & ~1ull) * (BUCKET_BYTES / 2);
        __builtin_prefetch(table->entries + batch->buckets[i] / 8);
    }
}

// Returns the number of misses.
static size_t probe_buckets(PieceBatch *batch, const PieceTable *table, size_t count) {
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *bucket = table->entries + batch->buckets[i] / 8, *key = batch->keys[i];
        const uint64_t *entry = bucket + 2 * SMALL_KEY * (size_t)!key_differs(bucket + 2 * SMALL_KEY, key, SMALL_KEY);
        memcpy(&batch->found[i], entry + SMALL_KEY, sizeof batch->found[i]);
        batch->missing[missing] = (uint16_t)i;
        missing += !!key_differs(entry, key, SMALL_KEY);
    }
    return missing;
}

size_t piece_cache_encode_portable(PieceCache *cache, const uint8_t *text, const uint32_t *starts, size_t count,
                                   uint16_t *ids) {
    PieceBatch batch;
    make_keys(&batch, &cache->tables[0], text, starts, count);
    size_t missing = probe_buckets(&batch, &cache->tables[0], count);
    batch_prefetch_missing(&batch, cache, text, starts, missing);
    return batch_emit(&batch, cache, text, starts, count, ids);
}
