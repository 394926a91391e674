// Encoder and decoder: documents of any size to ids, window by window, and back.
//
// Memory of an encoder: the word table (words.c, 64 MB at most), a window with its replaced copy (below 1 MB for text
// that has a word boundary at least every WINDOW bytes), and what encode_part keeps.
#include "tokenizer/tokenizer.h"
#include "common/err.h"
#include "common/utf8.h"
#include "tokenizer/cache/piece_cache.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"
#include <assert.h>
#include <stdlib.h>

enum {
    WINDOW = 256 << 10, // what is encoded twice because it was not UTF-8, or copied to be replaced
    UTF8_MAX = 4,       // bytes of a character
    KEPT = 4 << 20      // of memory that one long word took, for the next
};

struct Encoder {
    PieceCache words;
    InvalidUtf8 invalid;
    Isa isa;
    uint64_t replaced;
    Buffer text;     // a window with its invalid bytes replaced
    Buffer held;     // what encode_part could not encode yet
    uint64_t offset; // of the document's bytes encoded so far
};

Encoder *encoder_open(const Vocab *vocab, InvalidUtf8 invalid, SharedCache *shared_cache) {
    Encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder) die(EX_MEMORY, "no memory for an encoder");
    encoder->invalid = invalid;
    encoder->isa = cpu_isa();
    piece_cache_open(&encoder->words, vocab, shared_cache, encoder->isa);
    return encoder;
}

void encoder_close(Encoder *encoder) {
    if (!encoder) return;
    piece_cache_close(&encoder->words);
    buffer_close(&encoder->text);
    buffer_close(&encoder->held);
    free(encoder);
}

uint64_t encoder_replaced(const Encoder *encoder) { return encoder->replaced; }
uint64_t encoder_merged(const Encoder *encoder) { return encoder->words.merged; }

// Pieces near the end are encoded from a copy with room behind it, so that the fast path may read on. Returns the count
// of ids, or -1 without an error if the text is not UTF-8 and isa needs that.
static ssize_t encode_pieces(PieceCache *words, Bytes text, Isa isa, bool bytes, uint16_t *ids) {
    uint8_t tail[2 * PIECE_READ] = {0};
    size_t tail_at = text.size > PIECE_READ ? text.size - PIECE_READ : 0;
    memcpy(tail, text.data + tail_at, text.size - tail_at);

    uint32_t starts[PRETOKENIZE_STARTS];
    uint16_t *out = ids;
    Pretokenizer pretokenizer;
    pretokenizer_open(&pretokenizer, text, isa);
    for (size_t count; (count = pretokenizer_next(&pretokenizer, starts));) {
        size_t whole = count;
        while (whole && (size_t)starts[whole - 1] + PIECE_READ > text.size) whole--;
        out += piece_cache_encode(words, text.data, starts, whole, out);
        for (size_t i = whole; i <= count; i++) starts[i] -= (uint32_t)tail_at;
        if (whole < count) out += piece_cache_encode(words, tail, starts + whole, count - whole, out);
    }
    return pretokenizer.invalid && !bytes ? -1 : out - ids;
}

static ssize_t encode_invalid(Encoder *encoder, Bytes text, uint16_t *ids) {
    if (encoder->invalid == INVALID_BYTES) return encode_pieces(&encoder->words, text, ISA_PORTABLE, true, ids);
    if (encoder->invalid == INVALID_FAIL)
        return fail(EX_DATA, "invalid UTF-8 at byte %llu", (unsigned long long)(encoder->offset + utf8_valid(text)));
    encoder->text.size = 0;
    encoder->replaced += utf8_replace(text, &encoder->text);
    Bytes replaced = {encoder->text.data, encoder->text.size};
    if (replaced.size > UINT32_MAX) return fail(EX_DATA, "%zu bytes of invalid UTF-8 in a row", text.size);
    ssize_t count = encode_pieces(&encoder->words, replaced, encoder->isa, false, ids);
    if (encoder->text.capacity > KEPT) buffer_close(&encoder->text);
    return count;
}

// A window: text that begins and ends where the document may be cut.
static ssize_t encode_window(Encoder *encoder, Bytes text, uint16_t *ids) {
    if (text.size > UINT32_MAX) // positions in a window are 32 bits
        return fail(EX_DATA, "a word of more than 4 GiB at byte %llu", (unsigned long long)encoder->offset);
    ssize_t count = encode_pieces(&encoder->words, text, encoder->isa, false, ids);
    if (count < 0) count = encode_invalid(encoder, text, ids);
    encoder->offset += text.size;
    return count;
}

// How much of text goes into its first window: up to a cut, or all of it when there is none.
static size_t window_size(Bytes text) {
    for (size_t size = WINDOW, from = 0; size < text.size; from = size - UTF8_MAX, size *= 2) {
        size_t cut = pretokenize_cut((Bytes){text.data, size}, from);
        if (cut) return cut;
    }
    return text.size;
}

static ssize_t encode_windows(Encoder *encoder, Bytes text, uint16_t *ids) {
    uint16_t *out = ids;
    if (!encoder->words.seeded) piece_cache_seed(&encoder->words);
    while (text.size) {
        Bytes window = {text.data, window_size(text)};
        ssize_t count = encode_window(encoder, window, out);
        if (count < 0) return -1;
        out += count;
        text.data += window.size, text.size -= window.size;
    }
    return out - ids;
}

ssize_t encoder_encode(Encoder *encoder, Bytes text, uint16_t *ids) {
    assert(!encoder->held.size); // a document that came in parts ends with its last part
    ssize_t count = encode_windows(encoder, text, ids);
    encoder->offset = 0;
    return count;
}

ssize_t encoder_encode_part(Encoder *encoder, Bytes part, bool last, uint16_t *ids) {
    Buffer *held = &encoder->held;
    Bytes text = part;
    size_t searched = 0;
    bool joined = held->size;
    if (joined) {
        searched = held->size > UTF8_MAX ? held->size - UTF8_MAX : 0; // a character may have been incomplete
        buffer_add(held, part.data, part.size);
        text = (Bytes){held->data, held->size};
    }
    size_t done = last ? text.size : pretokenize_cut(text, searched);
    ssize_t count = encode_windows(encoder, (Bytes){text.data, done}, ids);
    if (count < 0 || last) {
        held->size = 0;
        encoder->offset = 0;
        if (held->capacity > KEPT) buffer_close(held);
    } else if (joined) {
        memmove(held->data, held->data + done, held->size -= done);
    } else {
        buffer_add(held, text.data + done, text.size - done);
    }
    return count;
}

size_t encoder_held_bytes(const Encoder *encoder) { return encoder->held.size; }

int vocab_decode(const Vocab *vocab, const uint16_t *ids, size_t count, Buffer *out) {
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= TOKEN_COUNT) return fail(EX_DATA, "id %u at %zu is not below %d", ids[i], i, TOKEN_COUNT);
        Bytes token = vocab_bytes(vocab, ids[i]);
        buffer_add(out, token.data, token.size);
    }
    return 0;
}
