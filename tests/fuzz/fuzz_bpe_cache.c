// Any bytes as a BPE cache: the file is refused, or nothing in it changes the ids of a text.
#include "common/err.h"
#include "common/machine/cpu.h"
#include "tokenizer/bpe.h"
#include "tokenizer/cache/shared_cache.h"
#include <stdlib.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 40, SUM = 8 };

// A wrong checksum or fingerprint would keep the fuzzer out of the code behind the check: correct them in three files
// of four.
static void correct(const uint8_t fingerprint[32], uint8_t *file, size_t size) {
    if (size < HEAD + SUM || file[7] % 4 == 0) return;
    memcpy(file, "MRBPECA1", 8);
    memcpy(file + 8, fingerprint, 32);
    put_u64(file + size - SUM, XXH3_64bits(file, size - SUM));
}

// The oracle: merges pair by pair, while loading checks each pair of neighbours.
static void check_entry(const Vocab *vocab, const uint8_t *entry) {
    uint16_t ids[SHARED_CACHE_PIECE_MAX];
    uint64_t dead[SHARED_CACHE_PIECE_MAX / 64 + 1];
    size_t size = shared_entry_size(entry), count = shared_entry_count(entry);
    size_t (*merged)(const Vocab *, const uint8_t *, size_t, uint16_t *, uint64_t *) =
        cpu_isa() == ISA_AVX512 ? bpe_merge_avx512 : bpe_merge;
    if (merged(vocab, shared_entry_piece(entry), size, ids, dead) != count || memcmp(ids, entry + 2, 2 * count))
        abort();
}

static uint16_t *encoded(const Vocab *vocab, SharedCache *shared_cache, Bytes text, ssize_t *count) {
    uint16_t *ids = malloc(encoder_ids_max(text.size) * sizeof *ids);
    Encoder *encoder = encoder_open(vocab, INVALID_BYTES, shared_cache);
    *count = encoder_encode(encoder, text, ids);
    encoder_close(encoder);
    return ids;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Vocab *vocab;
    static uint8_t fingerprint[32];
    if (!vocab) vocab_fingerprint(vocab = vocab_open(), fingerprint);
    uint8_t *file = malloc(size + !size);
    memcpy(file, data, size);
    correct(fingerprint, file, size);
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
