// shuffle: puts the documents of each split into random order. The order follows Philox(seed, split, number) for the
// numbers of the documents, so it depends neither on memory nor on workers.
#include "common/rng.h"
#include "shardtool/support/buckets.h"
#include "shardtool/support/documents.h"
#include <inttypes.h>
#include <stdio.h>

static uint64_t seed;

static const Option options[] = {
    {OPT_SIZE, "seed", &seed, "SEED", "seed of the order"},
    ROW_OUTPUT_SPLIT,
    ROWS_OUTPUT,
    ROW_END,
};

// A record of a bucket: ShuffleHead, then the ids and the row.
typedef struct {
    InputPosition position;
    uint64_t tokens, row_bytes;
} ShuffleHead;

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
        Bytes row = {0};
        status = documents_row(&cursor, &row);
        const ShuffleHead head = {cursor.position, cursor.document.tokens, row.size};
        const uint64_t bytes = sizeof head + head.tokens * cursor.tokens.id_bytes + row.size;
        const uint64_t size = (bytes + 3) / 4 * 4; // so that all ids are at a multiple of their size
        if (status < 0 || buckets_begin(shuffle->buckets, key, size) < 0 ||
            buckets_add(shuffle->buckets, &head, sizeof head) < 0 ||
            documents_read(&cursor, add_ids, shuffle->buckets) < 0 ||
            buckets_add(shuffle->buckets, row.data, row.size) < 0 ||
            buckets_add(shuffle->buckets, "\0\0", size - bytes) < 0) {
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
    ShuffleHead head;
    memcpy(&head, record.data, sizeof head);
    const uint8_t *ids = record.data + sizeof head;
    const size_t row = sizeof head + head.tokens * id_bytes(shuffle->inputs->params.vocab_size);
    if (documents_begin(shuffle->output, shuffle->inputs, shuffle->split, head.position,
                        (Bytes){record.data + row, head.row_bytes}) < 0)
        return -1;
    return output_add(shuffle->output, shuffle->split, ids, head.tokens, head.position);
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
    return documents_run(count, arguments, "shuffle", settings, shuffle_all, NULL, NULL);
}

const Command shardtool_shuffle = {
    "shuffle", "PATH...", "put documents into random order; needs as much temporary disk as the ids, 2 or 4 bytes each",
    options,   run,       NULL};
