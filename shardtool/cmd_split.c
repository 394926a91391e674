// split: cuts the documents into consecutive parts, each a dataset of its own. `merge DIR/part-*` joins them again.
#include "common/err.h"
#include "common/log.h"
#include "shardtool/support/documents.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static uint64_t parts, part_tokens;

static const Option options[] = {
    {OPT_SIZE, "parts", &parts, "N", "make N parts of equal numbers of documents"},
    {OPT_SIZE, "max-tokens", &part_tokens, "N",
     "begin a new part after the document that completes N tokens of a split"},
    {OPT_STRING, "o,output", &output_options.path, "DIR", "directory of the parts: DIR/part-000000 ..."},
    ROWS_SHARDS,
    {OPT_FLAG, "force", &output_options.force, NULL, "replace finished parts"},
    ROW_END,
};

// A cursor that has moved to the next document, or to the end.
typedef struct {
    DocumentCursor cursor;
    int status; // of documents_next
} Ahead;

// Whether the next document belongs to this part, of which the split has `tokens` already.
static bool belongs(const Ahead *ahead, uint64_t part, uint64_t tokens) {
    const DocumentCursor *cursor = &ahead->cursor;
    if (part_tokens) return tokens < part_tokens;
    uint64_t documents = cursor->inputs->documents[cursor->split];
    return part + 1 == parts || cursor->passed - 1 < (uint64_t)((unsigned __int128)documents * (part + 1) / parts);
}

static int put_part(Ahead aheads[SPLIT_COUNT], Output *output, bool writes, uint64_t part) {
    for (int i = 0; i < SPLIT_COUNT; i++) {
        Ahead *ahead = &aheads[i];
        uint64_t tokens = 0;
        while (ahead->status > 0 && belongs(ahead, part, tokens)) {
            tokens += ahead->cursor.document.tokens;
            if (writes && documents_copy(&ahead->cursor, output) < 0) return -1;
            ahead->status = documents_next(&ahead->cursor);
        }
        if (ahead->status < 0) return -1;
    }
    return 0;
}

// One part. A part that an earlier run finished is passed over.
static int make_part(const DocumentInputs *inputs, Ahead aheads[SPLIT_COUNT], uint64_t part, const char *settings) {
    static Output output;
    char path[PATH_MAX_BYTES];
    if (snprintf(path, sizeof path, "%s/part-%06" PRIu64, output_options.path, part) >= (int)sizeof path)
        return fail(EX_CREATE, "path too long: '%.60s...'", output_options.path);
    OutputPlan plan = documents_plan(inputs, "split", settings);
    plan.tokens = 0;
    int status = output_open(&output, path, &plan);
    bool writes = status == 0;
    if (status >= 0) status = put_part(aheads, &output, writes, part);
    if (status == 0 && writes) status = output_finish(&output);
    output_close(&output);
    return status;
}

// Parts of another split must not stay beside these: merge would read them too.
static int check_others(uint64_t count) {
    DIR *directory = opendir(output_options.path);
    if (!directory) return errno == ENOENT ? 0 : fail_errno("cannot open directory '%s'", output_options.path);
    int status = 0;
    for (struct dirent *entry; status == 0 && (entry = readdir(directory));) {
        uint64_t number;
        int length = 0;
        if (sscanf(entry->d_name, "part-%6" SCNu64 "%n", &number, &length) == 1 && !entry->d_name[length] &&
            number >= count)
            status = fail(EX_CREATE, "'%s/%s' belongs to another split: remove it or choose another directory",
                          output_options.path, entry->d_name);
    }
    closedir(directory);
    return status;
}

// The number of parts that --max-tokens makes, from the document indexes alone.
static int count_parts(const DocumentInputs *inputs, uint64_t *count) {
    *count = 0;
    int status = 0;
    for (int i = 0; status == 0 && i < SPLIT_COUNT; i++) {
        DocumentCursor cursor = {.inputs = inputs, .split = i};
        uint64_t tokens = 0, found = 0;
        while ((status = documents_next(&cursor)) > 0) {
            if (tokens == 0) found++;
            tokens += cursor.document.tokens;
            if (tokens >= part_tokens) tokens = 0;
        }
        documents_end(&cursor);
        if (found > *count) *count = found;
    }
    return status;
}

static int split_inputs(const DocumentInputs *inputs) {
    uint64_t count = parts, most = inputs->documents[SPLIT_TRAIN];
    if (inputs->documents[SPLIT_VAL] > most) most = inputs->documents[SPLIT_VAL];
    if (part_tokens && count_parts(inputs, &count) < 0) return -1;
    if (count > most)
        return fail(EX_USAGE, "--parts %" PRIu64 " is above the %" PRIu64 " documents of the inputs", parts, most);
    if (count > 1000000) return fail(EX_USAGE, "%" PRIu64 " parts are more than 1000000", count);
    if (check_others(count) < 0 || documents_check_splits(inputs) < 0) return -1;
    char settings[64];
    snprintf(settings, sizeof settings, "parts=%" PRIu64 ";tokens=%" PRIu64, parts, part_tokens);
    Ahead aheads[SPLIT_COUNT] = {0};
    int status = 0;
    for (int i = 0; status == 0 && i < SPLIT_COUNT; i++) {
        aheads[i].cursor = (DocumentCursor){.inputs = inputs, .split = i};
        aheads[i].status = documents_next(&aheads[i].cursor);
        if (aheads[i].status < 0) status = -1;
    }
    for (uint64_t part = 0; status == 0 && part < count; part++) status = make_part(inputs, aheads, part, settings);
    for (int i = 0; i < SPLIT_COUNT; i++) documents_end(&aheads[i].cursor);
    return status;
}

static int run(int count, char **arguments) {
    if (!parts == !part_tokens) return fail(EX_USAGE, "expected either --parts N or --max-tokens N");
    if (!output_options.path || !strcmp(output_options.path, "-")) return fail(EX_USAGE, "missing -o DIR");
    DocumentInputs inputs;
    if (documents_open(&inputs, count, arguments) < 0) return -1;
    int status = split_inputs(&inputs);
    documents_close(&inputs);
    return status;
}

const Command shardtool_split = {"split", "PATH...", "cut documents into parts, each a dataset", options, run, NULL};
