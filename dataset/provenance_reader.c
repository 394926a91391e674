// Finds the shard and its table.
#include "dataset/provenance_reader.h"
#include "common/err.h"
#include <inttypes.h>

int provenance_at(ProvenanceReader *reader, uint64_t document, Bytes *row) {
    *row = (Bytes){0};
    if (!reader->dataset->path) return 0;
    const DatasetShard *shards = reader->dataset->shards[reader->split];
    uint64_t shard = reader->shard, first = reader->first;
    if (document < first) shard = first = 0;
    while (shard < reader->dataset->shard_count[reader->split] && document >= first + shards[shard].documents)
        first += shards[shard++].documents;
    if (shard == reader->dataset->shard_count[reader->split])
        return fail(EX_DATA, "dataset '%s': document %" PRIu64 " is beyond those of the manifest: run verify",
                    reader->dataset->path, document);
    if (!reader->is_open || shard != reader->shard) {
        provenance_table_close(&reader->table);
        reader->is_open = false, reader->shard = shard, reader->first = first;
        if (!shards[shard].docs.bytes) return 0;
        dataset_docs_path(reader->path, reader->dataset->path, reader->split, shard);
        if (provenance_table_read(&reader->table, &reader->bytes, reader->path, &shards[shard].docs,
                                  shards[shard].documents) < 0)
            return -1;
        reader->is_open = true;
    }
    if (provenance_table_row(&reader->table, document - first, &reader->row) < 0) return -1;
    *row = (Bytes){reader->row.data, reader->row.size};
    return 0;
}

void provenance_reader_close(ProvenanceReader *reader) {
    provenance_table_close(&reader->table);
    buffer_close(&reader->bytes);
    buffer_close(&reader->row);
    *reader = (ProvenanceReader){0};
}
