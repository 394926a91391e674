// dedup: removes documents whose ids occurred before, compared by a hash of 128 bits. Memory: one bit a document, and
// one bucket of hashes (buckets.h).
#include "common/err.h"
#include "common/log.h"
#include "shardtool/support/buckets.h"
#include "shardtool/support/documents.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

static const Option options[] = {
    ROW_OUTPUT_SPLIT,
    ROWS_OUTPUT,
    ROW_END,
};

// A record of a bucket, whose key is the high half of the hash.
typedef struct {
    uint64_t low, number; // number of the document, over both splits
} HashRecord;

typedef struct {
    const DocumentInputs *inputs;
    Output *output;
    Buckets *buckets;
    uint8_t *removed; // one bit a document
    uint64_t documents, removed_documents, removed_tokens;
    uint64_t key; // of the last record
    Buffer lows;  // the low halves met with that key
} Dedup;

static int add_hash(void *state, const void *ids, size_t count, unsigned bytes) {
    return XXH3_128bits_update(state, ids, count * bytes) == XXH_OK ? 0 : fail(EX_BUG, "cannot hash");
}

// The documents that are written, of both splits in order, with their numbers.
static int each_document(Dedup *dedup, int (*visit)(Dedup *dedup, DocumentCursor *cursor, uint64_t number)) {
    uint64_t number = 0;
    int status = 0;
    for (int i = 0; status == 0 && i < SPLIT_COUNT; i++) {
        DocumentCursor cursor = {.inputs = dedup->inputs, .split = i};
        if (!documents_has(dedup->output, i)) continue;
        while (status == 0 && (status = documents_next(&cursor)) > 0) status = visit(dedup, &cursor, number++);
        documents_end(&cursor);
    }
    return status;
}

static int hash_document(Dedup *dedup, DocumentCursor *cursor, uint64_t number) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) die(EX_MEMORY, "no memory for a hash");
    XXH3_128bits_reset(state);
    int status = documents_read(cursor, add_hash, state);
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    HashRecord record = {hash.low64, number};
    dedup->documents = number + 1;
    if (status == 0) status = buckets_begin(dedup->buckets, hash.high64, sizeof record);
    return status < 0 ? -1 : buckets_add(dedup->buckets, &record, sizeof record);
}

// Records with equal keys come in the order of the documents.
static int mark_record(void *context, uint64_t key, Bytes bytes) {
    Dedup *dedup = context;
    HashRecord record;
    memcpy(&record, bytes.data, sizeof record);
    if (key != dedup->key) dedup->lows.size = 0;
    dedup->key = key;
    for (size_t at = 0; at < dedup->lows.size; at += sizeof record.low)
        if (get_u64(dedup->lows.data + at) == record.low) {
            dedup->removed[record.number / 8] |= (uint8_t)(1 << record.number % 8);
            return 0;
        }
    buffer_add(&dedup->lows, &record.low, sizeof record.low);
    return 0;
}

static int copy_document(Dedup *dedup, DocumentCursor *cursor, uint64_t number) {
    if (!(dedup->removed[number / 8] >> number % 8 & 1)) return documents_copy(cursor, dedup->output);
    dedup->removed_documents++, dedup->removed_tokens += cursor->document.tokens;
    return 0;
}

static int dedup_all(const DocumentInputs *inputs, Output *output) {
    Dedup dedup = {.inputs = inputs, .output = output};
    uint64_t bytes = (inputs->documents[SPLIT_TRAIN] + inputs->documents[SPLIT_VAL]) * 2 * sizeof(HashRecord);
    dedup.buckets = buckets_open(output->to_stdout ? NULL : output->build.target, bytes);
    int status = dedup.buckets ? each_document(&dedup, hash_document) : -1;
    dedup.removed = allocate_zeroed((size_t)(dedup.documents / 8 + 1), 1);
    if (status == 0) status = buckets_visit(dedup.buckets, mark_record, &dedup);
    if (status == 0) status = each_document(&dedup, copy_document);
    if (status == 0)
        log_line("removed %" PRIu64 " of %" PRIu64 " document%s, %" PRIu64 " tokens", dedup.removed_documents,
                 dedup.documents, PLURAL(dedup.documents), dedup.removed_tokens);
    buckets_close(dedup.buckets);
    buffer_close(&dedup.lows);
    free(dedup.removed);
    return status;
}

static int run(int count, char **arguments) { return documents_run(count, arguments, "dedup", "", dedup_all); }

const Command shardtool_dedup = {
    "dedup", "PATH...", "remove exact duplicates of documents; the first stays, train before val", options, run, NULL};
