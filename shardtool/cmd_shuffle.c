// shuffle: puts the documents of each split into random order. The order follows Philox(seed, split, number) for the
// numbers of the documents, so it depends neither on memory nor on workers.
#include "common/rng.h"
#include "shardtool/support/buckets.h"
#include "shardtool/support/documents.h"
#include <inttypes.h>
#include <stdio.h>

static uint64_t seed;

static const Option options[] = {
    {OPT_SIZE, "seed", &seed, "S", "seed of the order"},
    ROW_OUTPUT_SPLIT,
    ROWS_OUTPUT,
    ROW_END,
};

// A record of a bucket: the position, then the ids.
typedef struct {
    const DocumentInputs *inputs;
    Output *output;
    Buckets *buckets;
    int split;
} Shuffle;

static int add_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    return buckets_add(context, ids, count * bytes);
}

static int scatter(Shuffle *shuffle) {
    DocumentCursor cursor = {.inputs = shuffle->inputs, .split = shuffle->split};
    int status;
    while ((status = documents_next(&cursor)) > 0) {
        uint64_t key = rng_u64(seed, (uint64_t)shuffle->split, cursor.passed - 1);
        uint64_t size = sizeof cursor.position + cursor.document.tokens * cursor.tokens.id_bytes;
        if (buckets_begin(shuffle->buckets, key, size) < 0 ||
            buckets_add(shuffle->buckets, &cursor.position, sizeof cursor.position) < 0 ||
            documents_read(&cursor, add_ids, shuffle->buckets) < 0) {
            status = -1;
            break;
        }
    }
    documents_end(&cursor);
    return status;
}

static int put_record(void *context, uint64_t key, Bytes record) {
    (void)key;
    const Shuffle *shuffle = context;
    InputPosition position;
    memcpy(&position, record.data, sizeof position);
    if (documents_begin(shuffle->output, shuffle->inputs, shuffle->split, position) < 0) return -1;
    const unsigned bytes = id_bytes(shuffle->inputs->params.vocab_size);
    const uint8_t *ids = record.data + sizeof position; // at a multiple of the size of an id
    return output_add(shuffle->output, shuffle->split, ids, (record.size - sizeof position) / bytes, position);
}

static int shuffle_split(const DocumentInputs *inputs, Output *output, int number) {
    uint64_t bytes = inputs->tokens[number] * id_bytes(inputs->params.vocab_size) + inputs->documents[number] * 32;
    Shuffle shuffle = {inputs, output, NULL, number};
    shuffle.buckets = buckets_open(output->to_stdout ? NULL : output->build.target, bytes);
    int status = shuffle.buckets ? scatter(&shuffle) : -1;
    if (status == 0) status = buckets_visit(shuffle.buckets, put_record, &shuffle);
    buckets_close(shuffle.buckets);
    return status;
}

static int shuffle_all(void *context, const DocumentInputs *inputs, Output *output) {
    (void)context;
    int status = documents_check_splits(inputs);
    for (int i = 0; status == 0 && i < SPLIT_COUNT; i++)
        if (documents_has(output, i) && inputs->tokens[i]) status = shuffle_split(inputs, output, i);
    return status;
}

static int run(int count, char **arguments) {
    char settings[32];
    snprintf(settings, sizeof settings, "seed=%" PRIu64, seed);
    return documents_run(count, arguments, "shuffle", settings, shuffle_all, NULL);
}

const Command shardtool_shuffle = {
    "shuffle", "PATH...", "put documents into random order; needs as much temporary disk as the ids, 2 or 4 bytes each",
    options,   run,       NULL};
