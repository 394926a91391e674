// What a loader serves: the opened shards of one or several datasets, its sources.
#pragma once

#include "loader/server/shard_stream.h"

enum { SOURCES_MAX = 16 };

// The part of the streams that a source has.
typedef struct {
    uint64_t first_token[SPLIT_COUNT], tokens[SPLIT_COUNT];
} Source;

typedef struct Served {
    Dataset dataset;
    Source sources[SOURCES_MAX + 1]; // of more than one, the last is all of them joined
    unsigned source_count;
    ShardStream streams[SPLIT_COUNT];
    unsigned users;                         // requests in progress
    uint64_t requested_ns, batches, tokens; // the last request; rows sent
    struct Served *next;                    // in a list of those to be closed
} Served;

// A sample as a sample of one source.
typedef struct {
    unsigned source;
    uint64_t sample;
} SourceSample;
SourceSample served_sample(const Served *served, unsigned split, unsigned mode, uint64_t sample);

// Opens every shard of dataset directory `path`. NULL after fail(): 65 when a shard is not what the manifest says, 74
// when it cannot be read.
Served *served_open(const char *path);
void served_close(Served *served); // accepts NULL; the row reader must have forgotten it
