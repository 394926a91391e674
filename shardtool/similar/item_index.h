// The n-grams of the items of benchmarks, and the search for items in documents. An item occurs in a document that has
// at least half of its distinct windows of `words` words; an item of fewer words, when it occurs whole. Exact but for
// equal hashes of 64 bits.
#pragma once

#include "shardtool/similar/words.h"

enum { ITEM_WORDS_MIN = 8, ITEM_WORDS_MAX = 64 }; // shorter items are not searched for; the longest window

typedef struct {
    uint32_t file;
    uint32_t windows;  // distinct; 0: too short
    uint64_t document; // in the file
} Item;

typedef struct ItemIndex ItemIndex;
ItemIndex *item_index_open(unsigned words);
void item_index_close(ItemIndex *index); // accepts NULL

int item_index_add(ItemIndex *index, Bytes text, uint64_t file, uint64_t document); // -1 after fail(): too many
void item_index_build(ItemIndex *index);                                            // after the last item
uint64_t item_index_items(const ItemIndex *index);
const Item *item_index_item(const ItemIndex *index, uint64_t item);
uint64_t item_index_digest(const ItemIndex *index); // of the items' words

// One thread's search. Borrows the index.
typedef struct ItemSearch ItemSearch;
ItemSearch *item_search_open(const ItemIndex *index);
void item_search_close(ItemSearch *search); // accepts NULL

typedef struct {
    uint32_t item;
    double share;
    Bytes words; // of the first window that was found; valid until the next search
} ItemHit;

// The item of which the text has the greatest share, the first of several. False when no item occurs.
bool item_search(ItemSearch *search, Bytes text, ItemHit *hit);
bool item_search_found(const ItemSearch *search, uint64_t item); // whether it occurs in one of the texts until now
