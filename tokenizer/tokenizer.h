// GPT-2's byte-level BPE. For valid UTF-8 it always gives the ids of tiktoken's encode_ordinary.
#pragma once

#include "common/bytes.h"
#include <stdbool.h>
#include <sys/types.h>

enum { TOKEN_COUNT = 50257, TOKEN_END_OF_TEXT = 50256, TOKEN_MAX_BYTES = 128 };

// The vocabulary and its merges. Immutable after it was opened; shared by all threads.
typedef struct Vocab Vocab;

// Opens the merge table built into the program, or another copy of it: a file with another SHA-256 is refused (65,
// naming both hashes). Encodes a built-in text as a self-check. NULL after fail().
const Vocab *vocab_open(void);
const Vocab *vocab_open_file(const char *path);
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

typedef enum {
    INVALID_REPLACE, // U+FFFD for each maximal subpart, as bytes.decode("utf-8", "replace"); counted
    INVALID_FAIL,    // -1 (65) with the offset
    INVALID_BYTES    // the bytes are encoded as they are, and decoding gives them back
} InvalidUtf8;

// One thread's encoder: a piece cache and buffers. Its memory is bounded, whatever it encodes (see tokenizer.c).
typedef struct Encoder Encoder;
Encoder *encoder_open(const Vocab *vocab, InvalidUtf8 invalid);
void encoder_close(Encoder *encoder); // accepts NULL

// Bounds the piece cache of a new encoder to 16 MB instead of 64.
void encoder_keep_small(Encoder *encoder);

// Encoding a longer word fails (65). A word cannot be encoded before its end, so encoder_encode_part holds it.
// A word that is held takes up to 13 bytes of memory a byte.
enum { ENCODER_MAX_WORD = 256 << 20 }; // the default
void encoder_set_max_word(Encoder *encoder, uint64_t bytes);

// The number of ids to allocate for so many bytes. (A replaced byte can take three ids.)
static inline size_t encoder_ids_max(size_t bytes) { return 3 * bytes + 64; }

// Encodes a whole document into `ids`, which has room for encoder_ids_max(text.size). Returns the number of ids,
// without an end-of-text id, or -1 after fail().
ssize_t encoder_encode(Encoder *encoder, Bytes text, uint16_t *ids);

// Encodes a document that comes in parts of any size. Each call writes the ids that no later part can change and holds
// back the rest of the text (a few bytes, unless a single word is longer than the part); the call with `last` writes
// what is left. All ids together are those of encoder_encode. `ids` has room for encoder_ids_max(part.size +
// encoder_held_bytes(encoder)). Returns the number of ids, or -1 after fail().
ssize_t encoder_encode_part(Encoder *encoder, Bytes part, bool last, uint16_t *ids);
size_t encoder_held_bytes(const Encoder *encoder);

uint64_t encoder_replaced(const Encoder *encoder); // U+FFFD written for invalid bytes so far
