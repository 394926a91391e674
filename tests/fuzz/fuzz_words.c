// Any bytes as a file of words: refused, or nothing in it changes what a text is encoded to.
#include "common/cpu.h"
#include "common/err.h"
#include "tokenizer/bpe.h"
#include "tokenizer/cache/shared_cache.h"
#include <stdlib.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 40, SUM = 8 };

// Checksum and vocabulary keep a fuzzer out of all that is behind them: make them right in three files of four.
static void mend(const uint8_t fingerprint[32], uint8_t *file, size_t size) {
    if (size < HEAD + SUM || file[7] % 4 == 0) return;
    memcpy(file, "MRWORDS2", 8);
    memcpy(file + 8, fingerprint, 32);
    put_u64(file + size - SUM, XXH3_64bits(file, size - SUM));
}

// Merged pair by pair, which is not how a file is checked.
static void check_entry(const Vocab *vocab, const uint8_t *entry) {
    uint16_t ids[SHARED_CACHE_PIECE_MAX];
    uint64_t dead[SHARED_CACHE_PIECE_MAX / 64 + 1];
    size_t size = entry[0], count = entry[1];
    size_t (*merged)(const Vocab *, const uint8_t *, size_t, uint16_t *, uint64_t *) =
        cpu_isa() == ISA_AVX512 ? merge_avx512 : merge;
    if (merged(vocab, entry + 2 + 2 * count, size, ids, dead) != count || memcmp(ids, entry + 2, 2 * count)) abort();
}

static uint16_t *encoded(const Vocab *vocab, SharedCache *shared_cache, Bytes text, ssize_t *count) {
    uint16_t *ids = malloc(encode_bound(text.size) * sizeof *ids);
    Encoder *encoder = encoder_open(vocab, INVALID_BYTES, shared_cache);
    *count = encode(encoder, text, ids);
    encoder_close(encoder);
    return ids;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Vocab *vocab;
    static uint8_t fingerprint[32];
    if (!vocab) vocab_fingerprint(vocab = vocab_open(), fingerprint);
    uint8_t *file = malloc(size + !size);
    memcpy(file, data, size);
    mend(fingerprint, file, size);
    SharedCache *shared_cache = shared_cache_open(vocab, SHARED_CACHE_THREADS);
    if (shared_cache_load_bytes(shared_cache, (Bytes){file, size}, "fuzzed") < 0 && err_code() != EX_DATA) abort();
    err_clear();
    for (const uint8_t *entry = NULL; (entry = shared_cache_next(shared_cache, entry, true));)
        check_entry(vocab, entry);
    ssize_t plain_count, count;
    uint16_t *plain = encoded(vocab, NULL, (Bytes){data, size}, &plain_count);
    uint16_t *ids = encoded(vocab, shared_cache, (Bytes){data, size}, &count);
    if (count != plain_count || (count > 0 && memcmp(ids, plain, (size_t)count * 2))) abort();
    free(plain);
    free(ids);
    free(file);
    shared_cache_close(shared_cache);
    return 0;
}
