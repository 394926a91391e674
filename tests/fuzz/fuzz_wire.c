// Feeds any bytes to wire_decode, unchanged and with a correct magic, length and crc, so that the checks of the fields
// are reached.
#include "common/hash.h"
#include "loader/protocol/wire.h"
#include "shardtool/format/split.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const uint8_t *data, size_t size) {
    WireMessage message;
    if (wire_decode((Bytes){data, size}, &message, NULL) != WIRE_VALID) return;
    const WireGet *get = &message.get;
    const WireBatch *batch = &message.batch;
    switch (message.header.type) {
    case WIRE_GET:
        if ((uint64_t)get->rows * (get->sequence_tokens + 1) * 2 > WIRE_PAYLOAD_MAX || get->split >= SPLIT_COUNT)
            abort();
        break;
    case WIRE_BATCH:
        if (batch->length != (uint64_t)batch->rows * (batch->sequence_tokens + 1) * 2) abort();
        break;
    case WIRE_WELCOME:
        if (strlen(message.welcome.name) >= sizeof message.welcome.name) abort();
        break;
    case WIRE_ERROR:
    case WIRE_NOTICE:
        if (strlen(message.error.text) >= sizeof message.error.text) abort();
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode(data, size);
    if (size < sizeof(WireHeader) || size > sizeof(WireMessage)) return 0;
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    put_u32(copy, WIRE_MAGIC);
    copy[4] = WIRE_MAJOR, copy[7] = 0;
    put_u32(copy + 12, (uint32_t)(size - sizeof(WireHeader)));
    memset(copy + 56, 0, 8);
    put_u32(copy + 8, 0);
    put_u32(copy + 8, crc32c(0, copy, size));
    decode(copy, size);
    free(copy);
    // Any bytes as the second part of WELCOME.
    static WireSource sources[MIXTURE_SOURCES_MAX];
    WireWeights weights[32];
    const Bytes part = {data, size};
    WireWelcome welcome = {.sources = 1, .sources_crc = crc32c(0, data, size)};
    for (; welcome.sources <= MIXTURE_SOURCES_MAX; welcome.sources++) {
        const size_t left = size - welcome.sources * sizeof *sources;
        welcome.entries = (uint16_t)(left / sizeof *weights);
        if (size < welcome.sources * sizeof *sources || !welcome.entries || welcome.entries > 32) continue;
        if (wire_decode_sources(&welcome, part, sources, weights) && weights[0].from) abort();
    }
    return 0;
}
