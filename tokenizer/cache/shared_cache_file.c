// The shared cache as a file, .bpe-cache: "MRBPECA1", the vocabulary's fingerprint, the entries one after the other,
// and XXH3 of all that.
//
// The checksum detects damage. Beyond it, a piece is loaded only if its ids are the ones that merging gives (bpe_holds,
// which is faster than merging): no file can change the ids of a text.
#include "common/err.h"
#include "common/file/file.h"
#include "tokenizer/bpe.h"
#include "tokenizer/cache/shared_cache.h"
#include <xxhash.h>

typedef struct {
    char magic[8];
    uint8_t fingerprint[32];
} Head;

static const char magic[] = "MRBPECA1";
enum { SUM_BYTES = 8 };

int shared_cache_save(const SharedCache *cache, const char *path) {
    Buffer out = {0};
    Head head;
    memcpy(head.magic, magic, sizeof head.magic);
    vocab_fingerprint(shared_cache_vocab(cache), head.fingerprint);
    buffer_add(&out, &head, sizeof head);
    for (const uint8_t *entry = NULL; (entry = shared_cache_next(cache, entry, false));)
        buffer_add(&out, entry, shared_entry_bytes(shared_entry_size(entry), shared_entry_count(entry)));
    uint8_t sum[SUM_BYTES];
    put_u64(sum, XXH3_64bits(out.data, out.size));
    buffer_add(&out, sum, sizeof sum);
    NewFile file = {0};
    int result = newfile_open(&file, path);
    if (result == 0) result = newfile_write(&file, out.data, out.size);
    if (result == 0) result = newfile_commit(&file);
    newfile_abandon(&file);
    buffer_close(&out);
    return result;
}

// Loads one entry. Returns false when it is cut, or its ids are not those of the piece.
static bool load_entry(SharedCache *cache, SharedCacheChunk *chunk, Cursor *cursor) {
    // two bytes can be read: the checksum follows the last entry
    size_t size = shared_entry_size(cursor->at), count = shared_entry_count(cursor->at);
    if (!size || size > SHARED_CACHE_PIECE_MAX || !count || count > SHARED_CACHE_IDS_MAX) return false;
    const uint8_t *entry = cursor_take(cursor, shared_entry_bytes(size, count));
    if (!entry) return false;
    uint16_t ids[SHARED_CACHE_IDS_MAX];
    shared_entry_ids(entry, ids);
    const uint8_t *piece = shared_entry_piece(entry);
    SharedCacheBucket bucket = shared_cache_bucket(cache, piece, size);
    if (!bpe_holds(shared_cache_vocab(cache), piece, size, ids, count)) return false;
    shared_cache_add(cache, bucket, chunk, piece, size, ids, count);
    return true;
}

int shared_cache_load_bytes(SharedCache *cache, Bytes file, const char *name) {
    Head head;
    uint8_t fingerprint[32];
    if (file.size < sizeof head + SUM_BYTES) return fail(EX_DATA, "'%s' is not a BPE cache: too short", name);
    memcpy(&head, file.data, sizeof head);
    if (memcmp(head.magic, magic, sizeof head.magic)) return fail(EX_DATA, "'%s' is not a BPE cache", name);
    vocab_fingerprint(shared_cache_vocab(cache), fingerprint);
    if (memcmp(head.fingerprint, fingerprint, sizeof fingerprint))
        return fail(EX_DATA, "'%s' is the BPE cache of another vocabulary", name);
    file.size -= SUM_BYTES;
    if (XXH3_64bits(file.data, file.size) != get_u64(file.data + file.size))
        return fail(EX_DATA, "'%s' is damaged: wrong checksum", name);
    SharedCacheChunk chunk = {0};
    bool valid = true;
    Cursor cursor = cursor_init((Bytes){file.data + sizeof head, file.size - sizeof head});
    while (valid && cursor.at < cursor.end) valid = load_entry(cache, &chunk, &cursor);
    shared_cache_set_loaded(cache);
    return valid ? 0 : fail(EX_DATA, "'%s' is damaged: a piece has ids that its merges do not give", name);
}

int shared_cache_load(SharedCache *cache, const char *path) {
    Bytes file;
    if (file_map(&file, path) < 0) return -1;
    int result = shared_cache_load_bytes(cache, file, path);
    file_unmap(&file);
    return result;
}
