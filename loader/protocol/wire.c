// Encoding and checking of the messages of wire.h.
#include "loader/protocol/wire.h"
#include "common/hash.h"
#include "common/utf8.h"
#include "dataset/split.h"
#include "loader/protocol/sampling.h"

enum { NO_TYPE = -1 };

static int body_bytes(unsigned type) {
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
    case WIRE_BYE:
        return 0;
    case WIRE_CONTROL:
        return sizeof(WireControl);
    default:
        return NO_TYPE;
    }
}

// CRC32C of a message with the crc field as 0.
static uint32_t message_crc(const void *message, size_t size) {
    WireHeader header;
    memcpy(&header, message, sizeof header);
    header.crc = 0;
    return crc32c(crc32c(0, &header, sizeof header), (const uint8_t *)message + sizeof header, size - sizeof header);
}

Bytes wire_encode(WireMessage *message) {
    WireHeader *header = &message->header;
    size_t body = (size_t)body_bytes(header->type);
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
    return (uint64_t)rows * (sequence_tokens + 1ull) * 2 <= WIRE_PAYLOAD_MAX;
}

static bool is_printable(uint32_t point) {
    const bool control = point < ' ' || (point >= 0x7F && point < 0xA0) || point > UTF8_LAST;
    const bool order = (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
    return !control && !order && point != 0x200E && point != 0x200F && point != 0x061C;
}

bool wire_clean_text(char *text, size_t size) {
    const char *end = memchr(text, 0, size);
    if (!end) return false;
    while (text < end) {
        uint32_t point;
        unsigned length = utf8_decode((const uint8_t *)text, (const uint8_t *)end, &point);
        if (is_printable(point))
            text += length;
        else
            *text++ = '?'; // and so for its further bytes
    }
    return true;
}

// The first field whose value is not accepted, or NULL.
#define REFUSE(condition, field)                                                                                       \
    if (condition) return field

static const char *hello_check(WireHello *hello) {
    REFUSE(!hello->vocab_size, "vocab_size");
    REFUSE(!hello->sequence_tokens || hello->sequence_tokens > WIRE_TOKENS_MAX, "sequence_tokens");
    REFUSE(!hello->max_rows || hello->max_rows > WIRE_ROWS_MAX, "max_rows");
    REFUSE(!rows_fit(hello->max_rows, hello->sequence_tokens), "max_rows");
    REFUSE(!hello->window || hello->window > WIRE_WINDOW_MAX, "window");
    REFUSE(!all_zero(hello->zero, sizeof hello->zero), "zero");
    REFUSE(!wire_clean_text(hello->name, sizeof hello->name), "name");
    return NULL;
}

static const char *welcome_check(WireWelcome *welcome) {
    REFUSE(!welcome->window || welcome->window > WIRE_WINDOW_MAX, "window");
    REFUSE(welcome->ring > 1, "ring");
    REFUSE(!welcome->sources || welcome->sources > MIXTURE_SOURCES_MAX, "sources");
    REFUSE(!welcome->entries, "entries");
    REFUSE(welcome->zero, "zero");
    REFUSE(!welcome->vocab_size || welcome->vocab_size > IDS_MAX, "vocab_size");
    REFUSE(!wire_clean_text(welcome->name, sizeof welcome->name), "name");
    return NULL;
}

static const char *get_check(const WireGet *get) {
    REFUSE(get->first_sample >> WIRE_SAMPLE_MAX_BITS, "first_sample");
    REFUSE(!get->rows || get->rows > WIRE_ROWS_MAX, "rows");
    REFUSE(!get->sequence_tokens || get->sequence_tokens > WIRE_TOKENS_MAX, "sequence_tokens");
    REFUSE(!rows_fit(get->rows, get->sequence_tokens), "rows");
    REFUSE(get->split >= SPLIT_COUNT, "split");
    REFUSE(!sampling_mode(get->mode), "mode");
    REFUSE(get->source > MIXTURE_SOURCES_MAX, "source");
    REFUSE(get->slot >= WIRE_SLOTS_MAX, "slot");
    REFUSE(!all_zero(get->zero, sizeof get->zero), "zero");
    return NULL;
}

static const char *batch_check(const WireBatch *batch) {
    REFUSE(batch->rows > WIRE_ROWS_MAX, "rows");
    REFUSE(!batch->sequence_tokens || batch->sequence_tokens > WIRE_TOKENS_MAX, "sequence_tokens");
    REFUSE(!rows_fit(batch->rows, batch->sequence_tokens), "rows");
    REFUSE(batch->slot >= WIRE_SLOTS_MAX, "slot");
    REFUSE((uint64_t)batch->offset + batch->length > (uint64_t)batch->rows * (batch->sequence_tokens + 1) * 4 ||
               (uint64_t)batch->offset + batch->length > WIRE_PAYLOAD_MAX,
           "length");
    REFUSE(batch->flags > WIRE_BATCH_REPLACED, "flags");
    REFUSE(!all_zero(batch->zero, sizeof batch->zero), "zero");
    return NULL;
}

static const char *error_check(WireError *error) {
    REFUSE(error->code < WIRE_PROTO || error->code > WIRE_AUTH, "code");
    REFUSE(error->zero, "zero");
    REFUSE(!wire_clean_text(error->text, sizeof error->text), "text");
    return NULL;
}

static const char *control_check(const WireControl *control) {
    REFUSE(control->action != WIRE_SWAP && control->action != WIRE_REWEIGHT, "action");
    REFUSE(control->words > WIRE_WORDS_MAX, "words");
    REFUSE(control->from_sample >> WIRE_SAMPLE_MAX_BITS, "from_sample");
    REFUSE(control->has_schedule > 1, "has_schedule");
    REFUSE(control->check > 1, "check");
    REFUSE(control->exit_code > UINT8_MAX, "exit_code");
    REFUSE(!all_zero(control->zero, sizeof control->zero), "zero");
    return NULL;
}

static const char *message_check(WireMessage *message) {
    const WireHeader *header = &message->header;
    REFUSE(body_bytes(header->type) == NO_TYPE, "type");
    REFUSE(header->body_len != (uint32_t)body_bytes(header->type), "body_len");
    REFUSE(header->flags, "header flags");
    REFUSE(header->zero, "header zero");
    switch (header->type) {
    case WIRE_HELLO:
        return hello_check(&message->hello);
    case WIRE_WELCOME:
        return welcome_check(&message->welcome);
    case WIRE_GET:
        return get_check(&message->get);
    case WIRE_BATCH:
        return batch_check(&message->batch);
    case WIRE_ERROR:
    case WIRE_NOTICE:
        return error_check(&message->error);
    case WIRE_CONTROL:
        return control_check(&message->control);
    default:
        return NULL;
    }
}

WireVerdict wire_decode(Bytes frame, WireMessage *message, const char **field) {
    WireHeader *header = &message->header;
    if (frame.size < sizeof *header) return WIRE_CORRUPT;
    memcpy(header, frame.data, sizeof *header);
    if (header->magic != WIRE_MAGIC || header->body_len != frame.size - sizeof *header || !header->session ||
        header->crc != message_crc(frame.data, frame.size))
        return WIRE_CORRUPT;
    if (header->major != WIRE_MAJOR) return WIRE_OTHER_VERSION;
    memcpy(message, frame.data, frame.size < sizeof *message ? frame.size : sizeof *message);
    const char *refused = message_check(message);
    if (refused && field) *field = refused;
    return refused ? WIRE_UNKNOWN_FIELD : WIRE_VALID;
}

bool wire_decode_sources(const WireWelcome *welcome, Bytes part, WireSource *sources, WireWeights *weights) {
    const size_t source_bytes = welcome->sources * sizeof *sources, weight_bytes = welcome->entries * sizeof *weights;
    if (part.size != source_bytes + weight_bytes || crc32c(0, part.data, part.size) != welcome->sources_crc)
        return false;
    memcpy(sources, part.data, source_bytes);
    memcpy(weights, part.data + source_bytes, weight_bytes);
    for (unsigned i = 0; i < welcome->sources; i++)
        if (!wire_clean_text(sources[i].name, sizeof sources[i].name)) return false;
    for (unsigned i = 0; i < welcome->entries; i++) {
        uint64_t sum = 0;
        for (unsigned k = 0; k < welcome->sources; k++) sum += weights[i].weights[k];
        if (sum != MIXTURE_SUM || (i ? weights[i].from <= weights[i - 1].from : weights[i].from)) return false;
    }
    return !memcmp(weights[welcome->entries - 1].fingerprint, welcome->dataset_fp, sizeof welcome->dataset_fp);
}

const char *wire_code_name(unsigned code) {
    static const char *const names[] = {"?",    "PROTO", "VOCAB", "DATASET",  "RANGE", "SLOT",
                                        "DATA", "IO",    "BUSY",  "SHUTDOWN", "AUTH"};
    return names[code < sizeof names / sizeof *names ? code : 0];
}
