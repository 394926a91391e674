// Text from a network: encodes the start, samples, and decodes each token when it is sampled.
#include "trainer/inference/sample_text.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "common/turns.h"
#include "common/utf8.h"
#include "tokenizer/tokenizer.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const Vocab *vocab;
    TurnIds turns; // known: the markers end the text
    Bytes stop;
    Buffer held; // sampled, and not emitted yet
    Buffer text; // of one call of emit
    bool (*emit)(void *context, Bytes text);
    void *context;
} TextStream;

// The ids of `text` in a buffer with room for `more`; the name of the token that ends a document, as <|endoftext|>, is
// that token in it, as in nanoGPT's sample.py. NULL after fail().
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

// Emits the first `size` bytes that are held, which end with a whole character or with bytes that are not a character.
// False: the text ends there.
static bool emit(TextStream *stream, size_t size) {
    if (!size) return true;
    stream->text.size = 0;
    utf8_replace((Bytes){stream->held.data, size}, &stream->text);
    const bool more = stream->emit(stream->context, (Bytes){stream->text.data, stream->text.size});
    drop(&stream->held, size);
    return more;
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
    for (int i = 0; i < TURN_COUNT; i++)
        if (stream->turns.known && id == stream->turns.ids[i]) return false;
    const Bytes token = vocab_bytes(stream->vocab, id);
    buffer_add(held, token.data, token.size);
    const uint8_t *found =
        stream->stop.size ? memmem(held->data, held->size, stream->stop.data, stream->stop.size) : NULL;
    if (found) {
        emit(stream, (size_t)(found - held->data));
        held->size = 0;
        return false;
    }
    if (!emit(stream, held->size - open_end((Bytes){held->data, held->size}, stream->stop))) return false;
    if (stop_check("a text was sampled") == 0) return true;
    err_clear();
    return false;
}

int sample_text(Network *network, const Vocab *vocab, const Sampler *sampler, Bytes start, uint64_t tokens,
                const char *stop, bool (*emit_text)(void *context, Bytes text), void *context) {
    TextStream stream = {vocab, {0}, {(const uint8_t *)stop, strlen(stop)}, {0}, {0}, emit_text, context};
    size_t length;
    void *ids = encode_start(vocab, start, tokens, &length);
    int result = ids ? 0 : -1;
    if (ids && start.size) result = vocab_decode(vocab, ids, length, &stream.held);
    if (result == 0) {
        emit_start(&stream);
        if (sample(network, sampler, ids, length, tokens, add_token, &stream) < 0) result = -1;
        emit(&stream, stream.held.size);
    }
    buffer_close(&stream.held), buffer_close(&stream.text);
    free(ids);
    return result;
}

// ---- conversations

// The ids of the messages so far, from the id that ends a document on.
typedef struct {
    void *ids; // with room for a block
    size_t length, room;
    unsigned bytes;
    TurnIds turns;
    bool forgot; // and said so
} Conversation;

static void add_id(Conversation *talk, uint32_t id) {
    assert(talk->length < talk->room);
    id_put(talk->ids, talk->length++, talk->bytes, id);
}

// Forgets the first message of a user, and the text after it up to the next one.
static void forget_pair(Conversation *talk) {
    size_t next = 2;
    while (next < talk->length && id_at(talk->ids, next, talk->bytes) != talk->turns.ids[TURN_USER]) next++;
    memmove((char *)talk->ids + talk->bytes, (char *)talk->ids + next * talk->bytes,
            (talk->length - next) * talk->bytes);
    talk->length -= next - 1;
    if (!talk->forgot)
        log_warn(
            "the conversation no longer fits the %zu tokens that the model reads: its oldest messages are forgotten",
            talk->room);
    talk->forgot = true;
}

// Adds a message and the beginning of its answer. False: it does not fit.
static bool add_message(Conversation *talk, const void *ids, size_t count, uint64_t answer) {
    enum { MARKERS = 4, LEAST = 1 }; // with the <|end|> of the answer; tokens of an answer
    const size_t share = talk->room / SAMPLE_ANSWER_SHARE, kept = answer < share ? answer : share;
    if (1 + count + MARKERS + LEAST > talk->room) return false;
    while (talk->length > 1 && talk->length + count + MARKERS + kept > talk->room) forget_pair(talk);
    add_id(talk, talk->turns.ids[TURN_USER]);
    for (size_t i = 0; i < count; i++) add_id(talk, id_at(ids, i, talk->bytes));
    add_id(talk, talk->turns.ids[TURN_END]);
    add_id(talk, talk->turns.ids[TURN_ASSISTANT]);
    return true;
}

static int answer(Network *network, TextStream *stream, Conversation *talk, const Sampler *sampler, uint64_t tokens) {
    const size_t room = talk->room - talk->length - 1, begin = talk->length;
    const ssize_t length =
        sample(network, sampler, talk->ids, talk->length, tokens < room ? tokens : room, add_token, stream);
    emit(stream, stream->held.size);
    if (length < 0) return -1;
    talk->length = (size_t)length;
    stream->emit(stream->context, bytes_of_text("\n"));
    // whatever ended the answer, in the history it ends with its marker
    if (talk->length > begin && vocab_is_special(stream->vocab, id_at(talk->ids, talk->length - 1, talk->bytes)))
        talk->length--;
    add_id(talk, talk->turns.ids[TURN_END]);
    return 0;
}

// The next line, without its end. 1, 0 at the end of the input, -1 after fail().
static int next_message(Buffer *line, FILE *in) {
    enum { MESSAGE_MAX_BYTES = 1 << 20 };
    int c;
    line->size = 0;
    while ((c = getc(in)) != EOF && c != '\n') {
        const uint8_t byte = (uint8_t)c;
        if (line->size == MESSAGE_MAX_BYTES)
            return fail(EX_DATA, "a message has more than %d bytes: end each by a line end", MESSAGE_MAX_BYTES);
        buffer_add(line, &byte, 1);
    }
    if (ferror(in)) return fail(EX_IO, "cannot read standard input: %s", strerror(errno));
    if (c == EOF && !line->size) return 0;
    if (line->size && line->data[line->size - 1] == '\r') line->size--;
    return 1;
}

int sample_turns(Network *network, const Vocab *vocab, const Sampler *sampler, uint64_t tokens, FILE *in,
                 void (*before)(void), bool (*emit_text)(void *context, Bytes text), void *context) {
    Conversation talk = {
        .room = (size_t)network->model->shape.block, .bytes = vocab_id_bytes(vocab), .turns = vocab_turns(vocab)};
    TextStream stream = {.vocab = vocab, .turns = talk.turns, .emit = emit_text, .context = context};
    Encoder *encoder = encoder_open(vocab, INVALID_BYTES);
    Sampler turn = *sampler;
    Buffer ids = {0}, line = {0};
    int status;
    talk.ids = allocate_zeroed(talk.room + 1, talk.bytes);
    add_id(&talk, vocab_end_of_text(vocab));
    while ((before ? before() : (void)0, status = next_message(&line, in)) > 0) {
        if (line.size == strlen("/clear") && !memcmp(line.data, "/clear", line.size)) {
            talk.length = 1, talk.forgot = false;
            continue;
        }
        buffer_reserve(&ids, encoder_ids_max(line.size) * talk.bytes);
        const ssize_t count = encoder_encode(encoder, (Bytes){line.data, line.size}, ids.data);
        if (count < 0) {
            status = -1;
            break;
        }
        if (!add_message(&talk, ids.data, (size_t)count, tokens))
            log_warn("the message has %zd tokens, and the model reads %zu with its answer: it is left out", count,
                     talk.room);
        else if (answer(network, &stream, &talk, &turn, tokens) < 0) {
            status = -1;
            break;
        } else
            turn.stream++;
    }
    encoder_close(encoder);
    buffer_close(&ids), buffer_close(&stream.held), buffer_close(&stream.text);
    buffer_close(&line), free(talk.ids);
    return status;
}
