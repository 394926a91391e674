// trainer which: the data of one step of a run, or the steps that had documents of a list.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "trainer/audit/origin.h"
#include "trainer/audit/record.h"
#include "trainer/checkpoint/run_state.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t step;
static const char *schedule;
static StringList listed_options;
static ListedSet listed;
static bool json;
static const Option options[] = {
    {OPT_SIZE, "steps", &step, "N", "the step, from 1 on"},
    {OPT_STRING, "schedule", &schedule, "FILE", "the weights of a mixture from given samples on, as in millrace serve"},
    {OPT_LIST, "listed", &listed_options, "KEY=FILE",
     "print the steps that had documents whose kept key KEY has a value that is a line of FILE; may be given several times"},
    {OPT_FLAG, "json", &json, NULL, "print one JSON object per sample, or with --listed per document"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

// The samples of the step, by its line and by the configuration of the process that computed it.
static int read_range(const Record *record, const RecordStep *found, SampleRange *range) {
    Bytes text;
    ConfigReader reader;
    record_member(&found->process, "config", &text);
    json_t *keys = json_loadb((const char *)text.data, text.size, 0, NULL);
    config_open(&reader);
    Config *config = &reader.config;
    int result = record_number(&found->own, "first_sample", &range->first) ? 0 : -1;
    for (int key = 0; key < KEY_COUNT; key++) {
        const char *value = json_string_value(json_object_get(keys, config_key(key)));
        if (!config_has_role(key, ROLE_SAMPLES)) continue;
        if (!value || !config_parse(config, key, value) || config->batch_size.value > 65536) result = -1;
    }
    range->mode = (uint8_t)config->sampling, range->seed = (uint64_t)config->seed;
    range->sequence_tokens = (uint32_t)config->block_size;
    range->count = (uint64_t)(config->batch_size.value * config->gradient_accumulation_steps);
    json_decref(keys);
    config_close(&reader);
    if (result == 0 && range->count && range->count <= 1u << 26) return 0;
    return fail(EX_DATA, "'%s': step %" PRIu64 " or its configuration is damaged", record->path, step);
}

static int print_text(Origins *sources, const SampleOrigin *at, Buffer *line) {
    printf("sample %" PRIu64 ": %s train tokens %" PRIu64 " to %" PRIu64 ", documents %" PRIu64 " to %" PRIu64 ", %s",
           at->sample, sources->datasets[at->dataset].name, at->first, at->first + at->tokens - 1, at->first_document,
           at->last_document, at->shard->path);
    line->size = 0;
    if (origin_add_documents(sources, at, false, line) < 0) return -1;
    if (!line->size && at->shard->from.source)
        printf(" (%s:%" PRIu64 " to %s:%" PRIu64 ")", at->shard->from.source, at->shard->from.document,
               at->shard->to.source, at->shard->to.document);
    printf("\n%.*s", (int)line->size, (const char *)line->data);
    return 0;
}

static int print_json(Origins *sources, const SampleOrigin *at, Buffer *line) {
    const Dataset *dataset = &sources->datasets[at->dataset];
    line->size = 0;
    buffer_print(line, "{");
    json_add_number(line, "step", step);
    json_add_number(line, "sample", at->sample);
    json_add_field(line, "dataset", dataset->path);
    json_add_hex(line, "fingerprint", dataset->fingerprint, 32);
    json_add_number(line, "first_token", at->first);
    json_add_number(line, "tokens", at->tokens);
    json_add_number(line, "first_document", at->first_document);
    json_add_number(line, "last_document", at->last_document);
    json_add_field(line, "shard", at->shard->path);
    json_add_key(line, "documents");
    if (origin_add_documents(sources, at, true, line) < 0) return -1;
    printf("%.*s}\n", (int)line->size, (const char *)line->data);
    return 0;
}

// Opens the dataset or the mixture that a step read.
static int open_sources(const Record *record, const RecordStep *found, unsigned count, const char *const *paths,
                        Origins *sources) {
    uint8_t fingerprint[32];
    char digits[65] = "", own[PATH_MAX_BYTES] = "";
    const char *only = own;
    record_text(&found->dataset, "fingerprint", digits, sizeof digits);
    if (hex_decode(fingerprint, digits, 32) < 0)
        return fail(EX_DATA, "'%s': the dataset of step %" PRIu64 " is damaged", record->path, found->own.step);
    if (!count && !record_text(&found->process, "data", own, sizeof own))
        return fail(EX_USAGE, "the run read from a loader: name the datasets that it served");
    return origins_open(sources, count ? count : 1, count ? paths : &only, schedule, fingerprint);
}

static int print_origins(const Record *record, unsigned count, const char *const *paths) {
    RecordStep found;
    SampleRange range = {0};
    Origins sources = {0};
    if (record_find(record, step, &found) < 0 || read_range(record, &found, &range) < 0) return -1;
    int result = open_sources(record, &found, count, paths, &sources);
    SampleOrigin *origins = NULL;
    size_t places = 0;
    if (result == 0) result = origins_find(&sources, &range, &origins, &places);
    Buffer line = {0};
    for (size_t i = 0; i < places && result == 0; i++)
        result = (json ? print_json : print_text)(&sources, &origins[i], &line);
    buffer_close(&line);
    free(origins);
    origins_close(&sources);
    return result;
}

// Steps of one process and dataset whose samples follow each other: the index of a shard is read once for all of them.
enum { BATCH_SAMPLES = 1 << 20 };
typedef struct {
    const Record *record;
    unsigned count; // of paths
    const char *const *paths;
    RecordStep last;       // the last step of the batch
    SampleRange range;     // of the batch
    uint64_t step_samples; // of each step
    Buffer steps;          // their numbers, u64
    Origins sources;       // of the batch
    const uint8_t *opened; // the line of the dataset that they are of, and that of its process
    const uint8_t *process;
    char counted[65]; // the fingerprint of the last dataset of which the lines that occur were printed
} ListedSteps;

// Marks the documents of the lists, and prints how many lines occur: once, also if more processes read the dataset.
static int mark_listed(ListedSteps *batch) {
    char digits[65] = "";
    record_text(&batch->last.dataset, "fingerprint", digits, sizeof digits);
    const bool again = !strcmp(digits, batch->counted);
    memcpy(batch->counted, digits, sizeof digits);
    return origins_mark(&batch->sources, &listed, again ? NULL : "whether a step had them is not known");
}

static int print_batch(ListedSteps *batch) {
    SampleOrigin *origins = NULL;
    size_t places = 0;
    Buffer out = {0};
    int result = 0;
    if (!batch->steps.size) return 0;
    if (batch->opened != batch->last.dataset.text.data || batch->process != batch->last.process.text.data) {
        origins_close(&batch->sources);
        batch->opened = batch->last.dataset.text.data, batch->process = batch->last.process.text.data;
        result = open_sources(batch->record, &batch->last, batch->count, batch->paths, &batch->sources);
        if (result == 0) result = mark_listed(batch);
    }
    batch->range.count = batch->steps.size / sizeof(uint64_t) * batch->step_samples;
    if (result == 0) result = origins_find(&batch->sources, &batch->range, &origins, &places);
    for (size_t i = 0; result == 0 && i < places; i++) {
        const uint64_t at = (origins[i].sample - batch->range.first) / batch->step_samples;
        result =
            origin_add_marked(&batch->sources, &origins[i], json, get_u64(batch->steps.data + at * sizeof at), &out);
    }
    printf("%.*s", (int)out.size, (const char *)out.data);
    buffer_close(&out);
    free(origins);
    batch->steps.size = 0;
    return result;
}

// Adds a step to the batch, or to the next one.
static int add_step(ListedSteps *batch, const RecordStep *found) {
    SampleRange range = batch->range;
    const bool same = batch->steps.size && batch->last.process.text.data == found->process.text.data &&
                      batch->last.dataset.text.data == found->dataset.text.data;
    const uint64_t samples = batch->steps.size / sizeof(uint64_t) * batch->step_samples;
    uint64_t first = 0;
    step = found->own.step; // for messages
    if (!same && read_range(batch->record, found, &range) < 0) return -1;
    if (!record_number(&found->own, "first_sample", &first))
        return fail(EX_DATA, "'%s': step %" PRIu64 " is damaged", batch->record->path, step);
    if (!same || first != batch->range.first + samples || samples >= BATCH_SAMPLES) {
        if (print_batch(batch) < 0) return -1;
        if (!same) batch->step_samples = range.count;
        batch->range = range, batch->range.first = first;
    }
    batch->last = *found;
    buffer_add(&batch->steps, &found->own.step, sizeof found->own.step);
    return 0;
}

static int print_listed(const Record *record, unsigned count, const char *const *paths) {
    ListedSteps batch = {.record = record, .count = count, .paths = paths};
    RecordStep found = {0};
    RecordLine line;
    int status = listed_open(&listed, &listed_options);
    for (Bytes rest = record->text; status >= 0 && (status = record_next(record, &rest, &line)) > 0;) {
        Bytes unused;
        if (line.kind == LINE_PROCESS && record_member(&line, "config", &unused)) found.process = line;
        if (line.kind == LINE_DATASET && record_member(&line, "fingerprint", &unused)) found.dataset = line;
        if (line.kind != LINE_STEP) continue;
        found.own = line;
        if (!found.process.text.size || !found.dataset.text.size)
            status =
                fail(EX_DATA, "'%s' lacks the configuration or the dataset of step %" PRIu64, record->path, line.step);
        else
            status = add_step(&batch, &found);
    }
    if (status == 0) status = print_batch(&batch);
    buffer_close(&batch.steps);
    origins_close(&batch.sources);
    listed_close(&listed);
    return status;
}

static int run(int count, char **arguments) {
    Record record = {0};
    if (count < 1) return fail(EX_USAGE, "expected the run directory");
    if (!step == !listed_options.count) return fail(EX_USAGE, "expected --steps=N, from 1 on, or --listed KEY=FILE");
    int result = record_open(&record, arguments[0]);
    if (result == 0)
        result = (listed_options.count ? print_listed : print_origins)(&record, (unsigned)count - 1,
                                                                       (const char *const *)arguments + 1);
    record_close(&record);
    return result;
}

const Command trainer_which = {"which",
                               "RUN --steps=N|--listed=KEY=FILE [DIR[:WEIGHT]...]",
                               "print the data of a step, or the steps that had documents of a list",
                               options,
                               run,
                               NULL};
