// A shared_cache as a file: "MRBPECA1", the vocabulary's fingerprint, the entries one behind the other, XXH3 of all
// that.
//
// The sum tells damage. Beyond it each word is taken only if its ids are the ones that merging it gives, which is
// quicker to check than to do: no file can change what a text is encoded to.
#include "common/err.h"
#include "common/file.h"
#include "tokenizer/bpe.h"
#include "tokenizer/cache/shared_cache.h"
#include <xxhash.h>

typedef struct {
    char magic[8];
    uint8_t fingerprint[32];
} Head;

static const char magic[] = "MRBPECA1";
enum { SUM = 8 };

int shared_cache_save(const SharedCache *shared_cache, const char *path) {
    Buffer out = {0};
    Head head;
    memcpy(head.magic, magic, sizeof head.magic);
    vocab_fingerprint(shared_cache_vocab(shared_cache), head.fingerprint);
    buffer_add(&out, &head, sizeof head);
    for (const uint8_t *entry = NULL; (entry = shared_cache_next(shared_cache, entry, false));)
        buffer_add(&out, entry, shared_cache_entry_bytes(entry[0], entry[1]));
    uint8_t sum[SUM];
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

// Takes in one entry. False: it is cut, or its ids are not the word's.
static bool take_entry(SharedCache *shared_cache, SharedCacheChunk *room, Cursor *cursor) {
    size_t size = cursor->at[0], count = cursor->at[1]; // behind the last entry comes the sum
    if (!size || size > SHARED_CACHE_PIECE_MAX || !count || count > SHARED_CACHE_IDS_MAX) return false;
    const uint8_t *entry = cursor_take(cursor, shared_cache_entry_bytes(size, count));
    if (!entry) return false;
    uint16_t ids[SHARED_CACHE_IDS_MAX];
    memcpy(ids, entry + 2, 2 * count);
    const uint8_t *word = entry + 2 + 2 * count;
    SharedCacheBucket place = shared_cache_bucket(shared_cache, word, size);
    if (!bpe_holds(shared_cache_vocab(shared_cache), word, size, ids, count)) return false;
    shared_cache_add(shared_cache, place, room, word, size, ids, count);
    return true;
}

int shared_cache_load_bytes(SharedCache *shared_cache, Bytes file, const char *name) {
    Head head;
    uint8_t fingerprint[32];
    if (file.size < sizeof head + SUM) return fail(EX_DATA, "'%s' is not a BPE cache: too short", name);
    memcpy(&head, file.data, sizeof head);
    if (memcmp(head.magic, magic, sizeof head.magic)) return fail(EX_DATA, "'%s' is not a BPE cache", name);
    vocab_fingerprint(shared_cache_vocab(shared_cache), fingerprint);
    if (memcmp(head.fingerprint, fingerprint, sizeof fingerprint))
        return fail(EX_DATA, "'%s' is the BPE cache of another vocabulary", name);
    file.size -= SUM;
    if (XXH3_64bits(file.data, file.size) != get_u64(file.data + file.size))
        return fail(EX_DATA, "'%s' is damaged: wrong checksum", name);
    SharedCacheChunk room = {0};
    bool right = true;
    Cursor cursor = cursor_init((Bytes){file.data + sizeof head, file.size - sizeof head});
    while (right && cursor.at < cursor.end) right = take_entry(shared_cache, &room, &cursor);
    shared_cache_set_loaded(shared_cache);
    return right ? 0 : fail(EX_DATA, "'%s' is damaged: a piece has ids that its merges do not give", name);
}

int shared_cache_load(SharedCache *shared_cache, const char *path) {
    Bytes file;
    if (file_map(&file, path) < 0) return -1;
    int result = shared_cache_load_bytes(shared_cache, file, path);
    file_unmap(&file);
    return result;
}
