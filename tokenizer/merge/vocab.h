// Vocabularies: GPT-2's, those of characters, and byte-level BPE of other tools (tokenizer/files).
#pragma once

#include "common/bytes.h"
#include "common/turns.h"

enum { TOKEN_COUNT = 50257, TOKEN_END_OF_TEXT = 50256, TOKEN_BYTES = 320827, TOKEN_MAX_BYTES = 128 }; // of GPT-2's

// The vocabulary and its merges. Immutable after it was opened; shared by all threads.
typedef struct Vocab Vocab;

void vocab_close(const Vocab *vocab); // accepts NULL

// A vocabulary of characters: a UTF-8 file in which each character occurs once. The id of a character is its position
// in the file, from 0. NULL after fail() (65) for another file.
enum { CHARACTERS_MAX = 50000 };
#define CHARACTERS_FILE "characters.txt" // its name in datasets and runs
const Vocab *vocab_open_characters(const char *path);
const Vocab *vocab_open_characters_text(Bytes text, const char *name); // the content of such a file

bool vocab_is_characters(const Vocab *vocab);
bool vocab_is_gpt2(const Vocab *vocab);

// Checks a part of a document, which begins at byte `offset`, before it is encoded in a vocabulary of characters. Cuts
// *text to the whole characters up to the first that is not in the vocabulary; -1 after fail() (65) when there is one.
// Without `last`, a character that is incomplete at the end of the part is cut without an error.
int vocab_check(const Vocab *vocab, Bytes *text, bool last, uint64_t offset);

unsigned vocab_size(const Vocab *vocab);                // the number of ids, those of special tokens included
unsigned vocab_end_of_text(const Vocab *vocab);         // of GPT-2's vocabulary and of characters, the last id
bool vocab_is_special(const Vocab *vocab, unsigned id); // which no text has
unsigned vocab_id_bytes(const Vocab *vocab);            // 2 or 4: of an id in arrays (id_array.h)

// The ids of the markers of conversations.
TurnIds vocab_turns(const Vocab *vocab);

// The vocabulary with the markers that it lacks as its next ids; closes `vocab`, unless it has them all and is
// returned. NULL after fail() (65): a vocabulary of characters, or a marker is a token of its text.
const Vocab *vocab_with_turns(const Vocab *vocab);

// The bytes of one token, of a special one its name. `id` is below vocab_size.
Bytes vocab_bytes(const Vocab *vocab, unsigned id);

// The code point that stands for a byte in GPT-2's merge table and in the files of Hugging Face.
uint32_t vocab_spelling(uint8_t byte);

// Appends the bytes of the ids, of vocab_id_bytes each, to `out`, as tiktoken's decode_bytes. -1 (65) when an id is not
// below vocab_size.
int vocab_decode(const Vocab *vocab, const void *ids, size_t count, Buffer *out);

// SHA-256 over "GPT2BPE1\n", "CHARACT1\n", or for other merges "BYTEBPE1\n", the pattern, whether pieces that are
// tokens are taken whole, the numbers of tokens and of merges, and of each merge the two ids and the third, as u16 or
// u32 by id_bytes(tokens); then for each id its length as u32 and its bytes, then the end of a text as u32, and where
// special tokens are not the last ids, their ids as u32.
void vocab_fingerprint(const Vocab *vocab, uint8_t fingerprint[32]);
bool vocab_has_fingerprint(const Vocab *vocab, const uint8_t fingerprint[32]);
bool vocab_is_gpt2_fingerprint(const uint8_t fingerprint[32]);
