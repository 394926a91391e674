// The shingles of a document: the set of the hashes of 5 words in a row, and its MinHash.
#pragma once

#include "shardtool/similar/bitmap_filter.h"
#include "shardtool/similar/minhash.h"
#include "shardtool/similar/words.h"
#include "shardtool/support/hash_set.h"

enum { SHINGLE_WORDS = 5 };

// One thread's memory. Zero it, then shingler_open.
typedef struct {
    MinhashValues *values;
    TextWords words;
    Buffer hashes;
    HashSet seen;
} Shingler;

void shingler_open(Shingler *shingler);
void shingler_close(Shingler *shingler); // accepts a zeroed struct

// The bands of a text. False when it has no word: then it is like no other text.
bool shingler_bands(Shingler *shingler, Bytes text, MinhashBand bands[MINHASH_BANDS]);

// What is compared of a document, before its distinct hashes in the order of the text, their bitmap, and its words.
typedef struct {
    uint64_t count;  // of hashes
    uint64_t text;   // hash of its words
    uint64_t digits; // of its numbers, see words.h
    uint64_t bytes;  // of its words
} ShingleHead;

void shingler_set(Shingler *shingler, Bytes text, Buffer *out); // appends all four to `out`
void shingler_set_again(Shingler *shingler, Buffer *out);       // of the text of the last shingler_bands
void shingler_hash_again(Shingler *shingler); // sets `hashes`, equal ones too, to those of a normal form in words.text
