// GPT-2's byte-level BPE, exact: for valid UTF-8 the ids of tiktoken's encode_ordinary, always.
#pragma once

#include "common/bytes.h"
#include <sys/types.h>

enum { TOKEN_COUNT = 50257, TOKEN_END_OF_TEXT = 50256, TOKEN_MAX_BYTES = 128 };

// The vocabulary and its merges: immutable once open, shared by all threads.
typedef struct Vocab Vocab;

// From the table built into the program, or from another copy of it (its SHA-256 is checked: 65 names both hashes).
// Encodes a few built-in vectors as a self-check. NULL after fail().
const Vocab *vocab_open(void);
const Vocab *vocab_open_file(const char *path);
void vocab_close(const Vocab *vocab);               // accepts NULL
Bytes vocab_bytes(const Vocab *vocab, uint16_t id); // of one token; 50256 is "<|endoftext|>"; id < TOKEN_COUNT

// SHA-256 over "GPT2BPE1\n", then per id 0..50256 u32 length + bytes, then u32 50256.
void vocab_fingerprint(const Vocab *vocab, uint8_t fingerprint[32]);

typedef enum {
    INVALID_REPLACE, // U+FFFD per maximal subpart, as bytes.decode("utf-8", "replace"); counted
    INVALID_FAIL,    // 65 with the offset
    INVALID_BYTES    // the raw bytes are encoded; decode gives them back
} InvalidUtf8;

// The words that encoders have learnt, shared by all threads: what one has merged the others find. Optional, and never
// a matter of which ids come out. At most 40 MB, stated in shared_cache.c; close it after its encoders.
//
// To look for a word that is in no cache takes half as long as to merge it, and most new words are new to everyone. So
// encoders of fewer than SHARED_CACHE_THREADS threads only write down what they learn, for a file: two that looked
// would be a tenth slower in their first pass, four the same, sixteen a tenth faster (make bench-tokenizer).
enum { SHARED_CACHE_THREADS = 8 };
typedef struct SharedCache SharedCache;
SharedCache *shared_cache_open(const Vocab *vocab, unsigned threads);
void shared_cache_close(SharedCache *shared_cache); // accepts NULL

// As a file of at most 32 MB, for later runs, which then need not merge what this one did. Load before encoders run and
// save after. A file that is damaged, cut or of another vocabulary is refused (65): go on without it, and save anew.
int shared_cache_load(SharedCache *shared_cache, const char *path);
int shared_cache_save(const SharedCache *shared_cache, const char *path);

// One thread's encoder: word table, buffers. Bounded memory (stated in tokenizer.c), whatever it is fed.
// shared_cache may be NULL.
typedef struct Encoder Encoder;
Encoder *encoder_open(const Vocab *vocab, InvalidUtf8 invalid, SharedCache *shared_cache);
void encoder_close(Encoder *encoder);              // accepts NULL
uint64_t encoder_replaced(const Encoder *encoder); // U+FFFD written for invalid bytes so far
uint64_t encoder_merged(const Encoder *encoder);   // words that neither it nor the shared_cache knew

// Encodes a whole document. ids has room for at least text.size ids, plus 2 for each replacement at most: use
// encode_bound. Returns the count, or -1 after fail(). Never adds an end-of-text id.
static inline size_t encoder_ids_max(size_t bytes) { return 3 * bytes + 64; }
ssize_t encoder_encode(Encoder *encoder, Bytes text, uint16_t *ids);

// A document in pieces of any size: encode_part as often as needed, each call writes the ids that are already certain
// (a piece boundary is proven) and keeps the rest of the text (bounded, but for one word without end); the call with
// last = true writes what is left. The ids together equal encoder_encode() of the whole. ids has room for
// encoder_ids_max(part.size + encoder_held_bytes(encoder)).
ssize_t encoder_encode_part(Encoder *encoder, Bytes part, bool last, uint16_t *ids);
size_t encoder_held_bytes(const Encoder *encoder);

// Appends the bytes of ids to out; 65 when an id is not below TOKEN_COUNT. As tiktoken's decode_bytes.
int vocab_decode(const Vocab *vocab, const uint16_t *ids, size_t count, Buffer *out);
