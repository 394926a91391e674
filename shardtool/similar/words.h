// The words of a text as near-duplicates and n-grams compare them, and the hashes of n words in a row.
//
// Normal form, version 2: lower case, decomposed (NFD, by code point), without nonspacing marks (Mn) and format
// characters (Cf); then each number, decimal digits with at most one inner decimal separator, is 0; punctuation,
// symbols, blanks, controls and bytes that are not UTF-8 separate words. In scripts without blanks (Han, Kana, Thai,
// Lao, Khmer, Burmese) each character is a word. Version 1 cut a number at a mark or format character.
#pragma once

#include "common/bytes.h"

enum { WORDS_VERSION = 2 };

// Zero it before the first use; the next text replaces the one before. `text` has one blank between two words.
typedef struct {
    Buffer text;
    size_t *starts; // of each word in the text, then the size of the text + 1
    size_t count, capacity;
    uint64_t digits; // hash of all digits: differs between texts that are equal but for their numbers
} TextWords;

void words_set(TextWords *words, Bytes text);
void words_split(TextWords *words); // finds the words of a `text` in normal form again, all but `digits`
void words_close(TextWords *words);

// TextWords [first, first + count), with one blank between two.
static inline Bytes words_span(const TextWords *words, size_t first, size_t count) {
    return (Bytes){words->text.data + words->starts[first], words->starts[first + count] - 1 - words->starts[first]};
}

// Sets `hashes` to XXH64 of each `length` words in a row, as u64. Of fewer words: of all of them; of none: nothing.
// Returns their number.
size_t words_hash(const TextWords *words, size_t length, Buffer *hashes);
