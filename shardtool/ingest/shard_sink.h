// The second half of packing: ids that come in order are cut into frames, compressed in workers and appended to shards.
#pragma once

#include "common/pool.h"
#include "shardtool/ingest/pipeline.h"

// Of the inputs: a file, and a document of it.
typedef struct {
    uint64_t file, document;
} PackPlace;

typedef struct PackWriter PackWriter;
PackWriter *pack_writer_open(const PackOptions *options, const Inputs *inputs, Dataset *dataset); // NULL after fail()
// Places ids of one document; source_bytes is its length when they are its last, else 0.
int pack_writer_add(PackWriter *writer, int split, const uint16_t *ids, size_t count, PackPlace place,
                    uint64_t source_bytes);
int pack_writer_finish(PackWriter *writer); // the frames and shards that are not full
void pack_writer_close(PackWriter *writer); // removes what is unfinished; accepts NULL
