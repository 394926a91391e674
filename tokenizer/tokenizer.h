// GPT-2's byte-level BPE. For valid UTF-8 it always gives the ids of tiktoken's encode_ordinary.
#pragma once

#include "tokenizer/merge/vocab.h"
#include <sys/types.h>

// Opens GPT-2's vocabulary, which is built into the program, and encodes a text as a self-check. NULL after fail().
const Vocab *vocab_open(void);

typedef enum {
    INVALID_REPLACE, // U+FFFD for each maximal subpart, as bytes.decode("utf-8", "replace"); counted
    INVALID_FAIL,    // -1 (65) with the offset
    INVALID_BYTES    // the bytes are encoded as they are, and decoding gives them back
} InvalidUtf8;

// One thread's encoder: a piece cache and buffers. Its memory is bounded, whatever it encodes (see encoder.c).
typedef struct Encoder Encoder;
Encoder *encoder_open(const Vocab *vocab, InvalidUtf8 invalid);
void encoder_close(Encoder *encoder); // accepts NULL

// Bounds the piece cache of a new encoder to 22 MB instead of 64.
void encoder_keep_small(Encoder *encoder);

// Encoding a longer word fails (65). A word cannot be encoded before its end, so encoder_encode_part holds it.
// A word that is held needs up to 13 bytes of memory for each of its bytes.
enum { ENCODER_MAX_WORD = 256 << 20 }; // the default
void encoder_set_max_word(Encoder *encoder, uint64_t bytes);

// The number of ids to allocate for so many bytes. (A replaced byte can become three ids.)
static inline size_t encoder_ids_max(size_t bytes) { return 3 * bytes + 64; }

// Encodes a whole document into `ids`, of vocab_id_bytes each, which has room for encoder_ids_max(text.size). Returns
// the number of ids, without an end-of-text id, or -1 after fail().
ssize_t encoder_encode(Encoder *encoder, Bytes text, void *ids);

// Encodes a document that comes in parts of any size. Each call writes the ids that no later part can change and holds
// back the rest of the text (a few bytes, unless a single word is longer than the part); the call with `last` writes
// the rest. All ids together equal encoder_encode's. `ids` has room for encoder_ids_max(part.size +
// encoder_held_bytes(encoder)). Returns the number of ids, or -1 after fail().
ssize_t encoder_encode_part(Encoder *encoder, Bytes part, bool last, void *ids);
size_t encoder_held_bytes(const Encoder *encoder);

Bytes text_trimmed(Bytes text); // of UTF-8, without the white space at its end, as Python's rstrip

uint64_t encoder_replaced(const Encoder *encoder); // U+FFFD written for invalid bytes so far
