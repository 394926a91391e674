// Opens and closes the datasets of a loader.
#include "loader/server/served.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "dataset/val_rule.h"
#include "loader/protocol/sampling_mode.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

// --- specifications

int served_spec_parse(ServedSpec *spec, int count, char **words, const char *schedule) {
    *spec = (ServedSpec){.count = (unsigned)count, .schedule = schedule};
    if (count < 1 || count > SOURCES_MAX)
        return fail(EX_USAGE, "expected 1 to %d DIR arguments, dataset directories", SOURCES_MAX);
    if (schedule && count < 2) return fail(EX_USAGE, "--schedule needs several datasets");
    for (int i = 0; i < count; i++) {
        spec->sources[i].path = words[i];
        if (weight_cut(words[i], &spec->sources[i].weight) < 0) return -1;
    }
    if (count == 1 && !spec->sources[0].weight) return fail(EX_USAGE, "'%s' has weight 0 and is alone", words[0]);
    return 0;
}

#define SCHEDULE_WORD "--schedule "

int served_spec_save(const ServedSpec *spec, const char *path) {
    Buffer text = {0};
    int status = 0;
    for (unsigned i = 0; i < spec->count; i++) {
        buffer_print(&text, "%s:%u\n", spec->sources[i].path, spec->sources[i].weight);
        if (strchr(spec->sources[i].path, '\n'))
            status = fail(EX_USAGE, "'%s' has a line break, which '%s' cannot hold", spec->sources[i].path, path);
    }
    if (spec->schedule) buffer_print(&text, SCHEDULE_WORD "%s\n", spec->schedule);
    if (status == 0) status = file_write(path, (Bytes){text.data, text.size});
    buffer_close(&text);
    return status;
}

int served_spec_load(ServedSpec *spec, char **text, const char *path) {
    enum { STATE_MAX = 1 << 20 };
    Buffer file = {0};
    char *words[SOURCES_MAX + 1], *schedule = NULL;
    int count = 0;
    if (access(path, F_OK) < 0 && errno == ENOENT) return 0;
    if (file_read(&file, path, STATE_MAX) < 0) return -1;
    buffer_add(&file, "", 1);
    *text = (char *)file.data;
    for (char *line = *text, *end; *line && count <= SOURCES_MAX; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        if (!strncmp(line, SCHEDULE_WORD, strlen(SCHEDULE_WORD)))
            schedule = line + strlen(SCHEDULE_WORD);
        else
            words[count++] = line;
    }
    return served_spec_parse(spec, count, words, schedule) < 0 ? fail_in("'%s'", path) : 0;
}

// --- several sources

static int check_part(const Dataset *first, const Dataset *part) {
    if (!memcmp(first->vocab_fp, part->vocab_fp, 32) && first->vocab_size == part->vocab_size) return 0;
    return dataset_fail_vocabularies(first->path, first->vocab_fp, first->vocab_size, part->path, part->vocab_fp,
                                     part->vocab_size);
}

// Describes several sources as one dataset, for trainers.
static int sum_up(Served *served, const ServedSpec *spec) {
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
        weights[i] = spec->sources[i].weight;
        buffer_print(&name, "%s%s", i ? "+" : "", part->name);
    }
    buffer_add(&name, "", 1);
    sum->path = sum->name = served->name = (char *)name.data;
    if (mixture_init(&served->mixture, served->source_count, fingerprints, weights) < 0 ||
        (spec->schedule && mixture_read_schedule(&served->mixture, spec->schedule) < 0))
        return -1;
    memcpy(sum->fingerprint, mixture_fingerprint(&served->mixture), 32);
    return 0;
}

// One clause for all datasets whose rule is not that of the first.
static void name_other_rules(const Served *served, Buffer *text) {
    char rule_text[VAL_RULE_TEXT], other_text[VAL_RULE_TEXT];
    const ValRule rule = val_rule_of(&served->parts[0]);
    unsigned count = 0, first = 0;
    for (unsigned i = served->source_count; i-- > 1;) {
        const ValRule other = val_rule_of(&served->parts[i]);
        if (!val_rule_same(&rule, &other)) first = i, count++;
    }
    if (!count) return;
    const ValRule other = val_rule_of(&served->parts[first]);
    buffer_print(text,
                 "; '%s' was made with %s, '%s' with %s%s: a document of both may be in training and in validation, "
                 "which only merge and dedup compare: tokenize with one --val and --seed",
                 served->parts[0].name, val_rule_text(&rule, rule_text), served->parts[first].name,
                 val_rule_text(&other, other_text), count > 1 ? ", and others differ" : "");
}

void served_add_warnings(const Served *served, Buffer *text) {
    for (unsigned i = 0; i < served->source_count; i++)
        for (unsigned k = 0; k < i; k++)
            if (!memcmp(served->parts[i].fingerprint, served->parts[k].fingerprint, 32))
                buffer_print(text,
                             "; datasets %u and %u of the mixture, '%s' and '%s', are equal: each has its own order",
                             k + 1, i + 1, served->parts[k].name, served->parts[i].name);
    name_other_rules(served, text);
}

// Appends a line, on a line of its own. A failure leaves the file as it was. The space comes first, so that a full disk
// takes all of the line or nothing: a loader that is killed could not remove the half of it.
static int append_line(const char *path, const Buffer *line, uint64_t *bytes_before) {
    int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC), status = 0;
    if (fd < 0) return fail_errno("cannot open '%s'", path);
    off_t size = lseek(fd, 0, SEEK_END);
    char last = '\n';
    Buffer text = {0};
    if (size < 0 || (size && pread(fd, &last, 1, size - 1) != 1)) status = fail_errno("cannot read '%s'", path);
    *bytes_before = (uint64_t)size;
    if (last != '\n') buffer_add(&text, "\n", 1);
    buffer_add(&text, line->data, line->size);
    if (status == 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, size, (off_t)text.size) < 0 && errno != EOPNOTSUPP)
        status = fail_errno("cannot write '%s'", path);
    if (status == 0) status = fd_write(fd, text.data, text.size, path);
    if (status == 0 && fsync(fd) < 0) status = fail_errno("cannot write '%s' to disk", path);
    if (status < 0 && size >= 0 && ftruncate(fd, size) < 0) log_warn("'%s' may end with half a line", path);
    buffer_close(&text);
    close(fd);
    return status;
}

int served_reweight(Served *served, uint64_t from, const uint32_t *weights, const char *schedule,
                    uint64_t *schedule_bytes) {
    if (mixture_add(&served->mixture, from, weights) < 0) return -1;
    memcpy(served->dataset.fingerprint, mixture_fingerprint(&served->mixture), 32);
    Buffer line = {0};
    buffer_print(&line, "%" PRIu64, from);
    for (unsigned i = 0; i < served->source_count; i++) buffer_print(&line, " %u", weights[i]);
    buffer_add(&line, "\n", 1);
    int status = append_line(schedule, &line, schedule_bytes);
    buffer_close(&line);
    return status;
}

// --- opening

static int open_streams(Served *served) {
    ServedSource *joined = &served->sources[served->source_count];
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

Served *served_open(const ServedSpec *spec) {
    Served *served = allocate_zeroed(1, sizeof *served);
    served->requested_ns = clock_ns();
    bool opened = true;
    while (opened && served->source_count < spec->count) {
        unsigned number = served->source_count;
        opened = dataset_open(&served->parts[number], spec->sources[number].path) == 0;
        served->source_count += opened;
    }
    if (opened && spec->count == 1)
        served->dataset = served->parts[0];
    else if (opened)
        opened = sum_up(served, spec) == 0;
    if (opened && open_streams(served) == 0) return served;
    served_close(served);
    return NULL;
}

void served_close(Served *served) {
    if (!served) return;
    for (unsigned split = 0; split < SPLIT_COUNT; split++) shard_stream_close(&served->streams[split]);
    for (unsigned i = 0; i < served->source_count; i++) dataset_close(&served->parts[i]);
    mixture_close(&served->mixture);
    free(served->name);
    free(served);
}

void served_retire(Served **closing, Served *served) {
    if (!served) return;
    served->next = *closing;
    *closing = served;
}

MixtureSample served_sample(const Served *served, const WireGet *get, uint64_t sample) {
    if (get->source) return (MixtureSample){get->source - 1u, sample};
    if (served->source_count == 1) return (MixtureSample){0, sample};
    if (get->split == SPLIT_VAL || sampling_ends(get->mode)) return (MixtureSample){served->source_count, sample};
    return mixture_at(&served->mixture, sample);
}

uint64_t served_same_samples(const Served *served, const uint8_t fp8[8]) {
    if (!memcmp(served->dataset.fingerprint, fp8, 8)) return UINT64_MAX;
    return served->source_count > 1 ? mixture_same_samples(&served->mixture, fp8) : 0;
}

static bool has_weight(const Served *served, unsigned source) {
    for (unsigned i = 0; i < served->mixture.entry_count; i++)
        if (served->mixture.entries[i].weights[source]) return true;
    return false;
}

const Dataset *served_shortest(const Served *served, unsigned split) {
    const Dataset *shortest = &served->dataset;
    for (unsigned i = 0; split == SPLIT_TRAIN && i < served->source_count; i++)
        if (has_weight(served, i) && served->parts[i].tokens[split] < shortest->tokens[split])
            shortest = &served->parts[i];
    return shortest;
}
