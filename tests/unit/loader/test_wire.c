// The messages of the protocol: their layout, and which messages are refused.
#include "common/hash.h"
#include "loader/protocol/sampling_mode.h"
#include "loader/protocol/status.h"
#include "loader/protocol/wire.h"
#include "tests/test.h"

static WireMessage get_message(void) {
    WireMessage message;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_GET, message.header.session = 7, message.header.req_id = 9;
    message.get.rows = 4, message.get.sequence_tokens = 1024, message.get.mode = SAMPLING_EPOCH;
    return message;
}

static const char *refused_field;

static WireVerdict decode_copy(Bytes frame, WireMessage *out) {
    uint8_t *exact = malloc(frame.size); // so that the sanitizer sees a read past the end
    memcpy(exact, frame.data, frame.size);
    WireVerdict verdict = wire_decode((Bytes){exact, frame.size}, out, &refused_field);
    free(exact);
    return verdict;
}

// Byte by byte, as wire.h specifies it.
TEST(wire_lays_a_get_out_as_specified) {
    WireMessage message = get_message();
    message.header.sent_ns = 0x0102030405060708, message.header.loader_instance = 5, message.header.attach_id = 6;
    memset(message.get.dataset_fp8, 0xAB, 8);
    message.get.seed = 1337, message.get.first_sample = 1ull << 40, message.get.split = 1, message.get.slot = 3,
    message.get.source = 2;
    message.get.generation = 0x01020304;
    Bytes frame = wire_encode(&message);
    CHECK_EQUAL(frame.size, 128);
    const uint8_t *b = frame.data;
    CHECK(!memcmp(b, "GLD1\4\0\3\0", 8));
    CHECK_EQUAL(get_u32(b + 12), 64);
    CHECK_EQUAL(get_u64(b + 16), 7);
    CHECK_EQUAL(get_u64(b + 24), 9);
    CHECK_EQUAL(get_u64(b + 32), 0x0102030405060708);
    CHECK_EQUAL(get_u64(b + 40), 5);
    CHECK_EQUAL(get_u64(b + 48), 6);
    CHECK_EQUAL(get_u64(b + 56), 0);
    CHECK(b[64] == 0xAB && b[71] == 0xAB);
    CHECK_EQUAL(get_u64(b + 72), 1337);
    CHECK_EQUAL(get_u64(b + 80), 1ull << 40);
    CHECK_EQUAL(get_u32(b + 88), 4);
    CHECK_EQUAL(get_u32(b + 92), 1024);
    CHECK(b[96] == 1 && b[97] == 6 && b[98] == 2 && b[99] == 0);
    CHECK_EQUAL(get_u32(b + 100), 3);
    CHECK_EQUAL(get_u32(b + 104), 0x01020304);
    for (int i = 108; i < 128; i++) CHECK_EQUAL(b[i], 0);
    uint8_t copy[128];
    memcpy(copy, b, 128);
    memset(copy + 8, 0, 4);
    CHECK_EQUAL(get_u32(b + 8), crc32c(0, copy, 128));
}

// fault 47
TEST(wire_refuses_every_flipped_bit_and_every_cut) {
    WireMessage message = get_message(), out;
    Bytes frame = wire_encode(&message);
    CHECK_EQUAL(decode_copy(frame, &out), WIRE_VALID);
    CHECK(!memcmp(&out, &message, frame.size));
    uint8_t bytes[sizeof(WireMessage)];
    for (size_t bit = 0; bit < frame.size * 8; bit++) {
        memcpy(bytes, frame.data, frame.size);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_EQUAL(decode_copy((Bytes){bytes, frame.size}, &out), WIRE_CORRUPT);
    }
    for (size_t size = 0; size < frame.size; size++)
        CHECK_EQUAL(decode_copy((Bytes){frame.data, size}, &out), WIRE_CORRUPT);
}

static WireVerdict verdict_of(WireMessage message) {
    WireMessage out;
    return decode_copy(wire_encode(&message), &out);
}

#define REFUSED(change, field)                                                                                         \
    do {                                                                                                               \
        WireMessage message = get_message();                                                                           \
        WireGet *get = &message.get;                                                                                   \
        (void)get;                                                                                                     \
        change;                                                                                                        \
        refused_field = "";                                                                                            \
        CHECK_EQUAL(verdict_of(message), WIRE_UNKNOWN_FIELD);                                                          \
        CHECK(!strcmp(refused_field, field));                                                                          \
    } while (0)

// fault 50
TEST(wire_names_the_field_of_an_intact_message_that_is_out_of_range) {
    REFUSED(get->rows = 0, "rows");
    REFUSED(get->sequence_tokens = 0, "sequence_tokens");
    REFUSED(get->rows = UINT32_MAX, "rows");
    REFUSED((get->rows = WIRE_ROWS_MAX, get->sequence_tokens = WIRE_TOKENS_MAX), "rows"); // 2 TiB
    REFUSED((get->rows = 20000, get->sequence_tokens = WIRE_TOKENS_MAX), "rows");         // 40 GB
    REFUSED(get->split = 2, "split");
    REFUSED(get->mode = 2, "mode");
    REFUSED(get->mode = 1, "mode");
    REFUSED(get->source = MIXTURE_SOURCES_MAX + 1, "source");
    REFUSED(get->slot = WIRE_SLOTS_MAX, "slot");
    REFUSED(get->first_sample = UINT64_MAX, "first_sample");
    REFUSED(get->zero[19] = 1, "zero");
    REFUSED(message.header.zero = 1, "header zero");
    REFUSED(message.header.flags = 1, "header flags");
}

// An intact frame of any type and body length.
static WireVerdict verdict_of_type(uint8_t type, uint32_t body_bytes) {
    union {
        WireMessage message;
        uint8_t bytes[4096];
    } frame;
    memset(&frame, 0, sizeof frame);
    frame.message.header =
        (WireHeader){.magic = WIRE_MAGIC, .major = WIRE_MAJOR, .type = type, .body_len = body_bytes, .session = 7};
    frame.message.header.crc = crc32c(0, &frame, sizeof(WireHeader) + body_bytes);
    WireMessage out;
    refused_field = "";
    return decode_copy((Bytes){frame.bytes, sizeof(WireHeader) + body_bytes}, &out);
}

TEST(wire_names_an_unknown_type_and_a_body_of_another_length) {
    static const uint8_t unknown[] = {0, 10, 11, 255};
    for (size_t i = 0; i < sizeof unknown; i++) {
        CHECK_EQUAL(verdict_of_type(unknown[i], 0), WIRE_UNKNOWN_FIELD);
        CHECK_TEXT(refused_field, "type");
    }
    for (uint32_t size = 0; size < 3000; size += 8) {
        CHECK_EQUAL(verdict_of_type(WIRE_BYE, size), size ? WIRE_UNKNOWN_FIELD : WIRE_VALID);
        CHECK_EQUAL(verdict_of_type(WIRE_STATS, size), size != sizeof(WireStats) ? WIRE_UNKNOWN_FIELD : WIRE_VALID);
    }
    CHECK_EQUAL(verdict_of_type(WIRE_GET, 96), WIRE_UNKNOWN_FIELD);
    CHECK_TEXT(refused_field, "body_len");
}

TEST(wire_drops_a_message_without_a_session) {
    WireMessage message = get_message();
    message.header.session = 0;
    CHECK_EQUAL(verdict_of(message), WIRE_CORRUPT);
}

TEST(wire_recognizes_a_message_of_any_other_version) {
    for (uint32_t size = 0; size < 1000; size += 4) {
        uint8_t frame[sizeof(WireHeader) + 1000] = {0};
        WireHeader header = {.magic = WIRE_MAGIC, .major = 1, .type = 1, .body_len = size, .session = 7};
        memcpy(frame, &header, sizeof header);
        put_u32(frame + 8, crc32c(0, frame, sizeof header + size));
        WireMessage out;
        CHECK_EQUAL(decode_copy((Bytes){frame, sizeof header + size}, &out), WIRE_OTHER_VERSION);
        CHECK_EQUAL(out.header.major, 1);
        CHECK_EQUAL(out.header.session, 7);
    }
}

TEST(wire_prints_no_foreign_control_characters) {
    WireMessage message, out;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_ERROR, message.header.session = 1, message.error.code = WIRE_IO;
    strcpy(message.error.text, "a\x1b[31mb\n");
    CHECK_EQUAL(decode_copy(wire_encode(&message), &out), WIRE_VALID);
    CHECK_TEXT(out.error.text, "a?[31mb?");
    memset(message.error.text, 0, sizeof message.error.text);
    strcpy(message.error.text, "Mühle 日本 🙂 \xff\xc3 \xc2\x9b"
                               "31m \xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xe2\x82");
    CHECK_EQUAL(decode_copy(wire_encode(&message), &out), WIRE_VALID);
    CHECK(!strcmp(out.error.text, "Mühle 日本 🙂 ?? ??31m ??? ?? ???? ??"));
    strcpy(message.error.text, "a\xe2\x80\xae"
                               "b\xe2\x81\xa6\xe2\x80\xa8"); // U+202E, 2066 and 2028, which reorder or break a line
    CHECK_EQUAL(decode_copy(wire_encode(&message), &out), WIRE_VALID);
    CHECK_TEXT(out.error.text, "a???b??????");
    memset(message.error.text, 'x', sizeof message.error.text); // not terminated
    CHECK_EQUAL(verdict_of(message), WIRE_UNKNOWN_FIELD);
}

// Every other text that a peer sends and a person reads, as it arrives.
TEST(wire_cleans_the_names_of_trainers_and_datasets) {
    static const char foreign[] = "a\x1b[31m\n", clean[] = "a?[31m?";
    WireMessage message, out;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_HELLO, message.header.session = 1;
    message.hello = (WireHello){.vocab_size = 1, .sequence_tokens = 1, .max_rows = 1, .window = 1};
    strcpy(message.hello.name, foreign);
    CHECK_EQUAL(decode_copy(wire_encode(&message), &out), WIRE_VALID);
    CHECK(!strcmp(out.hello.name, clean));
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_WELCOME, message.header.session = 1;
    message.welcome = (WireWelcome){.window = 1, .sources = 1, .entries = 1, .vocab_size = 1};
    strcpy(message.welcome.name, foreign);
    CHECK_EQUAL(decode_copy(wire_encode(&message), &out), WIRE_VALID);
    CHECK(!strcmp(out.welcome.name, clean));

    struct {
        WireSource source;
        WireWeights weights;
    } part = {.weights.weights = {MIXTURE_SUM}};
    strcpy(part.source.name, foreign);
    message.welcome.sources_crc = crc32c(0, &part, sizeof part);
    WireSource source;
    WireWeights weights;
    CHECK(wire_decode_sources(&message.welcome, (Bytes){(uint8_t *)&part, sizeof part}, &source, &weights));
    CHECK(!strcmp(source.name, clean));

    struct {
        WireClientStats client;
        WireSourceStats source;
    } tables = {0};
    static Status status;
    const WireStats totals = {.clients = 1, .sources = 1};
    const Bytes bytes = {(uint8_t *)&tables, sizeof tables};
    char *const texts[] = {tables.client.name, tables.client.address, tables.source.name};
    const size_t sizes[] = {sizeof tables.client.name, sizeof tables.client.address, sizeof tables.source.name};
    for (int i = 0; i < 3; i++) strcpy(texts[i], foreign);
    CHECK(status_decode(&status, &totals, bytes) == 0);
    CHECK(!strcmp(status.clients[0].name, clean) && !strcmp(status.clients[0].address, clean));
    CHECK(!strcmp(status.sources[0].name, clean));
    for (int i = 0; i < 3; i++) { // a text without an end
        memset(texts[i], 'x', sizes[i]);
        CHECK(status_decode(&status, &totals, bytes) < 0);
        memset(texts[i], 0, sizes[i]);
    }
}

TEST(wire_refuses_sources_that_are_not_those_of_their_welcome) {
    struct {
        WireSource sources[2];
        WireWeights weights[2];
    } part = {.sources = {{.name = "web", .tokens = {5, 6}}, {.name = "books"}},
              .weights = {{.weights = {1, 65535}}, {.from = 9, .weights = {65536}}}};
    const Bytes whole = {(const uint8_t *)&part, sizeof part};
    WireSource sources[2];
    WireWeights weights[2];
    const WireWelcome welcome = {.sources = 2, .entries = 2, .sources_crc = crc32c(0, &part, sizeof part)};
    CHECK(wire_decode_sources(&welcome, whole, sources, weights));
    CHECK(!strcmp(sources[0].name, "web") && sources[0].tokens[1] == 6 && weights[1].from == 9);
    CHECK(!wire_decode_sources(&welcome, (Bytes){whole.data, whole.size - 1}, sources, weights));
    CHECK(!wire_decode_sources(&welcome, (Bytes){0}, sources, weights));
#define REFUSED_PART(change)                                                                                           \
    do {                                                                                                               \
        __typeof__(part) kept = part;                                                                                  \
        change;                                                                                                        \
        CHECK(!wire_decode_sources(&welcome, whole, sources, weights)); /* the CRC of the part as it was */            \
        WireWelcome other = welcome;                                                                                   \
        other.sources_crc = crc32c(0, &part, sizeof part);                                                             \
        CHECK(!wire_decode_sources(&other, whole, sources, weights));                                                  \
        part = kept;                                                                                                   \
    } while (0)
    REFUSED_PART(memset(part.sources[1].name, 'x', sizeof part.sources[1].name));
    REFUSED_PART(part.weights[0].weights[0] = 2);
    REFUSED_PART(part.weights[0].from = 1);
    REFUSED_PART(part.weights[1].from = 0);
    REFUSED_PART(part.weights[1].weights[0]--);
}
