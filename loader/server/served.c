// Opens and closes what a loader serves.
#include "loader/server/served.h"
#include "common/err.h"
#include "common/file.h"
#include "common/log.h"
#include "loader/protocol/sampling_mode.h"
#include <stdlib.h>

// --- several sources

static int read_schedule(Mixture *mixture, const char *path) {
    enum { SCHEDULE_MAX = 1 << 16 };
    Buffer text = {0};
    int status = file_read(&text, path, SCHEDULE_MAX), number = 1;
    buffer_add(&text, "", 1);
    for (char *line = (char *)text.data, *end; status == 0 && *line; line = end, number++) {
        uint32_t weights[SOURCES_MAX];
        unsigned count = 0;
        char *at;
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        line[strcspn(line, "#")] = 0;
        uint64_t from = strtoull(line, &at, 10);
        if (at == line && !line[strspn(line, " \t\r")]) continue;
        bool valid = at != line && *line != '-';
        while (valid && at[strspn(at, " \t\r")]) {
            char *next;
            unsigned long weight = strtoul(at, &next, 10);
            valid = next != at && weight <= WEIGHT_MAX && count < SOURCES_MAX && !strchr(at, '-');
            if (valid) weights[count++] = (uint32_t)weight;
            at = next;
        }
        if (!valid || count != mixture->source_count)
            status = fail(EX_USAGE, "'%s' line %d is not a sample number and %u weights", path, number,
                          mixture->source_count);
        else if (mixture_add(mixture, from, weights) < 0)
            status = fail_in("'%s' line %d", path, number);
    }
    buffer_close(&text);
    return status;
}

static int check_part(const Dataset *first, const Dataset *part) {
    if (!memcmp(first->vocab_fp, part->vocab_fp, 32)) return 0;
    return fail(EX_DATA, "'%s' and '%s' have different vocabularies", first->path, part->path);
}

// What trainers see of several sources.
static int sum_up(Served *served, const SourceSpec *sources, const char *schedule) {
    uint8_t fingerprints[SOURCES_MAX][32];
    uint32_t weights[SOURCES_MAX];
    Buffer name = {0};
    served->dataset = (Dataset){.vocab_size = served->parts[0].vocab_size, .eot_id = served->parts[0].eot_id};
    Dataset *sum = &served->dataset;
    memcpy(sum->vocab_fp, served->parts[0].vocab_fp, 32);
    for (unsigned i = 0; i < served->source_count; i++) {
        const Dataset *part = &served->parts[i];
        if (check_part(&served->parts[0], part) < 0) {
            buffer_close(&name);
            return -1;
        }
        for (unsigned split = 0; split < SPLIT_COUNT; split++)
            sum->tokens[split] += part->tokens[split], sum->documents[split] += part->documents[split];
        memcpy(fingerprints[i], part->fingerprint, 32);
        weights[i] = sources[i].weight;
        buffer_print(&name, "%s%s:%u", i ? "+" : "", part->name, weights[i]);
    }
    buffer_add(&name, "", 1);
    sum->path = sum->name = served->name = (char *)name.data;
    if (mixture_init(&served->mixture, served->source_count, fingerprints, weights) < 0 ||
        (schedule && read_schedule(&served->mixture, schedule) < 0))
        return -1;
    memcpy(sum->fingerprint, mixture_fingerprint(&served->mixture), 32);
    return 0;
}

// --- opening

static int open_streams(Served *served) {
    Source *joined = &served->sources[served->source_count];
    for (unsigned split = 0; split < SPLIT_COUNT; split++) {
        ShardStream *stream = &served->streams[split];
        uint64_t shards = 0;
        for (unsigned i = 0; i < served->source_count; i++) shards += served->parts[i].shard_count[split];
        shard_stream_open(stream, split, shards);
        for (unsigned i = 0; i < served->source_count; i++) {
            served->sources[i].first_token[split] = stream->tokens;
            if (shard_stream_add(stream, &served->parts[i]) < 0) return -1;
            served->sources[i].tokens[split] = stream->tokens - served->sources[i].first_token[split];
        }
        joined->tokens[split] = stream->tokens;
        shard_stream_ready(stream);
    }
    return 0;
}

Served *served_open(const SourceSpec *sources, unsigned count, const char *schedule) {
    Served *served = allocate_zeroed(1, sizeof *served);
    served->requested_ns = clock_ns();
    bool opened = true;
    while (opened && served->source_count < count) {
        unsigned number = served->source_count;
        opened = dataset_open(&served->parts[number], sources[number].path) == 0;
        served->source_count += opened;
    }
    if (opened && count == 1)
        served->dataset = served->parts[0];
    else if (opened)
        opened = sum_up(served, sources, schedule) == 0;
    if (opened && open_streams(served) == 0) return served;
    served_close(served);
    return NULL;
}

void served_close(Served *served) {
    if (!served) return;
    for (unsigned split = 0; split < SPLIT_COUNT; split++) shard_stream_close(&served->streams[split]);
    for (unsigned i = 0; i < served->source_count; i++) dataset_close(&served->parts[i]);
    free(served->name);
    free(served);
}

MixtureSample served_sample(const Served *served, unsigned split, unsigned mode, uint64_t sample) {
    if (served->source_count == 1) return (MixtureSample){0, sample};
    if (split == SPLIT_VAL || mode == SAMPLING_SEQUENTIAL) return (MixtureSample){served->source_count, sample};
    return mixture_at(&served->mixture, sample);
}

uint64_t served_same_samples(const Served *served, const uint8_t fp8[8]) {
    if (!memcmp(served->dataset.fingerprint, fp8, 8)) return UINT64_MAX;
    return served->source_count > 1 ? mixture_same_samples(&served->mixture, fp8) : 0;
}

bool served_weighs(const Served *served, unsigned source) {
    if (served->source_count == 1) return true;
    for (unsigned i = 0; i < served->mixture.entry_count; i++)
        if (served->mixture.entries[i].weights[source]) return true;
    return false;
}
