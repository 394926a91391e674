// Links or copies the shards of a finished dataset.
#include "shardtool/pipeline/append.h"
#include "dataset/dataset_build.h"
#include "dataset/provenance_reader.h"
#include "dataset/token_reader.h"

// The shards of a split that stay as they are.
static uint64_t full_shards(const Dataset *base, int split, uint64_t shard_tokens) {
    uint64_t count = base->shard_count[split];
    return count && base->shards[split][count - 1].tokens < shard_tokens ? count - 1 : count;
}

int append_link(Dataset *dataset, const Dataset *base, uint64_t shard_tokens, Journal *journal) {
    static const InputPosition none;
    for (int split = 0; split < SPLIT_COUNT; split++) {
        uint64_t count = full_shards(base, split, shard_tokens);
        for (uint64_t i = dataset->shard_count[split]; i < count; i++)
            if (dataset_link_shard(dataset, base, split, i) < 0 ||
                journal_add(journal, split, i, &base->shards[split][i], none) < 0)
                return -1;
    }
    return 0;
}

// The last shard of split s begins in file file_count + 2 * s and ends in the next one: names that are not read.
void append_places(const Dataset *base, Inputs *inputs) {
    const char *names[2 * SPLIT_COUNT] = {0};
    for (int split = 0; split < SPLIT_COUNT; split++) {
        uint64_t count = base->shard_count[split];
        if (!count) continue;
        const DatasetShard *last = &base->shards[split][count - 1];
        names[2 * split] = last->from.source, names[2 * split + 1] = last->to.source;
    }
    inputs_add_names(inputs, names, 2 * SPLIT_COUNT);
}

// Adds the rows of the documents that begin with these ids. *begins: the first of them begins one.
static int add_rows(ShardSink *sink, ProvenanceReader *rows, Bytes ids, unsigned id_bytes, bool *begins,
                    uint64_t *document) {
    Bytes row;
    for (size_t i = 0; i < ids.size / id_bytes; i++) {
        if (*begins && provenance_at(rows, (*document)++, &row) < 0) return -1;
        if (*begins) shard_sink_row(sink, rows->split, row);
        *begins = id_at(ids.data, i, id_bytes) == rows->dataset->eot_id;
    }
    return 0;
}

static int add_shard(ShardSink *sink, const Dataset *base, const Inputs *inputs, int split) {
    uint64_t number = base->shard_count[split] - 1;
    const DatasetShard *last = &base->shards[split][number];
    InputPosition from = {.file = inputs->file_count + 2 * (unsigned)split, .document = last->from.document};
    InputPosition to = {.file = from.file + 1, .document = last->to.document};
    TokenReader reader;
    if (token_reader_open(&reader, base->path, split) < 0) return -1;
    const ShardFile *shard = token_reader_shard(&reader, number);
    int status = shard ? 0 : -1;
    bool begins = shard && !(shard->members[0].index.data[0] & SHARD_CONTINUES_BEFORE);
    if (shard && !begins) shard_sink_continue(sink, split);
    ProvenanceReader rows = {.dataset = &reader.dataset, .split = split};
    uint64_t document = base->documents[split] - last->documents;
    Buffer ids = {0};
    buffer_reserve(&ids, (size_t)SHARD_FRAME_TOKENS * reader.id_bytes);
    for (uint64_t done = 0; status == 0 && done < last->tokens;) {
        uint64_t left = last->tokens - done, take = left < SHARD_FRAME_TOKENS ? left : SHARD_FRAME_TOKENS;
        if (done == 0) take = 1; // the place of its first id
        status = token_reader_get(&reader, last->first + done, (size_t)take, ids.data);
        if (status == 0)
            status = add_rows(sink, &rows, (Bytes){ids.data, (size_t)take * reader.id_bytes}, reader.id_bytes, &begins,
                              &document);
        if (status == 0)
            status = shard_sink_add(sink, split, ids.data, (size_t)take, done ? to : from,
                                    take == left ? last->source_bytes : 0);
        done += take;
    }
    buffer_close(&ids);
    provenance_reader_close(&rows);
    token_reader_close(&reader);
    return status;
}

int append_last(ShardSink *sink, const Dataset *dataset, const Dataset *base, const Inputs *inputs,
                uint64_t shard_tokens, uint64_t *tokens) {
    for (int split = 0; split < SPLIT_COUNT; split++) {
        uint64_t full = full_shards(base, split, shard_tokens);
        if (full == base->shard_count[split] || dataset->shard_count[split] != full) continue;
        if (add_shard(sink, base, inputs, split) < 0) return -1;
        *tokens += base->shards[split][full].tokens;
    }
    return 0;
}
