// Feeds any bytes to wire_decode, unchanged and with a correct magic, length and crc, so that the checks of the fields
// are reached.
#include "common/hash.h"
#include "dataset/split.h"
#include "loader/protocol/status.h"
#include "tests/fuzz/fuzz.h"

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
        if (batch->offset + (uint64_t)batch->length > batch->rows * (batch->sequence_tokens + 1ull) * 4) abort();
        break;
    case WIRE_WELCOME:
        if (strlen(message.welcome.name) >= sizeof message.welcome.name) abort();
        break;
    case WIRE_ERROR:
    case WIRE_NOTICE:
        if (strlen(message.error.text) >= sizeof message.error.text) abort();
        break;
    case WIRE_HELLO:
        if (strlen(message.hello.name) >= sizeof message.hello.name) abort();
        break;
    }
}

// Any bytes as the second part of WELCOME.
static void decode_sources(Bytes part) {
    static WireSource sources[MIXTURE_SOURCES_MAX];
    WireWeights weights[32];
    WireWelcome welcome = {.sources = 1, .sources_crc = crc32c(0, part.data, part.size)};
    for (; welcome.sources <= MIXTURE_SOURCES_MAX; welcome.sources++) {
        const size_t left = part.size - welcome.sources * sizeof *sources;
        welcome.entries = (uint16_t)(left / sizeof *weights);
        if (part.size < welcome.sources * sizeof *sources || !welcome.entries || welcome.entries > 32) continue;
        if (wire_decode_sources(&welcome, part, sources, weights) && weights[0].from) abort();
    }
}

// The lines of Prometheus text are comments, or a metric whose labels end in `"} ` and a number.
static void check_prometheus(Buffer *text) {
    buffer_add(text, "", 1);
    for (char *line = (char *)text->data, *end; *line; line = end + 1) {
        if (!(end = strchr(line, '\n'))) abort();
        *end = 0;
        const char *value = strrchr(line, ' '), *labels = strchr(line, '{');
        if (*line == '#') continue;
        if (strncmp(line, "millrace_loader_", 16) || value[1 + strspn(value + 1, "0123456789.")]) abort();
        if (labels && memcmp(value - 2, "\"}", 2)) abort();
    }
}

// Any bytes as the second part of STATS: texts of trainers reach neither the terminal nor other lines.
static void decode_tables(Bytes part) {
    static Status status;
    const WireStats totals = {.clients = (uint32_t)(part.size / sizeof(WireClientStats)),
                              .sources = (uint32_t)(part.size % sizeof(WireClientStats) / sizeof(WireSourceStats))};
    part.size = totals.clients * sizeof(WireClientStats) + totals.sources * sizeof(WireSourceStats);
    if (status_decode(&status, &totals, part) < 0) return;
    for (StatusForm form = STATUS_TABLE; form <= STATUS_PROMETHEUS; form++) {
        Buffer text = {0};
        status_print(&status, form, &(Endpoint){.name = "tcp://localhost:1"}, &text);
        for (size_t i = 0; i < text.size; i++)
            if (text.data[i] < ' ' && text.data[i] != '\n') abort();
        if (form == STATUS_PROMETHEUS) check_prometheus(&text);
        buffer_close(&text);
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
    decode_sources((Bytes){data, size});
    decode_tables((Bytes){data, size});
    return 0;
}
