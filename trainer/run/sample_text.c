// Text from a network: tokenizer, sampling, and back.
#include "trainer/run/sample_text.h"
#include "common/err.h"
#include "tokenizer/tokenizer.h"
#include <stdlib.h>
#include <string.h>

// The ids of `text` in a buffer with room for `more`. NULL after fail().
static uint16_t *encode_start(const Vocab *vocab, const char *text, uint64_t more, size_t *count) {
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE, NULL);
    Bytes bytes = {(const uint8_t *)text, strlen(text)};
    uint16_t *ids = malloc((encoder_ids_max(bytes.size) + more + 1) * sizeof *ids);
    if (!ids) die(EX_MEMORY, "no memory for the text");
    ssize_t length = encoder_encode(encoder, bytes, ids);
    encoder_close(encoder);
    if (length < 0) return free(ids), NULL;
    if (!length) ids[length++] = TOKEN_END_OF_TEXT; // an empty start is the start of a document
    *count = (size_t)length;
    return ids;
}

int sample_text(Network *network, const Sampler *sampler, const char *start, uint64_t tokens, Buffer *out) {
    const Vocab *vocab = vocab_open();
    if (!vocab) return -1;
    size_t length;
    uint16_t *ids = encode_start(vocab, start, tokens, &length);
    int result = -1;
    if (ids) {
        size_t first = *start ? 0 : 1; // without the token of an empty start
        length = sample(network, sampler, ids, length, tokens, NULL, NULL);
        if (length > first && ids[length - 1] == TOKEN_END_OF_TEXT) length--;
        result = vocab_decode(vocab, ids + first, length - first, out);
    }
    free(ids);
    vocab_close(vocab);
    return result;
}
