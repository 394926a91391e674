// Words, shingles and MinHash of a document.
#include "shardtool/similar/shingles.h"
#include <xxhash.h>

void shingler_open(Shingler *shingler) { shingler->values = minhash_values_on(cpu_isa()); }

void shingler_close(Shingler *shingler) {
    words_close(&shingler->words);
    buffer_close(&shingler->hashes);
    hash_set_close(&shingler->seen);
    *shingler = (Shingler){0};
}

bool shingler_bands(Shingler *shingler, Bytes text, MinhashBand bands[MINHASH_BANDS]) {
    uint64_t values[MINHASH_PERMUTATIONS];
    words_set(&shingler->words, text);
    const size_t count = words_hash(&shingler->words, SHINGLE_WORDS, &shingler->hashes);
    if (!count) return false;
    shingler->values((const uint64_t *)(const void *)shingler->hashes.data, count, values);
    minhash_bands(values, bands);
    return true;
}

void shingler_set(Shingler *shingler, Bytes text, Buffer *out) {
    words_set(&shingler->words, text);
    words_hash(&shingler->words, SHINGLE_WORDS, &shingler->hashes);
    shingler_set_again(shingler, out);
}

void shingler_set_again(Shingler *shingler, Buffer *out) {
    const TextWords *words = &shingler->words;
    const size_t count = shingler->hashes.size / sizeof(uint64_t);
    const Bytes normal = {words->text.data, words->text.size};
    ShingleHead head = {0, XXH3_64bits(normal.data, normal.size), words->digits, normal.size};
    hash_set_clear(&shingler->seen, count);
    buffer_reserve(out, sizeof head + count * sizeof(uint64_t) + bitmap_filter_bytes(count));
    uint8_t *const first = out->data + out->size;
    for (size_t i = 0; i < count; i++) {
        const uint64_t hash = get_u64(shingler->hashes.data + i * sizeof hash);
        if (hash_set_add(&shingler->seen, hash)) put_u64(first + sizeof head + head.count++ * sizeof hash, hash);
    }
    memcpy(first, &head, sizeof head);
    uint8_t *const hashes = first + sizeof head, *const bitmap = hashes + head.count * sizeof(uint64_t);
    bitmap_filter_set(bitmap, hashes, head.count);
    out->size = (size_t)(bitmap - out->data) + bitmap_filter_bytes(head.count);
    buffer_add(out, normal.data, normal.size);
}

void shingler_hash_again(Shingler *shingler) {
    words_split(&shingler->words);
    words_hash(&shingler->words, SHINGLE_WORDS, &shingler->hashes);
}
