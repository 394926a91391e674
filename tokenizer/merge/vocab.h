// Vocabularies: GPT-2's, vocabularies of characters, and byte-level BPE of other tools (tokenizer/files).
//
// The fingerprint of a vocabulary (vocab_fp) is the SHA-256 of these bytes; numbers are little-endian:
//
//   kind       "GPT2BPE1\n" for the vocabulary of GPT-2, "CHARACT1\n" for characters, else "BYTEBPE1\n"
//   merges     only of BYTEBPE1: the text "PATTERN W C M\n", then M merges. PATTERN is the name of the pattern: gpt2,
//              gpt4, llama3, qwen2 or o200k. W is 1 if a piece that is a token is that token, whatever its merges
//              (ignore_merges of tokenizer.json), else 0. C is the number of ids that are not special. A merge is three
//              ids: left, right, and their token. An id has 16 bits, or 32 in a vocabulary of more than 65,536
//              ids. Merges are sorted by the third id, then by the first, then by the second; none occurs twice
//   tokens     for each id from 0: the length of its token as u32, and its bytes; of a special token, its name. The
//              ids of characters are their places in characters.txt; the end follows them, as <|endoftext|>
//   end        the id of the end of a text as u32
//   special    the ids of the special tokens as u32, ascending, but nothing if they are the last ids of the vocabulary
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
#define CHARACTERS_FILE "characters.txt"                               // its name in datasets and runs
const Vocab *vocab_open_characters_text(Bytes text, const char *name); // of the content of such a file

bool vocab_is_characters(const Vocab *vocab);
bool vocab_is_gpt2(const Vocab *vocab);

// Checks a part of a document, which begins at byte `offset`, before it is encoded in a vocabulary of characters. Cuts
// *text to the whole characters up to the first that is not in the vocabulary; -1 after fail() (65) when there is one.
// Without `last`, a character that is incomplete at the end of the part is cut without an error.
int vocab_check(const Vocab *vocab, Bytes *text, bool last, uint64_t offset);

unsigned vocab_size(const Vocab *vocab);                // the number of ids, special tokens included
unsigned vocab_end_of_text(const Vocab *vocab);         // of GPT-2's vocabulary and of characters, the last id
bool vocab_is_special(const Vocab *vocab, unsigned id); // which no text has
unsigned vocab_id_bytes(const Vocab *vocab);            // 2 or 4: of an id in arrays (id_array.h)
const char *vocab_pattern(const Vocab *vocab);          // its name (patterns.def); NULL: characters

// Whether the ids of texts stay as they are when a piece that is a token is that token (`whole`), or when only merges
// count.
bool vocab_encodes_pieces(const Vocab *vocab, bool whole);

// The ids of the markers of conversations.
TurnIds vocab_turns(const Vocab *vocab);

// The vocabulary with the markers that it lacks as its next ids; closes `vocab`, unless it has them all and is
// returned. NULL after fail() (65): a vocabulary of characters, or a marker is a token of its text.
const Vocab *vocab_with_turns(const Vocab *vocab);

// The bytes of one token, of a special one its name. `id` is below vocab_size.
Bytes vocab_bytes(const Vocab *vocab, unsigned id);

// The code point that represents a byte in GPT-2's merge table and in the files of Hugging Face.
uint32_t vocab_spelling(uint8_t byte);

// Appends the bytes of the ids, of vocab_id_bytes each, to `out`, as tiktoken's decode_bytes. -1 (65) when an id is not
// below vocab_size.
int vocab_decode(const Vocab *vocab, const void *ids, size_t count, Buffer *out);

void vocab_fingerprint(const Vocab *vocab, uint8_t fingerprint[32]);
bool vocab_has_fingerprint(const Vocab *vocab, const uint8_t fingerprint[32]);
bool vocab_is_gpt2_fingerprint(const uint8_t fingerprint[32]);
