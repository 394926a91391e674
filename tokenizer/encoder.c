// Opening a vocabulary, and encoding documents of any size window by window. The way of a text:
//
//   document     windows of about 256 KiB, cut where no piece crosses     window_size, pretokenize_cut
//   window       starts of up to 512 pieces at a time                     pretokenizer_next: portable, AVX2, AVX-512
//   batch        ids of the pieces that the fast path finds (98 of 100)   piece_cache_encode: portable, AVX-512
//   other piece  its slower slots in the encoder's own piece cache        piece_cache_encode_one
//                its merges, after which the cache holds it              bpe_merge: portable, AVX-512
//
// A window that is not UTF-8 is encoded a second time, as InvalidUtf8 says (encode_invalid).
//
// Memory of an encoder: its piece cache (at most 64 MB, or 22), a window with its repaired copy (below 1 MB for text
// that can be cut at least every WINDOW bytes), and the text that encoder_encode_part holds back.
#include "common/err.h"
#include "common/utf8.h"
#include "tokenizer/cache/piece_cache.h"
#include "tokenizer/merge/pretokenize.h"
#include "tokenizer/merge/unicode.h"
#include "tokenizer/tokenizer.h"
#include <assert.h>
#include <stdlib.h>

enum {
    WINDOW = 256 << 10,    // the unit that is encoded again, or copied, when it is not UTF-8
    BUFFER_KEEP = 4 << 20, // larger buffers, after a very long word, are freed again
};

struct Encoder {
    PieceCache pieces;
    InvalidUtf8 invalid;
    Isa isa;
    uint64_t replaced;
    Buffer text; // a window with its invalid bytes replaced
    Buffer held; // the text that encoder_encode_part holds back
    uint64_t max_word;
    uint64_t offset; // bytes of the document encoded so far
};

// Compares the ids of a short text, so that a wrong build or faulty memory is found before it writes shards.
static int self_check(const Vocab *vocab) {
    static const char text[] = "Hello world, it's 2026!\n\n  \xE4\xB8\xAD\xD0\xB6\xC2\xA0 x<|endoftext|>";
    static const uint16_t want[] = {15496, 995, 11,   340,  338, 1160, 2075, 0,    628,  220, 220, 40792,
                                    140,   114, 1849, 2124, 27,  91,   437,  1659, 5239, 91,  29};
    uint16_t got[3 * sizeof text + 64]; // encoder_ids_max
    Encoder *encoder = encoder_open(vocab, INVALID_FAIL);
    ssize_t count = encoder_encode(encoder, (Bytes){(const uint8_t *)text, sizeof text - 1}, got);
    encoder_close(encoder);
    if (count * 2 == sizeof want && !memcmp(got, want, sizeof want)) return 0;
    return fail(EX_BUG, "the tokenizer fails its self-check: this build or this machine computes wrong results");
}

const Vocab *vocab_open(void) {
    const Vocab *vocab = vocab_build();
    if (self_check(vocab) == 0) return vocab;
    vocab_close(vocab);
    return NULL;
}

Encoder *encoder_open(const Vocab *vocab, InvalidUtf8 invalid) {
    Encoder *encoder = allocate_zeroed(1, sizeof *encoder);
    encoder->invalid = invalid;
    encoder->isa = cpu_isa();
    encoder->max_word = ENCODER_MAX_WORD;
    piece_cache_open(&encoder->pieces, vocab, encoder->isa);
    return encoder;
}

void encoder_close(Encoder *encoder) {
    if (!encoder) return;
    piece_cache_close(&encoder->pieces);
    buffer_close(&encoder->text);
    buffer_close(&encoder->held);
    free(encoder);
}

void encoder_keep_small(Encoder *encoder) { piece_cache_keep_small(&encoder->pieces); }
void encoder_set_max_word(Encoder *encoder, uint64_t bytes) { encoder->max_word = bytes; }
uint64_t encoder_replaced(const Encoder *encoder) { return encoder->replaced; }

enum { NOT_UTF8 = -2 };

static ssize_t fail_long_word(const Encoder *encoder, size_t at) {
    return fail(EX_DATA, "a word of more than %llu bytes at byte %llu (--max-word)",
                (unsigned long long)encoder->max_word, (unsigned long long)(encoder->offset + at));
}

// The start of the first piece of more than max_word bytes, or SIZE_MAX.
static size_t find_long_word(const Encoder *encoder, const uint32_t *starts, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (starts[i + 1] - starts[i] > encoder->max_word) return starts[i];
    return SIZE_MAX;
}

// The fast path reads past a piece, so pieces near the end are encoded from a padded copy. Returns the number of units
// of 16 bits in the ids, -1 after fail(), or NOT_UTF8 without an error, unless any_bytes is set.
static ssize_t encode_pieces(Encoder *encoder, Bytes text, Isa isa, bool any_bytes, uint16_t *ids) {
    PieceCache *cache = &encoder->pieces;
    size_t long_word = SIZE_MAX;
    uint8_t tail[2 * PIECE_READ] = {0};
    size_t tail_at = text.size > PIECE_READ ? text.size - PIECE_READ : 0;
    memcpy(tail, text.data + tail_at, text.size - tail_at);

    uint32_t starts[PRETOKENIZE_STARTS];
    uint16_t *out = ids;
    Pretokenizer pretokenizer;
    pretokenizer_open(&pretokenizer, text, cache->vocab->pattern, isa);
    for (size_t count; (count = pretokenizer_next(&pretokenizer, starts));) {
        if (text.size > encoder->max_word && long_word == SIZE_MAX) long_word = find_long_word(encoder, starts, count);
        size_t whole = count;
        while (whole && (size_t)starts[whole - 1] + PIECE_READ > text.size) whole--;
        out += piece_cache_encode(cache, text.data, starts, whole, out);
        for (size_t i = whole; i <= count; i++) starts[i] -= (uint32_t)tail_at;
        if (whole < count) out += piece_cache_encode(cache, tail, starts + whole, count - whole, out);
    }
    if (pretokenizer.invalid && !any_bytes) return NOT_UTF8;
    return long_word == SIZE_MAX ? out - ids : fail_long_word(encoder, long_word);
}

static ssize_t encode_invalid(Encoder *encoder, Bytes text, uint16_t *ids) {
    if (encoder->invalid == INVALID_BYTES) return encode_pieces(encoder, text, ISA_PORTABLE, true, ids);
    if (encoder->invalid == INVALID_FAIL)
        return fail(EX_DATA, "invalid UTF-8 at byte %llu", (unsigned long long)(encoder->offset + utf8_valid(text)));
    encoder->text.size = 0;
    encoder->replaced += utf8_replace(text, &encoder->text);
    Bytes replaced = {encoder->text.data, encoder->text.size};
    if (replaced.size > UINT32_MAX) return fail(EX_DATA, "%zu bytes of invalid UTF-8 in a row", text.size);
    ssize_t count = encode_pieces(encoder, replaced, encoder->isa, false, ids);
    if (encoder->text.capacity > BUFFER_KEEP) buffer_close(&encoder->text);
    return count;
}

// A window is text that begins and ends where the document may be cut.
static ssize_t encode_window(Encoder *encoder, Bytes text, uint16_t *ids) {
    if (text.size > UINT32_MAX) // positions in a window are 32 bits
        return fail(EX_DATA, "a word of more than 4 GiB at byte %llu", (unsigned long long)encoder->offset);
    ssize_t count = encode_pieces(encoder, text, encoder->isa, false, ids);
    if (count == NOT_UTF8) count = encode_invalid(encoder, text, ids);
    encoder->offset += text.size;
    return count;
}

// The size of the text's first window: up to a cut, or all of the text if it cannot be cut.
static size_t window_size(Bytes text, Pattern pattern) {
    for (size_t size = WINDOW, from = 0; size < text.size; from = size - UTF8_BYTES_MAX, size *= 2) {
        size_t cut = pretokenize_cut((Bytes){text.data, size}, from, pattern);
        if (cut) return cut;
    }
    return text.size;
}

static ssize_t encode_windows(Encoder *encoder, Bytes text, uint16_t *ids) {
    uint16_t *out = ids;
    if (encoder->pieces.vocab->characters) {
        ssize_t count = characters_encode(encoder->pieces.vocab, text, encoder->offset, ids);
        encoder->offset += text.size;
        return count;
    }
    while (text.size) {
        Bytes window = {text.data, window_size(text, encoder->pieces.vocab->pattern)};
        ssize_t count = encode_window(encoder, window, out);
        if (count < 0) return -1;
        out += count;
        text.data += window.size, text.size -= window.size;
    }
    return out - ids;
}

static ssize_t count_ids(const Encoder *encoder, ssize_t units) {
    return units < 0 || encoder->pieces.vocab->id_bytes == 2 ? units : units / 2;
}

ssize_t encoder_encode(Encoder *encoder, Bytes text, void *ids) {
    assert(!encoder->held.size); // the document before, if it came in parts, must be finished
    ssize_t count = encode_windows(encoder, text, ids);
    encoder->offset = 0;
    return count_ids(encoder, count);
}

ssize_t encoder_encode_part(Encoder *encoder, Bytes part, bool last, void *ids) {
    Buffer *held = &encoder->held;
    Bytes text = part;
    size_t searched = 0;
    bool joined = held->size;
    if (joined) {
        // The last character held may have been incomplete.
        searched = held->size > UTF8_BYTES_MAX ? held->size - UTF8_BYTES_MAX : 0;
        buffer_add(held, part.data, part.size);
        text = (Bytes){held->data, held->size};
    }
    size_t done = last ? text.size : pretokenize_cut(text, searched, encoder->pieces.vocab->pattern);
    ssize_t count = encode_windows(encoder, (Bytes){text.data, done}, ids);
    if (count >= 0 && text.size - done > encoder->max_word) count = fail_long_word(encoder, 0);
    if (count < 0 || last) {
        held->size = 0;
        encoder->offset = 0;
        if (held->capacity > BUFFER_KEEP) buffer_close(held);
    } else if (joined) {
        memmove(held->data, held->data + done, held->size -= done);
    } else if (done < text.size) {
        buffer_add(held, text.data + done, text.size - done);
    }
    return count_ids(encoder, count);
}

size_t encoder_held_bytes(const Encoder *encoder) { return encoder->held.size; }

Bytes text_trimmed(Bytes text) {
    while (text.size) {
        uint32_t point;
        size_t last = text.size - 1;
        while (last && (text.data[last] & 0xC0) == 0x80) last--;
        utf8_decode(text.data + last, text.data + text.size, &point);
        if (unicode_class(point) != CLASS_SPACE && !(point >= 0x1C && point <= 0x1F)) break;
        text.size = last;
    }
    return text;
}
