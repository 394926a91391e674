// Prints the state of a loader as a table for people, as one JSON object, or as a Prometheus text file.
#include "loader/protocol/status.h"
#include "common/json_write.h"
#include "common/log.h"
#include <inttypes.h>

// --- the message

void status_encode_tables(const Status *status, Buffer *out) {
    buffer_add(out, status->clients, status->totals.clients * sizeof *status->clients);
    buffer_add(out, status->sources, status->totals.sources * sizeof *status->sources);
}

int status_decode(Status *status, const WireStats *totals, Bytes tables) {
    status->totals = *totals;
    if (totals->clients > STATUS_CLIENTS_MAX || totals->sources > STATUS_SOURCES_MAX) return -1;
    size_t client_bytes = totals->clients * sizeof *status->clients;
    size_t source_bytes = totals->sources * sizeof *status->sources;
    if (tables.size != client_bytes + source_bytes) return -1;
    if (client_bytes) memcpy(status->clients, tables.data, client_bytes);
    if (source_bytes) memcpy(status->sources, tables.data + client_bytes, source_bytes);
    for (uint32_t i = 0; i < totals->sources; i++)
        if (!wire_clean_text(status->sources[i].name, sizeof status->sources[i].name)) return -1;
    return 0;
}

// --- the counters, in the order in which they are printed

typedef struct {
    const char *name, *type, *help; // type and help: of Prometheus
    size_t offset;
    uint64_t divisor; // from the unit of the field to that of the name
} Field;

#define TOTAL(name, type, help, field, divisor)                                                                        \
    { name, type, help, offsetof(WireStats, field), divisor }
#define CLIENT(name, type, help, field, divisor)                                                                       \
    { name, type, help, offsetof(WireClientStats, field), divisor }
#define SOURCE(name, type, help, field)                                                                                \
    { name, type, help, offsetof(WireSourceStats, field), 1 }

static const Field total_fields[] = {
    TOTAL("batches", "counter", "Batches sent.", batches, 1),
    TOTAL("tokens", "counter", "Tokens sent, T for each row.", tokens, 1),
    TOTAL("payload_bytes", "counter", "Bytes of rows.", payload_bytes, 1),
    TOTAL("frames_decoded", "counter", "Frames decoded.", frames_decoded, 1),
    TOTAL("cache_hits", "counter", "Accesses to frames that were decoded.", cache_hits, 1),
    TOTAL("cache_misses", "counter", "Accesses to frames that had to be decoded first.", cache_misses, 1),
    TOTAL("cache_bytes", "gauge", "Decoded frames in memory.", cache_bytes, 1),
    TOTAL("cache_limit_bytes", "gauge", "Limit on decoded frames in memory.", cache_limit, 1),
    TOTAL("resident_bytes", "gauge", "Memory of the process.", resident_bytes, 1),
    TOTAL("produce_us", "counter", "Time spent copying and decoding rows.", produce_ns, 1000),
    TOTAL("repeated", "counter", "Repeated requests.", repeated, 1),
    TOTAL("dropped", "counter", "Messages dropped: damaged, late, or without a receiver.", dropped, 1),
    TOTAL("errors", "counter", "Requests refused.", errors, 1),
    TOTAL("refused_peers", "counter", "Connections with a key that is not allowed.", refused_peers, 1),
    TOTAL("sessions", "gauge", "Connected trainers.", sessions, 1),
    TOTAL("uptime_ms", "gauge", "Time since the start.", uptime_ns, 1000000),
};

static const Field client_fields[] = {
    CLIENT("batches", "counter", "Batches sent to a trainer.", batches, 1),
    CLIENT("tokens", "counter", "Tokens sent to a trainer.", tokens, 1),
    CLIENT("tokens_per_s", "gauge", "Tokens a second in the last seconds.", tokens_per_s, 1),
    CLIENT("wait_us", "counter", "Time from requests to their answers.", wait_ns, 1000),
    CLIENT("wait_max_us", "gauge", "Longest time from a request to its answer.", wait_max_ns, 1000),
    CLIENT("resends", "counter", "Repeated requests of a trainer.", repeated, 1),
    CLIENT("age_ms", "gauge", "Time since the first message.", age_ns, 1000000),
    CLIENT("silent_ms", "gauge", "Time since the last message.", silent_ns, 1000000),
};

static const Field source_fields[] = {
    SOURCE("weight", "gauge", "Weight of a dataset.", weight),
    SOURCE("batches", "counter", "Batches with rows of a dataset.", batches),
    SOURCE("tokens", "counter", "Tokens sent of a dataset.", tokens),
    SOURCE("highest_sample", "gauge", "Train samples requested, the last one + 1.", highest),
    SOURCE("replaced", "gauge", "1: another dataset has replaced it.", replaced),
};

#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

static uint64_t value_of(const void *row, const Field *field) {
    return get_u64((const uint8_t *)row + field->offset) / field->divisor;
}

// --- JSON

static void json_fields(Buffer *out, const void *row, const Field *fields, size_t count) {
    for (size_t i = 0; i < count; i++)
        buffer_print(out, "%s\"%s\": %" PRIu64, i ? ", " : "", fields[i].name, value_of(row, &fields[i]));
}

static void print_json(const Status *status, Buffer *out) {
    buffer_print(out, "{");
    json_fields(out, &status->totals, total_fields, COUNT(total_fields));
    buffer_print(out, ", \"clients\": [");
    for (uint32_t i = 0; i < status->totals.clients; i++) {
        const WireClientStats *client = &status->clients[i];
        buffer_print(out, "%s{\"session\": \"%016" PRIx64 "\", \"block_size\": %u, \"ring\": %s, ", i ? ", " : "",
                     client->session, client->sequence_tokens, client->ring ? "true" : "false");
        json_fields(out, client, client_fields, COUNT(client_fields));
        buffer_print(out, "}");
    }
    buffer_print(out, "], \"sources\": [");
    for (uint32_t i = 0; i < status->totals.sources; i++) {
        buffer_print(out, "%s{\"name\": ", i ? ", " : "");
        json_add_string(out, status->sources[i].name);
        json_add_hex(out, "fingerprint", status->sources[i].fp8, sizeof status->sources[i].fp8);
        buffer_print(out, ", ");
        json_fields(out, &status->sources[i], source_fields, COUNT(source_fields));
        buffer_print(out, "}");
    }
    buffer_print(out, "]}\n");
}

// --- Prometheus: the text exposition format, version 0.0.4

static void prometheus_head(Buffer *out, const char *prefix, const Field *field) {
    buffer_print(out, "# HELP millrace_loader_%s%s %s\n# TYPE millrace_loader_%s%s %s\n", prefix, field->name,
                 field->help, prefix, field->name, field->type);
}

static void print_prometheus(const Status *status, Buffer *out) {
    for (size_t i = 0; i < COUNT(total_fields); i++) {
        prometheus_head(out, "", &total_fields[i]);
        buffer_print(out, "millrace_loader_%s %" PRIu64 "\n", total_fields[i].name,
                     value_of(&status->totals, &total_fields[i]));
    }
    for (size_t i = 0; i < COUNT(client_fields); i++) {
        prometheus_head(out, "client_", &client_fields[i]);
        for (uint32_t c = 0; c < status->totals.clients; c++)
            buffer_print(out, "millrace_loader_client_%s{session=\"%016" PRIx64 "\"} %" PRIu64 "\n",
                         client_fields[i].name, status->clients[c].session,
                         value_of(&status->clients[c], &client_fields[i]));
    }
    for (size_t i = 0; i < COUNT(source_fields); i++) {
        prometheus_head(out, "source_", &source_fields[i]);
        for (uint32_t s = 0; s < status->totals.sources; s++) {
            buffer_print(out, "millrace_loader_source_%s{name=", source_fields[i].name);
            json_add_string(out, status->sources[s].name); // the escapes of a label are those of JSON
            // `source` makes the labels unique: a mixture may have a dataset that it has replaced, or one twice.
            buffer_print(out, ",fingerprint=\"%016" PRIx64 "\",source=\"%u\"} %" PRIu64 "\n",
                         __builtin_bswap64(get_u64(status->sources[s].fp8)), s,
                         value_of(&status->sources[s], &source_fields[i]));
        }
    }
}

// --- a table

static double mean_us(const WireClientStats *client) {
    return client->batches ? (double)client->wait_ns / 1e3 / (double)client->batches : 0;
}

static void print_table(const Status *status, Buffer *out) {
    for (size_t i = 0; i < COUNT(total_fields); i++)
        buffer_print(out, "%-17s %" PRIu64 "\n", total_fields[i].name, value_of(&status->totals, &total_fields[i]));
    if (status->totals.sources)
        buffer_print(out, "\n%-24s %-16s %6s %12s\n", "source", "fingerprint", "weight", "tokens");
    for (uint32_t i = 0; i < status->totals.sources; i++) {
        const WireSourceStats *source = &status->sources[i];
        char count[16];
        buffer_print(out, "%-24s %016" PRIx64 " %6" PRIu64 " %12s%s\n", source->name,
                     __builtin_bswap64(get_u64(source->fp8)), source->weight,
                     human_count(count, (double)source->tokens), source->replaced ? " (replaced)" : "");
    }
    if (status->totals.clients)
        buffer_print(out, "\n%-16s %6s %10s %12s %12s %12s %8s %10s\n", "client", "T", "tokens/s", "tokens", "mean us",
                     "max us", "resends", "silent s");
    for (uint32_t i = 0; i < status->totals.clients; i++) {
        const WireClientStats *client = &status->clients[i];
        char rate[16], tokens[16];
        buffer_print(out, "%016" PRIx64 " %6u %10s %12s %12.1f %12.1f %8" PRIu64 " %10.1f\n", client->session,
                     client->sequence_tokens, human_count(rate, (double)client->tokens_per_s),
                     human_count(tokens, (double)client->tokens), mean_us(client), (double)client->wait_max_ns / 1e3,
                     client->repeated, (double)client->silent_ns / 1e9);
    }
}

void status_print(const Status *status, StatusForm form, Buffer *out) {
    switch (form) {
    case STATUS_TABLE:
        print_table(status, out);
        return;
    case STATUS_JSON:
        print_json(status, out);
        return;
    case STATUS_PROMETHEUS:
        print_prometheus(status, out);
    }
}
