// Text from a network: encodes the start, samples, and decodes each token when it is sampled.
#include "trainer/inference/sample_text.h"
#include "common/err.h"
#include "common/utf8.h"
#include "tokenizer/tokenizer.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Vocab *vocab;
    Bytes stop;
    Buffer held; // sampled, and not emitted yet
    Buffer text; // of one call of emit
    void (*emit)(void *context, Bytes text);
    void *context;
} TextStream;

// The ids of `text` in a buffer with room for `more`; the name of the token that ends a document, as <|endoftext|>, is that
// token in it, as in nanoGPT's sample.py. NULL after fail().
static void *encode_start(const Vocab *vocab, Bytes text, uint64_t more, size_t *count) {
    const Bytes mark = vocab_bytes(vocab, vocab_end_of_text(vocab));
    Encoder *encoder = encoder_open(vocab, INVALID_BYTES);
    const unsigned bytes = vocab_id_bytes(vocab);
    uint8_t *ids = allocate_zeroed(encoder_ids_max(text.size) + more + 1, bytes);
    *count = 0;
    while (text.size) {
        const uint8_t *found = memmem(text.data, text.size, mark.data, mark.size);
        const Bytes before = {text.data, found ? (size_t)(found - text.data) : text.size};
        const ssize_t length = before.size ? encoder_encode(encoder, before, ids + *count * bytes) : 0;
        if (length < 0) break;
        *count += (size_t)length;
        if (found) id_put(ids, (*count)++, bytes, vocab_end_of_text(vocab));
        const size_t done = before.size + (found ? mark.size : 0);
        text = (Bytes){text.data + done, text.size - done};
    }
    encoder_close(encoder);
    if (text.size) return free(ids), NULL;
    if (!*count) id_put(ids, (*count)++, bytes, vocab_end_of_text(vocab)); // an empty start is the start of a document
    return ids;
}

// How many bytes at the end of `text` a next token may complete: to the stop string, or to a character.
static size_t open_end(Bytes text, Bytes stop) {
    for (size_t from = 0; from < text.size; from++) {
        const uint8_t *at = text.data + from, *end = text.data + text.size;
        const size_t left = text.size - from;
        uint32_t point;
        if (left < stop.size && !memcmp(at, stop.data, left)) return left;
        if (left < UTF8_BYTES_MAX && (utf8_decode(at, end, &point), point == UTF8_CUT)) return left;
    }
    return 0;
}

static void drop(Buffer *held, size_t size) {
    memmove(held->data, held->data + size, held->size - size);
    held->size -= size;
}

// Emits the first `size` bytes that are held, which end with a whole character or with bytes that are none.
static void emit(TextStream *stream, size_t size) {
    if (!size) return;
    stream->text.size = 0;
    utf8_replace((Bytes){stream->held.data, size}, &stream->text);
    stream->emit(stream->context, (Bytes){stream->text.data, stream->text.size});
    drop(&stream->held, size);
}

// Emits the start as it is, but for a cut character at its end, which the first token may complete.
static void emit_start(TextStream *stream) {
    const size_t size = stream->held.size - open_end((Bytes){stream->held.data, stream->held.size}, (Bytes){0});
    if (!size) return;
    stream->emit(stream->context, (Bytes){stream->held.data, size});
    drop(&stream->held, size);
}

static bool add_token(void *context, uint32_t id) {
    TextStream *stream = context;
    Buffer *held = &stream->held;
    if (id == vocab_end_of_text(stream->vocab)) return false;
    const Bytes token = vocab_bytes(stream->vocab, id);
    buffer_add(held, token.data, token.size);
    const uint8_t *found =
        stream->stop.size ? memmem(held->data, held->size, stream->stop.data, stream->stop.size) : NULL;
    if (found) {
        emit(stream, (size_t)(found - held->data));
        held->size = 0;
        return false;
    }
    emit(stream, held->size - open_end((Bytes){held->data, held->size}, stream->stop));
    return true;
}

int sample_text(Network *network, const Vocab *vocab, const Sampler *sampler, Bytes start, uint64_t tokens,
                const char *stop, void (*emit_text)(void *context, Bytes text), void *context) {
    TextStream stream = {vocab, {(const uint8_t *)stop, strlen(stop)}, {0}, {0}, emit_text, context};
    size_t length;
    void *ids = encode_start(vocab, start, tokens, &length);
    int result = ids ? 0 : -1;
    if (ids && start.size) result = vocab_decode(vocab, ids, length, &stream.held);
    if (result == 0) {
        emit_start(&stream);
        sample(network, sampler, ids, length, tokens, add_token, &stream);
        emit(&stream, stream.held.size);
    }
    buffer_close(&stream.held), buffer_close(&stream.text);
    free(ids);
    return result;
}
