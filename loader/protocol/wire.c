// Encoding and checking of the messages in wire.h.
#include "loader/protocol/wire.h"
#include "common/hash.h"
#include "common/utf8.h"
#include "loader/client/feed.h"

static size_t body_bytes(unsigned type) {
    switch (type) {
    case WIRE_HELLO:
        return sizeof(WireHello);
    case WIRE_WELCOME:
        return sizeof(WireWelcome);
    case WIRE_GET:
        return sizeof(WireGet);
    case WIRE_BATCH:
        return sizeof(WireBatch);
    case WIRE_ERROR:
    case WIRE_NOTICE:
        return sizeof(WireError);
    case WIRE_STATS:
        return sizeof(WireStats);
    default:
        return 0;
    }
}

static uint32_t message_crc(const WireMessage *message, size_t size) {
    WireHeader header = message->header;
    header.crc = 0;
    return crc32c(crc32c(0, &header, sizeof header), (const uint8_t *)message + sizeof header, size - sizeof header);
}

Bytes wire_encode(WireMessage *message) {
    WireHeader *header = &message->header;
    size_t body = body_bytes(header->type);
    header->magic = WIRE_MAGIC, header->major = WIRE_MAJOR, header->minor = WIRE_MINOR;
    header->body_len = (uint32_t)body;
    header->crc = message_crc(message, sizeof *header + body);
    return (Bytes){(const uint8_t *)message, sizeof *header + body};
}

static bool all_zero(const void *data, size_t size) {
    const uint8_t *byte = data;
    while (size--)
        if (*byte++) return false;
    return true;
}

static bool rows_fit(uint32_t rows, uint32_t sequence_tokens) {
    return rows <= WIRE_ROWS_MAX && sequence_tokens && sequence_tokens <= WIRE_TOKENS_MAX &&
           (uint64_t)rows * (sequence_tokens + 1) * 2 <= WIRE_PAYLOAD_MAX;
}

// Whether the text ends inside its field. Bytes that are not UTF-8 and control characters, which could command a
// terminal, become '?'.
static bool text_end(char *text, size_t size) {
    const char *end = memchr(text, 0, size);
    if (!end) return false;
    while (text < end) {
        uint32_t point;
        unsigned length = utf8_decode((const uint8_t *)text, (const uint8_t *)end, &point);
        if (point >= ' ' && point <= UTF8_LAST && (point < 0x7F || point >= 0xA0))
            text += length;
        else
            *text++ = '?';
    }
    return true;
}

static bool body_fine(WireMessage *message) {
    switch (message->header.type) {
    case WIRE_HELLO: {
        const WireHello *hello = &message->hello;
        return hello->proto_min <= hello->proto_max && hello->vocab_size && hello->max_rows &&
               rows_fit(hello->max_rows, hello->sequence_tokens) && hello->window && hello->window <= WIRE_WINDOW_MAX &&
               hello->slot_count <= WIRE_SLOTS_MAX && hello->world && hello->rank < hello->world &&
               hello->want_ring <= 1 && all_zero(hello->zero, sizeof hello->zero);
    }
    case WIRE_WELCOME: {
        WireWelcome *welcome = &message->welcome;
        return welcome->dtype == 1 && welcome->ring <= 1 && welcome->window && welcome->window <= WIRE_WINDOW_MAX &&
               welcome->vocab_size && welcome->vocab_size <= 65536 && text_end(welcome->name, sizeof welcome->name);
    }
    case WIRE_GET: {
        const WireGet *get = &message->get;
        return get->rows && rows_fit(get->rows, get->sequence_tokens) && get->split < SPLIT_COUNT &&
               (get->mode == SAMPLING_CROP || get->mode == SAMPLING_EPOCH || get->mode == SAMPLING_SEQUENTIAL) &&
               get->first_sample <= UINT64_MAX / 2 && get->slot < WIRE_SLOTS_MAX && !get->document_flags && !get->pad &&
               all_zero(get->zero, sizeof get->zero);
    }
    case WIRE_BATCH: {
        const WireBatch *batch = &message->batch;
        return rows_fit(batch->rows, batch->sequence_tokens) && batch->slot < WIRE_SLOTS_MAX && batch->dtype == 1 &&
               batch->flags <= WIRE_BATCH_REPLACED &&
               batch->length == (uint64_t)batch->rows * (batch->sequence_tokens + 1) * 2 && !batch->boundaries &&
               !batch->zero;
    }
    case WIRE_ERROR:
    case WIRE_NOTICE:
        return message->error.code >= WIRE_PROTO && message->error.code <= WIRE_SHUTDOWN &&
               text_end(message->error.text, sizeof message->error.text);
    case WIRE_STATS:
        return all_zero(message->stats.zero, sizeof message->stats.zero);
    case WIRE_PING:
    case WIRE_PONG:
    case WIRE_BYE:
        return true;
    default:
        return false;
    }
}

WireVerdict wire_decode(Bytes frame, WireMessage *message) {
    WireHeader *header = &message->header;
    if (frame.size < sizeof *header || frame.size > sizeof *message) return WIRE_BAD;
    memcpy(message, frame.data, frame.size);
    if (header->magic != WIRE_MAGIC || header->body_len != frame.size - sizeof *header ||
        header->crc != message_crc(message, frame.size))
        return WIRE_BAD;
    if (header->major != WIRE_MAJOR) return WIRE_OTHER_MAJOR;
    if (header->body_len != body_bytes(header->type) || header->flags || header->zero || !header->session)
        return WIRE_BAD;
    return body_fine(message) ? WIRE_FINE : WIRE_BAD;
}

const char *wire_code_name(unsigned code) {
    static const char *const names[] = {"?",    "PROTO", "AUTH", "VOCAB", "T",     "FP",      "RANGE",
                                        "SPEC", "SLOT",  "BUSY", "IO",    "TOKEN", "SHUTDOWN"};
    return names[code < sizeof names / sizeof *names ? code : 0];
}
