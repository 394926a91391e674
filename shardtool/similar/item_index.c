// Pairs of a window's hash and its item, sorted; the upper bits of a hash give the place of its first pair. A Bloom
// filter of one hash comes before this table, as most windows of documents are not in an item: what passes it is looked
// up, so that it costs no exactness.
#include "shardtool/similar/item_index.h"
#include "common/err.h"
#include <stdlib.h>
#include <xxhash.h>

#define FILTER_BITS 16ull // for each pair, at least
#define FACTOR      0x9E3779B97F4A7C15u

typedef struct {
    uint64_t hash;
    uint32_t item;
} ItemWindow;

struct ItemIndex {
    unsigned words;
    bool has_length[ITEM_WORDS_MAX + 1]; // some item has windows of so many words
    Buffer items, windows;               // Item, ItemWindow
    uint64_t count;                      // of windows
    uint32_t *starts;                    // of the windows by the upper bits of the hash
    uint64_t *filter;                    // by the lower bits
    unsigned shift;
    uint64_t filter_mask, digest;
    TextWords text;
    Buffer hashes;
};

typedef struct {
    uint32_t serial, found; // of the document in which `found` windows were found
    size_t word;            // the first of them
    unsigned length;
} ItemCount;

struct ItemSearch {
    const ItemIndex *index;
    TextWords text;
    Buffer hashes, touched; // touched: items with a window in the document, u32
    uint32_t serial;        // of the document
    uint32_t *seen;         // serial of the last document with a window, by its first pair
    ItemCount *counts;
    bool *occurs; // of each item
};

// A window's hash is a polynomial of those of its words, so that the next window takes two products, whatever its
// length.
typedef struct {
    uint64_t hash, leaving; // leaving: the power of the factor of the first word
} RollingHash;

static RollingHash rolling_hash(const uint64_t *words, size_t length) {
    RollingHash rolling = {words[0], 1};
    for (size_t i = 1; i < length; i++) rolling.hash = rolling.hash * FACTOR + words[i], rolling.leaving *= FACTOR;
    return rolling;
}

static inline void rolling_hash_next(RollingHash *rolling, uint64_t first, uint64_t next) {
    rolling->hash = (rolling->hash - first * rolling->leaving) * FACTOR + next;
}

// The hash of each word, in `hashes`.
static const uint64_t *hash_words(const TextWords *text, Buffer *hashes) {
    words_hash(text, 1, hashes);
    return (const uint64_t *)(const void *)hashes->data;
}

ItemIndex *item_index_open(unsigned words) {
    ItemIndex *index = allocate_zeroed(1, sizeof *index);
    index->words = words;
    return index;
}

void item_index_close(ItemIndex *index) {
    if (!index) return;
    buffer_close(&index->items);
    buffer_close(&index->windows);
    buffer_close(&index->hashes);
    words_close(&index->text);
    free(index->starts);
    free(index->filter);
    free(index);
}

int item_index_add(ItemIndex *index, Bytes text, uint64_t file, uint64_t document) {
    const uint64_t number = item_index_items(index);
    const Item item = {.file = (uint32_t)file, .document = document};
    if (number == UINT32_MAX || index->windows.size / sizeof(ItemWindow) > UINT32_MAX / 2)
        return fail(EX_DATA, "the items of --against have too many words");
    words_set(&index->text, text);
    index->digest = XXH3_64bits_withSeed(index->text.text.data, index->text.text.size, index->digest);
    buffer_add(&index->items, &item, sizeof item);
    const size_t words = index->text.count, length = words < index->words ? words : index->words;
    if (length < index->words && length < ITEM_WORDS_MIN) return 0;
    index->has_length[length] = true;
    const uint64_t *hashes = hash_words(&index->text, &index->hashes);
    RollingHash rolling = rolling_hash(hashes, length);
    for (size_t i = length;; i++) {
        buffer_add(&index->windows, &(ItemWindow){rolling.hash, (uint32_t)number}, sizeof(ItemWindow));
        if (i == words) break;
        rolling_hash_next(&rolling, hashes[i - length], hashes[i]);
    }
    return 0;
}

static int by_hash(const void *a, const void *b) {
    const ItemWindow *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static ItemWindow *windows_of(const ItemIndex *index) { return (ItemWindow *)(void *)index->windows.data; }

void item_index_build(ItemIndex *index) {
    ItemWindow *windows = windows_of(index);
    const uint64_t all = index->windows.size / sizeof *windows;
    Item *items = (Item *)(void *)index->items.data;
    if (all) qsort(windows, all, sizeof *windows, by_hash);
    for (uint64_t i = 0; i < all; i++) { // each window of an item once
        if (i && !by_hash(&windows[i], &windows[index->count - 1])) continue;
        windows[index->count++] = windows[i];
        items[windows[i].item].windows++;
    }
    unsigned bits = 1;
    while (1ull << bits < index->count) bits++;
    index->shift = 64 - bits;
    index->starts = allocate_zeroed((1ull << bits) + 1, sizeof *index->starts);
    for (uint64_t i = 0; i < index->count; i++) index->starts[(windows[i].hash >> index->shift) + 1]++;
    for (uint64_t i = 0; i < 1ull << bits; i++) index->starts[i + 1] += index->starts[i];
    index->filter_mask = (FILTER_BITS << bits) - 1ull;
    index->filter = allocate_zeroed((index->filter_mask + 1) / 64 + 1, sizeof *index->filter);
    for (uint64_t i = 0; i < index->count; i++) {
        const uint64_t bit = windows[i].hash & index->filter_mask;
        index->filter[bit / 64] |= 1ull << bit % 64;
    }
}

uint64_t item_index_items(const ItemIndex *index) { return index->items.size / sizeof(Item); }
const Item *item_index_item(const ItemIndex *index, uint64_t item) {
    return (const Item *)(const void *)index->items.data + item;
}
uint64_t item_index_digest(const ItemIndex *index) { return index->digest; }

ItemSearch *item_search_open(const ItemIndex *index) {
    ItemSearch *search = allocate_zeroed(1, sizeof *search);
    search->index = index;
    search->seen = allocate_zeroed(index->count + 1, sizeof *search->seen);
    search->counts = allocate_zeroed(item_index_items(index) + 1, sizeof *search->counts);
    search->occurs = allocate_zeroed(item_index_items(index) + 1, sizeof *search->occurs);
    return search;
}

void item_search_close(ItemSearch *search) {
    if (!search) return;
    words_close(&search->text);
    buffer_close(&search->hashes);
    buffer_close(&search->touched);
    free(search->seen);
    free(search->counts);
    free(search->occurs);
    free(search);
}

// Counts a window of the document for all items that have it.
static void count_window(ItemSearch *search, uint64_t hash, size_t word, unsigned length) {
    const ItemIndex *index = search->index;
    const ItemWindow *windows = windows_of(index);
    const uint64_t bit = hash & index->filter_mask;
    if (!(index->filter[bit / 64] >> bit % 64 & 1)) return;
    uint64_t at = index->starts[hash >> index->shift];
    const uint64_t end = index->starts[(hash >> index->shift) + 1];
    while (at < end && windows[at].hash < hash) at++;
    if (at == end || windows[at].hash != hash || search->seen[at] == search->serial) return;
    search->seen[at] = search->serial;
    for (; at < end && windows[at].hash == hash; at++) {
        ItemCount *count = &search->counts[windows[at].item];
        if (count->serial != search->serial) {
            *count = (ItemCount){search->serial, 0, word, length};
            buffer_add(&search->touched, &windows[at].item, sizeof windows[at].item);
        }
        count->found++;
    }
}

static void count_windows(ItemSearch *search, const uint64_t *hashes, unsigned length) {
    RollingHash rolling = rolling_hash(hashes, length);
    for (size_t i = 0;; i++) {
        count_window(search, rolling.hash, i, length);
        if (i + length == search->text.count) break;
        rolling_hash_next(&rolling, hashes[i], hashes[i + length]);
    }
}

bool item_search(ItemSearch *search, Bytes text, ItemHit *hit) {
    const ItemIndex *index = search->index;
    words_set(&search->text, text);
    search->touched.size = 0;
    if (!++search->serial) { // after 2^32 documents
        memset(search->seen, 0, index->count * sizeof *search->seen);
        memset(search->counts, 0, item_index_items(index) * sizeof *search->counts);
        search->serial = 1;
    }
    const uint64_t *hashes = hash_words(&search->text, &search->hashes);
    for (unsigned length = 1; length <= index->words && length <= search->text.count; length++)
        if (index->has_length[length]) count_windows(search, hashes, length);
    hit->share = 0;
    for (size_t at = 0; at < search->touched.size; at += sizeof(uint32_t)) {
        const uint32_t item = get_u32(search->touched.data + at);
        const double share = (double)search->counts[item].found / item_index_item(index, item)->windows;
        if (share < 0.5) continue;
        search->occurs[item] = true;
        if (share < hit->share || (share == hit->share && item > hit->item)) continue;
        const ItemCount *count = &search->counts[item];
        *hit = (ItemHit){item, share, words_span(&search->text, count->word, count->length)};
    }
    return hit->share > 0;
}

bool item_search_found(const ItemSearch *search, uint64_t item) { return search->occurs[item]; }
