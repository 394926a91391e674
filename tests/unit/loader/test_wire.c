// The loader's messages: layouts, and what is refused.
#include "common/hash.h"
#include "loader/client/feed.h"
#include "loader/protocol/wire.h"
#include "tests/test.h"

static WireMessage get_message(void) {
    WireMessage message;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_GET, message.header.session = 7, message.header.req_id = 9;
    message.get.rows = 4, message.get.sequence_tokens = 1024, message.get.mode = SAMPLING_EPOCH;
    return message;
}

static WireVerdict decode_copy(Bytes frame, WireMessage *out) {
    uint8_t *exact = malloc(frame.size); // so that the sanitizer sees a read past the end
    memcpy(exact, frame.data, frame.size);
    WireVerdict verdict = wire_decode((Bytes){exact, frame.size}, out);
    free(exact);
    return verdict;
}

// A frame as the words of wire.h give it, byte by byte.
TEST(wire_lays_a_get_out_as_specified) {
    WireMessage message = get_message();
    message.header.sent_ns = 0x0102030405060708, message.header.loader_instance = 5, message.header.attach_id = 6;
    memset(message.get.dataset_fp8, 0xAB, 8);
    message.get.seed = 1337, message.get.first_sample = 1ull << 40, message.get.split = 1, message.get.slot = 3;
    message.get.generation = 0x01020304;
    Bytes frame = wire_encode(&message);
    CHECK_EQUAL(frame.size, 160);
    const uint8_t *b = frame.data;
    CHECK(!memcmp(b, "GLD1\1\0\3\0", 8));
    CHECK_EQUAL(get_u32(b + 12), 96);
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
    CHECK(b[96] == 1 && b[97] == 1 && b[98] == 0 && b[99] == 0);
    CHECK_EQUAL(get_u32(b + 100), 3);
    CHECK_EQUAL(get_u32(b + 104), 0x01020304);
    uint8_t copy[160];
    memcpy(copy, b, 160);
    memset(copy + 8, 0, 4);
    CHECK_EQUAL(get_u32(b + 8), crc32c(0, copy, 160));
}

TEST(wire_refuses_every_flipped_bit_and_every_cut) {
    WireMessage message = get_message(), out;
    Bytes frame = wire_encode(&message);
    CHECK_EQUAL(decode_copy(frame, &out), WIRE_FINE);
    CHECK(!memcmp(&out, &message, frame.size));
    uint8_t bytes[sizeof(WireMessage)];
    for (size_t bit = 0; bit < frame.size * 8; bit++) {
        memcpy(bytes, frame.data, frame.size);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_EQUAL(decode_copy((Bytes){bytes, frame.size}, &out), WIRE_BAD);
    }
    for (size_t size = 0; size < frame.size; size++)
        CHECK_EQUAL(decode_copy((Bytes){frame.data, size}, &out), WIRE_BAD);
}

static WireVerdict verdict_of(WireMessage message) {
    WireMessage out;
    return decode_copy(wire_encode(&message), &out);
}

#define REFUSED(change)                                                                                                \
    do {                                                                                                               \
        WireMessage message = get_message();                                                                           \
        WireGet *get = &message.get;                                                                                   \
        (void)get;                                                                                                     \
        change;                                                                                                        \
        CHECK_EQUAL(verdict_of(message), WIRE_BAD);                                                                    \
    } while (0)

TEST(wire_refuses_fields_out_of_range_though_the_crc_is_right) {
    REFUSED(get->rows = 0);
    REFUSED(get->sequence_tokens = 0);
    REFUSED(get->rows = UINT32_MAX);
    REFUSED((get->rows = WIRE_ROWS_MAX, get->sequence_tokens = WIRE_TOKENS_MAX)); // 2 TiB
    REFUSED((get->rows = 20000, get->sequence_tokens = WIRE_TOKENS_MAX));         // 40 GB
    REFUSED(get->split = 2);
    REFUSED(get->mode = 2);
    REFUSED(get->mode = 4);
    REFUSED(get->document_flags = 1);
    REFUSED(get->slot = WIRE_SLOTS_MAX);
    REFUSED(get->first_sample = UINT64_MAX);
    REFUSED(get->zero[31] = 1);
    REFUSED(message.header.session = 0);
    REFUSED(message.header.zero = 1);
    REFUSED(message.header.flags = 1);
    REFUSED(message.header.type = 0);
    REFUSED(message.header.type = 11);
    REFUSED(message.header.type = 255);
}

TEST(wire_knows_another_major_from_garbage) {
    WireMessage message = get_message(), out;
    wire_encode(&message);
    message.header.major = 2, message.header.crc = 0;
    message.header.crc = crc32c(0, &message, 160);
    CHECK_EQUAL(decode_copy((Bytes){(uint8_t *)&message, 160}, &out), WIRE_OTHER_MAJOR);
    CHECK_EQUAL(out.header.major, 2);
}

TEST(wire_prints_no_foreign_control_characters) {
    WireMessage message, out;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_ERROR, message.header.session = 1, message.error.code = WIRE_IO;
    strcpy(message.error.text, "a\x1b[31mb\n");
    CHECK_EQUAL(decode_copy(wire_encode(&message), &out), WIRE_FINE);
    CHECK_TEXT(out.error.text, "a?[31mb?");
    memset(message.error.text, 0, sizeof message.error.text);
    strcpy(message.error.text, "Mühle 日本 🙂 \xff\xc3 \xc2\x9b"
                               "31m \xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xe2\x82");
    CHECK_EQUAL(decode_copy(wire_encode(&message), &out), WIRE_FINE);
    CHECK(!strcmp(out.error.text, "Mühle 日本 🙂 ?? ??31m ??? ?? ???? ??"));
    memset(message.error.text, 'x', sizeof message.error.text); // without an end
    CHECK_EQUAL(verdict_of(message), WIRE_BAD);
}
