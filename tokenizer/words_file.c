// The word table as a file: Head, the entries of each table one behind the other, XXH3 of all that.
//
// A sum tells damage; that the ids of a word spell it is checked besides, so that no file can write past a buffer.
#include "common/err.h"
#include "common/file.h"
#include "tokenizer/words_entry.h"
#include <xxhash.h>

typedef struct {
    char magic[8];
    uint8_t fingerprint[32];    // of the vocabulary
    uint64_t bytes[WORD_SIZES]; // of entries
} Head;

static const char magic[] = "MRWORDS1";

static size_t entry_bytes(const uint64_t *entry, unsigned words) { return 16 * words << entry_is_wide(entry, words); }

static bool entry_is_at_home(const uint64_t *entry, unsigned words, size_t index) {
    uint64_t key[WHOLE_KEY];
    memcpy(key, entry, 8 * words);
    key[words - 1] &= ~NOTE;
    return (key_hash(key, words) ^ index) % WAYS < entries_in_line(words);
}

// Those that are where the fast path looks go first, and so will be there again: they are the frequent ones.
static void add_entries(Buffer *out, const WordTable *table) {
    for (int home = 1; home >= 0; home--)
        for (size_t i = 0; i <= table->mask; i++) {
            const uint64_t *entry = entry_at(table, i, table->words);
            if (entry_count(entry, table->words) && !entry_is_second(entry, table->words) &&
                entry_is_at_home(entry, table->words, i) == home)
                buffer_add(out, entry, entry_bytes(entry, table->words));
        }
}

int words_save(const Words *words, const char *path) {
    Buffer out = {0};
    Head head = {0};
    memcpy(head.magic, magic, sizeof head.magic);
    vocab_fingerprint(words->vocab, head.fingerprint);
    buffer_add(&out, &head, sizeof head);
    for (unsigned i = 0; i < WORD_SIZES; i++) {
        size_t before = out.size;
        add_entries(&out, &words->tables[i]);
        head.bytes[i] = out.size - before;
    }
    memcpy(out.data, &head, sizeof head);
    uint8_t sum[8];
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

// Do the ids of this word spell it?
static bool entry_is_right(const Vocab *vocab, const uint64_t *entry, unsigned words) {
    size_t size = entry[words - 1] >> 56, count = entry_count(entry, words), inner = 4 * words - 1, at = 0;
    if (entry_is_note(entry, words)) return count == 1;
    bool wide = entry_is_wide(entry, words);
    if (!count || count > (wide ? 2 * inner : inner) || size >= 8 * words) return false;
    if (wide && (!entry_is_second(entry + 2 * words, words) || entry_count(entry + 2 * words, words) != 1))
        return false;
    for (size_t i = 0; i < count; i++) {
        unsigned id = get_u16((const uint8_t *)(i < inner ? entry + words : entry + 3 * words) + 2 * (i % inner));
        if (id >= MERGED_COUNT) return false;
        Bytes token = vocab_bytes(vocab, (uint16_t)id);
        if (token.size > size - at || memcmp((const uint8_t *)entry + at, token.data, token.size)) return false;
        at += token.size;
    }
    return at == size;
}

// Goes over the entries of a table; puts them into it if `words_to` is not NULL.
static bool take_entries(const Vocab *vocab, Cursor cursor, unsigned words, Words *words_to, unsigned i) {
    uint64_t entry[4 * WHOLE_KEY];
    while (cursor.at < cursor.end) {
        const uint8_t *first = cursor_take(&cursor, 16 * words);
        if (!first) return false;
        memcpy(entry, first, 16 * words);
        if (entry_is_wide(entry, words)) {
            const uint8_t *second = cursor_take(&cursor, 16 * words);
            if (!second) return false;
            memcpy(entry + 2 * words, second, 16 * words);
        }
        if (words_to)
            words_put(words_to, i, entry);
        else if (!entry_is_right(vocab, entry, words))
            return false;
    }
    return true;
}

static int load(Words *words, Bytes file, const char *path) {
    Head head;
    uint8_t fingerprint[32];
    if (file.size < sizeof head + 8) return fail(EX_DATA, "'%s' is no word table: too short", path);
    memcpy(&head, file.data, sizeof head);
    if (memcmp(head.magic, magic, sizeof head.magic)) return fail(EX_DATA, "'%s' is no word table", path);
    vocab_fingerprint(words->vocab, fingerprint);
    if (memcmp(head.fingerprint, fingerprint, sizeof fingerprint))
        return fail(EX_DATA, "'%s' is the word table of another vocabulary", path);
    file.size -= 8;
    if (XXH3_64bits(file.data, file.size) != get_u64(file.data + file.size))
        return fail(EX_DATA, "'%s' is damaged: its checksum is wrong", path);
    for (int take = 0; take < 2; take++) { // all is checked before any is taken
        Cursor cursor = cursor_of((Bytes){file.data + sizeof head, file.size - sizeof head});
        for (unsigned i = 0; i < WORD_SIZES; i++) {
            const uint8_t *entries = cursor_take(&cursor, head.bytes[i]);
            if (!entries || !take_entries(words->vocab, cursor_of((Bytes){entries, head.bytes[i]}),
                                          words->tables[i].words, take ? words : NULL, i))
                return fail(EX_DATA, "'%s' holds a word that its ids do not spell", path);
        }
    }
    return 0;
}

int words_load(Words *words, const char *path) {
    Bytes file;
    if (file_map(&file, path) < 0) return -1;
    int result = load(words, file, path);
    file_unmap(&file);
    return result;
}
