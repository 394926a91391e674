// Vocabularies: GPT-2's, and those of characters.
#pragma once

#include "common/bytes.h"

enum { TOKEN_COUNT = 50257, TOKEN_END_OF_TEXT = 50256, TOKEN_MAX_BYTES = 128 };

// The vocabulary and its merges. Immutable after it was opened; shared by all threads.
typedef struct Vocab Vocab;

void vocab_close(const Vocab *vocab); // accepts NULL

// A vocabulary of characters: a file of UTF-8 in which each occurs once; its place is its id. 65 for another file.
enum { CHARACTERS_MAX = 50000 };
#define CHARACTERS_FILE "characters.txt" // its name in datasets and runs
const Vocab *vocab_open_characters(const char *path);
const Vocab *vocab_of_characters(Bytes text, const char *name); // the same, of the content of a file

bool vocab_is_characters(const Vocab *vocab);

// Checks a part of a document before it is encoded in a vocabulary of characters, `offset` bytes after its begin. Cuts
// *text to the whole characters that are in the vocabulary; -1 after fail() (65) where another one follows them.
// Without `last` a character that the end of the part cuts is not one.
int vocab_check(const Vocab *vocab, Bytes *text, bool last, uint64_t offset);

unsigned vocab_size(const Vocab *vocab); // with the end of a text, the last id
uint16_t vocab_end_of_text(const Vocab *vocab);

// The bytes of one token; the last is "<|endoftext|>". `id` is below vocab_size.
Bytes vocab_bytes(const Vocab *vocab, uint16_t id);

// The built-in merge table: a version line, then a merge a line, in which vocab_spelling() gives the code point that
// stands for a byte.
Bytes vocab_merges(void);
uint32_t vocab_spelling(uint8_t byte);

// Appends the bytes of the ids to `out`, as tiktoken's decode_bytes. -1 (65) when an id is not below vocab_size.
int vocab_decode(const Vocab *vocab, const uint16_t *ids, size_t count, Buffer *out);

// SHA-256 over "GPT2BPE1\n" or "CHARACT1\n", then for each id its length as u32 and its bytes, then the last id as u32.
void vocab_fingerprint(const Vocab *vocab, uint8_t fingerprint[32]);
bool vocab_has_fingerprint(const Vocab *vocab, const uint8_t fingerprint[32]);
