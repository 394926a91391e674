// Prints the state of a loader as a table for people, as one JSON object, or as a Prometheus text file.
#include "loader/protocol/status.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/utf8.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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
    for (WireClientStats *client = status->clients; client < status->clients + totals->clients; client++)
        if (!wire_clean_text(client->address, sizeof client->address) ||
            !wire_clean_text(client->name, sizeof client->name))
            return -1;
    return 0;
}

// --- the counters, in the order in which they are printed

typedef struct {
    const char *name, *metric, *help; // metric and help: of Prometheus; a counter ends with _total
    size_t offset;
    uint64_t divisor; // from the field's unit to the name's; not 1: of a time, in seconds for Prometheus
} Field;

#define TOTAL(name, metric, help, field, divisor)                                                                      \
    { name, metric, help, offsetof(WireStats, field), divisor }
#define CLIENT(name, metric, help, field, divisor)                                                                     \
    { name, metric, help, offsetof(WireClientStats, field), divisor }
#define SOURCE(name, metric, help, field)                                                                              \
    { name, metric, help, offsetof(WireSourceStats, field), 1 }

static const Field total_fields[] = {
    TOTAL("batches", "batches_total", "Batches sent.", batches, 1),
    TOTAL("tokens", "tokens_total", "Tokens sent, T for each row.", tokens, 1),
    TOTAL("payload_bytes", "payload_bytes_total", "Bytes of rows.", payload_bytes, 1),
    TOTAL("frames_decoded", "frames_decoded_total", "Frames decoded.", frames_decoded, 1),
    TOTAL("cache_hits", "cache_hits_total", "Accesses to frames that were decoded.", cache_hits, 1),
    TOTAL("cache_misses", "cache_misses_total", "Accesses to frames that had to be decoded first.", cache_misses, 1),
    TOTAL("cache_bytes", "cache_bytes", "Decoded frames in memory.", cache_bytes, 1),
    TOTAL("cache_limit_bytes", "cache_limit_bytes", "Limit on decoded frames in memory.", cache_limit, 1),
    TOTAL("resident_bytes", "resident_bytes", "Memory of the process.", resident_bytes, 1),
    TOTAL("produce_us", "produce_seconds_total", "Time spent copying and decoding rows.", produce_ns, 1000),
    TOTAL("repeated", "repeated_requests_total", "Repeated requests.", repeated, 1),
    TOTAL("dropped", "dropped_messages_total", "Messages dropped: damaged, late, or without a receiver.", dropped, 1),
    TOTAL("errors", "errors_total", "Requests refused.", errors, 1),
    TOTAL("refused_peers", "refused_peers_total", "Connections with a key that is not allowed.", refused_peers, 1),
    TOTAL("sessions", "sessions", "Connected trainers.", sessions, 1),
    TOTAL("uptime_ms", "uptime_seconds", "Time since the start.", uptime_ns, 1000000),
};

static const Field client_fields[] = {
    CLIENT("batches", "batches_total", "Batches sent to a trainer.", batches, 1),
    CLIENT("tokens", "tokens_total", "Tokens sent to a trainer.", tokens, 1),
    CLIENT("tokens_per_s", "tokens_per_second", "Tokens a second in the last seconds.", tokens_per_s, 1),
    CLIENT("wait_us", "wait_seconds_total", "Time from requests to their answers.", wait_ns, 1000),
    CLIENT("wait_max_us", "wait_max_seconds", "Longest time from a request to its answer.", wait_max_ns, 1000),
    CLIENT("resends", "resends_total", "Repeated requests of a trainer.", repeated, 1),
    CLIENT("next_sample", "next_sample", "Train sample after the last batch.", next_sample, 1),
    CLIENT("unread_bytes", "unread_bytes", "Bytes of answers that a trainer has not read.", unread_bytes, 1),
    CLIENT("age_ms", "age_seconds", "Time since the first message.", age_ns, 1000000),
    CLIENT("silent_ms", "silent_seconds", "Time since the last message.", silent_ns, 1000000),
};

static const Field source_fields[] = {
    SOURCE("weight", "weight", "Weight of a dataset.", weight),
    SOURCE("batches", "batches_total", "Batches sent of a dataset alone, or of its mixture.", batches),
    SOURCE("tokens", "tokens_total", "Tokens sent of a dataset for training.", tokens),
    SOURCE("highest_sample", "highest_sample", "Train samples requested, the last one + 1.", highest),
    SOURCE("replaced", "replaced", "1: another dataset has replaced it.", replaced),
    SOURCE("next_weight", "next_weight", "Weight of a dataset from the next change on.", next_weight),
    SOURCE("next_from", "next_from_sample", "First train sample of the next change of weights, 0: none.", next_from),
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
        buffer_print(out, "%s{\"session\": \"%016" PRIx64 "\", \"name\": ", i ? ", " : "", client->session);
        json_add_string(out, client->name);
        buffer_print(out, ", \"address\": ");
        json_add_string(out, client->address);
        buffer_print(out, ", \"block_size\": %u, \"ring\": %s, ", client->sequence_tokens,
                     client->ring ? "true" : "false");
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
    const char *name = field->metric, *total = "_total";
    const size_t length = strlen(name), end = strlen(total);
    buffer_print(out, "# HELP millrace_loader_%s%s %s\n# TYPE millrace_loader_%s%s %s\n", prefix, name, field->help,
                 prefix, name, length > end && !strcmp(name + length - end, total) ? "counter" : "gauge");
}

static void prometheus_value(Buffer *out, const void *row, const Field *field) {
    const uint64_t value = get_u64((const uint8_t *)row + field->offset);
    if (field->divisor == 1)
        buffer_print(out, " %" PRIu64 "\n", value);
    else
        buffer_print(out, " %" PRIu64 ".%09" PRIu64 "\n", value / 1000000000, value % 1000000000);
}

// A label value is valid UTF-8, in which a backslash, a quote and a line feed are escaped, and nothing else.
static void add_label(Buffer *out, const char *name, const char *value) {
    buffer_print(out, "%s=\"", name);
    for (const uint8_t *at = (const uint8_t *)value, *end = at + strlen(value); at < end;) {
        uint32_t point;
        const unsigned length = utf8_decode(at, end, &point);
        if (point > UTF8_LAST)
            buffer_print(out, UTF8_REPLACED);
        else if (point == '\n')
            buffer_print(out, "\\n");
        else
            buffer_print(out, "%s%.*s", point == '\\' || point == '"' ? "\\" : "", (int)length, (const char *)at);
        at += length;
    }
    buffer_print(out, "\"");
}

// `endpoint="..."`, of each sample: node_exporter drops the second of two files that have a sample with equal labels.
static void add_endpoint(Buffer *out, const Endpoint *endpoint) {
    char *dir = endpoint->ipc ? realpath(endpoint->dir, NULL) : NULL, place[PATH_MAX_BYTES + 8];
    snprintf(place, sizeof place, "ipc://%s", dir ? dir : "");
    add_label(out, "endpoint", dir ? place : endpoint->name);
    free(dir);
}

static void print_prometheus(const Status *status, const Endpoint *endpoint, Buffer *out) {
    Buffer label = {0};
    add_endpoint(&label, endpoint);
    buffer_add(&label, "", 1);
    const char *labels = (const char *)label.data;
    buffer_print(out,
                 "# HELP millrace_loader_start_time_seconds Time of the start, since 1970.\n"
                 "# TYPE millrace_loader_start_time_seconds gauge\nmillrace_loader_start_time_seconds{%s} %lld\n",
                 labels, (long long)time(NULL) - (long long)(status->totals.uptime_ns / 1000000000));
    buffer_print(out,
                 "# HELP millrace_loader_time_seconds Time of these values, since 1970: a file that stays the same is "
                 "of a loader that was killed.\n"
                 "# TYPE millrace_loader_time_seconds gauge\nmillrace_loader_time_seconds{%s} %lld\n",
                 labels, (long long)time(NULL));
    for (size_t i = 0; i < COUNT(total_fields); i++) {
        prometheus_head(out, "", &total_fields[i]);
        buffer_print(out, "millrace_loader_%s{%s}", total_fields[i].metric, labels);
        prometheus_value(out, &status->totals, &total_fields[i]);
    }
    for (size_t i = 0; i < COUNT(client_fields); i++) {
        prometheus_head(out, "client_", &client_fields[i]);
        for (uint32_t c = 0; c < status->totals.clients; c++) {
            const WireClientStats *client = &status->clients[c];
            buffer_print(out, "millrace_loader_client_%s{%s,session=\"%016" PRIx64 "\",", client_fields[i].metric,
                         labels, client->session);
            add_label(out, "address", client->address);
            add_label(out, ",name", client->name);
            buffer_print(out, "}");
            prometheus_value(out, client, &client_fields[i]);
        }
    }
    for (size_t i = 0; i < COUNT(source_fields); i++) {
        prometheus_head(out, "source_", &source_fields[i]);
        for (uint32_t s = 0; s < status->totals.sources; s++) {
            buffer_print(out, "millrace_loader_source_%s{%s,", source_fields[i].metric, labels);
            add_label(out, "name", status->sources[s].name);
            // `source` makes the labels unique: a mixture may have a dataset that it has replaced, or one twice.
            buffer_print(out, ",fingerprint=\"%016" PRIx64 "\",source=\"%u\"}",
                         __builtin_bswap64(get_u64(status->sources[s].fp8)), s + 1); // from 1, as everywhere
            prometheus_value(out, &status->sources[s], &source_fields[i]);
        }
    }
    buffer_close(&label);
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
        char count[16], next[80] = "";
        if (source->next_from)
            snprintf(next, sizeof next, " (weight %" PRIu64 " from sample %" PRIu64 " on)", source->next_weight,
                     source->next_from);
        buffer_print(out, "%-24s %016" PRIx64 " %6" PRIu64 " %12s%s%s\n", source->name,
                     __builtin_bswap64(get_u64(source->fp8)), source->weight,
                     human_count(count, (double)source->tokens), next, source->replaced ? " (replaced)" : "");
    }
    if (status->totals.clients)
        buffer_print(out, "\n%-16s %-6s %6s %10s %12s %12s %12s %12s %8s %12s %10s  %-15s %s\n", "client", "rows", "T",
                     "tokens/s", "tokens", "next sample", "mean us", "max us", "resends", "unread", "silent s",
                     "address", "name");
    for (uint32_t i = 0; i < status->totals.clients; i++) {
        const WireClientStats *client = &status->clients[i];
        char rate[16], tokens[16], unread[16];
        const char *rows = client->silent_ns >= STATUS_GONE_NS ? "gone" : client->ring ? "ring" : "inline";
        buffer_print(
            out, "%016" PRIx64 " %-6s %6u %10s %12s %12" PRIu64 " %12.1f %12.1f %8" PRIu64 " %12s %10.1f  %-15s %s\n",
            client->session, rows, client->sequence_tokens, human_count(rate, (double)client->tokens_per_s),
            human_count(tokens, (double)client->tokens), client->next_sample, mean_us(client),
            (double)client->wait_max_ns / 1e3, client->repeated, human_bytes(unread, (double)client->unread_bytes),
            (double)client->silent_ns / 1e9, client->address, client->name);
    }
}

void status_print(const Status *status, StatusForm form, const Endpoint *endpoint, Buffer *out) {
    switch (form) {
    case STATUS_TABLE:
        print_table(status, out);
        return;
    case STATUS_JSON:
        print_json(status, out);
        return;
    case STATUS_PROMETHEUS:
        print_prometheus(status, endpoint, out);
    }
}
