// filter: keeps the documents that meet all conditions, in order.
#include "common/err.h"
#include "common/log.h"
#include "dataset/listed.h"
#include "shardtool/support/documents.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t min_tokens, max_tokens;
static StringList ids;
static StringList listed_options;
static ListedSet listed; // --listed
static bool invert;
static bool wanted[IDS_MAX]; // --contains-id

static const Option options[] = {
    {OPT_SIZE, "min-tokens", &min_tokens, "N", "keep documents of at least N tokens, end-of-text included"},
    {OPT_SIZE, "max-tokens", &max_tokens, "N",
     "keep documents of at most N tokens, end-of-text included, 0 = any length"},
    {OPT_LIST, "contains-id", &ids, "ID", "keep documents that hold this id; one of several is enough"},
    {OPT_LIST, "listed", &listed_options, "KEY=FILE",
     "keep documents whose kept key KEY (tokenize --keep) has a value that is a line of FILE; one of several is enough"},
    {OPT_FLAG, "invert", &invert, NULL, "keep the other documents"},
    ROW_OUTPUT_SPLIT,
    ROWS_OUTPUT,
    ROW_END,
};

static int find_id(void *found, const void *data, size_t count, unsigned bytes) {
    for (size_t i = 0; i < count; i++)
        if (wanted[id_at(data, i, bytes)]) return *(bool *)found = true, EX_NO;
    return 0;
}

static int matches(DocumentCursor *cursor, bool *keep) {
    uint64_t tokens = cursor->document.tokens;
    *keep = tokens >= min_tokens && (!max_tokens || tokens <= max_tokens);
    if (*keep && ids.count) {
        *keep = false;
        if (documents_read(cursor, find_id, keep) < 0) return -1;
    }
    if (listed.count) { // of each document, so that all lines that occur are counted
        Bytes row;
        if (documents_row(cursor, &row) < 0) return -1;
        *keep &= listed_has(&listed, row);
    }
    *keep ^= invert;
    return 0;
}

static int filter_split(DocumentCursor *cursor, Output *output) {
    int status;
    while ((status = documents_next(cursor)) > 0) {
        bool keep;
        if (matches(cursor, &keep) < 0 || (keep && documents_copy(cursor, output) < 0)) return -1;
    }
    return status;
}

static int parse_ids(Buffer *settings) {
    if (min_tokens) buffer_print(settings, ";min_tokens=%" PRIu64, min_tokens);
    if (max_tokens) buffer_print(settings, ";max_tokens=%" PRIu64, max_tokens);
    for (size_t i = 0; i < ids.count; i++) {
        char *end;
        unsigned long id = strtoul(ids.items[i], &end, 10);
        if (*end || end == ids.items[i] || id >= IDS_MAX)
            return fail(EX_USAGE, "--contains-id '%s' is not an id", ids.items[i]);
        wanted[id] = true;
        buffer_print(settings, "%s%lu", i ? "," : ";contains=", id);
    }
    return 0;
}

static int read_lists(Buffer *settings) {
    char hash[17];
    if (listed_open(&listed, &listed_options) < 0) return -1;
    for (size_t i = 0; i < listed.count; i++) {
        hex_encode(hash, listed.lists[i].hash, 8);
        buffer_print(settings, ";listed=%s:%s", listed.lists[i].key, hash);
    }
    return 0;
}

static int filter_all(void *context, const DocumentInputs *inputs, Output *output) {
    (void)context;
    int status = documents_check_splits(inputs);
    for (int i = 0; status == 0 && i < SPLIT_COUNT; i++) {
        DocumentCursor cursor = {.inputs = inputs, .split = i};
        if (documents_has(output, i)) status = filter_split(&cursor, output);
        documents_end(&cursor);
    }
    return status < 0 ? -1
                      : listed_finish(&listed, invert ? "whether they are listed is not known, and they stay"
                                                      : "they are left out");
}

static int run(int count, char **arguments) {
    Buffer settings = {0};
    int status = parse_ids(&settings);
    const bool others = min_tokens || max_tokens || ids.count;
    if (status == 0) status = read_lists(&settings);
    if (status == 0 && !others && !listed.count)
        status = fail(EX_USAGE, "missing a condition: --min-tokens, --max-tokens, --contains-id or --listed");
    if (status == 0 && others && listed.count && invert)
        status =
            fail(EX_USAGE, "--invert keeps listed documents that meet no other condition: remove those of --listed "
                           "in a run of its own, then filter its dataset");
    if (invert) buffer_print(&settings, ";invert");
    if (status == 0) // after the first ';'
        status = documents_run(count, arguments, "filter", (const char *)settings.data + 1, filter_all, NULL, NULL);
    buffer_close(&settings);
    listed_close(&listed);
    return status;
}

const Command shardtool_filter = {"filter", "PATH...", "keep the documents that meet conditions", options, run, NULL};
