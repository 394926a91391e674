// The fast path of the word table: the steps of piece_cache_batch.h in plain C.
#include "tokenizer/cache/piece_cache_batch.h"

static void make_keys(Batch *batch, const PieceTable *table, const uint8_t *text, const uint32_t *starts,
                      size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t size = starts[i + 1] - starts[i];
        const KeyRow *row = &key_rows[size <= SMALL_BYTES ? size : SMALL_BYTES + 1];
        for (size_t j = 0; j < SMALL_KEY; j++)
            batch->keys[i][j] = (get_u64(text + starts[i] + 8 * j) & row->keep[j]) | row->length[j];
        batch->lines[i] = (uint32_t)(key_hash(batch->keys[i], SMALL_KEY) & table->mask & ~1ull) * (LINE_BYTES / 2);
        __builtin_prefetch(table->entries + batch->lines[i] / 8);
    }
}

// Returns how many are missing.
static size_t find_words(Batch *batch, const PieceTable *table, size_t count) {
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *line = table->entries + batch->lines[i] / 8, *key = batch->keys[i];
        const uint64_t *entry = line + 2 * SMALL_KEY * (size_t)!key_differs(line + 2 * SMALL_KEY, key, SMALL_KEY);
        memcpy(&batch->found[i], entry + SMALL_KEY, sizeof batch->found[i]);
        batch->missing[missing] = (uint16_t)i;
        missing += !!key_differs(entry, key, SMALL_KEY);
    }
    return missing;
}

size_t piece_cache_encode_portable(PieceCache *words, const uint8_t *text, const uint32_t *starts, size_t count,
                                   uint16_t *ids) {
    Batch batch;
    make_keys(&batch, &words->tables[0], text, starts, count);
    size_t missing = find_words(&batch, &words->tables[0], count);
    batch_ask_missing(&batch, words, text, starts, missing);
    return batch_emit(&batch, words, text, starts, count, ids);
}
