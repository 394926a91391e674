// The opened shards of the dataset or the datasets (sources) that a loader serves.
#pragma once

#include "loader/protocol/mixture.h"
#include "loader/protocol/wire.h"
#include "loader/server/shard_stream.h"

enum { SOURCES_MAX = MIXTURE_SOURCES_MAX };

// The datasets to open: directories with their weights, and a file with further weights, a line "FROM WEIGHT WEIGHT
// ..." for each change, or NULL. The strings are borrowed.
typedef struct {
    struct {
        const char *path;
        uint32_t weight;
    } sources[SOURCES_MAX];
    unsigned count;
    const char *schedule;
} ServedSpec;

// Parses "DIR" or "DIR:WEIGHT", in place; a directory whose name ends like this is preferred. Fails with 2 for no
// sources, too many, or a weight that is not valid, and for a schedule of a single source.
int served_spec_parse(ServedSpec *spec, int count, char **words, const char *schedule);
// A file that keeps a specification for the next start of the loader: the words of its sources, then "--schedule PATH",
// one in each line. served_spec_load leaves *text NULL when there is no such file; else it owns the strings.
int served_spec_save(const ServedSpec *spec, const char *path);
int served_spec_load(ServedSpec *spec, char **text, const char *path);

// The part of the streams that a source has.
typedef struct {
    uint64_t first_token[SPLIT_COUNT], tokens[SPLIT_COUNT];
} ServedSource;

typedef struct Served {
    Dataset dataset; // as trainers see it: the one source, or the sum of all, which then has no shards and owns nothing
    Dataset parts[SOURCES_MAX];
    Mixture mixture;                       // of more than one source
    char *name;                            // of the mixture
    uint64_t highest;                      // of the train samples that were requested, the last one + 1
    uint64_t source_tokens[SOURCES_MAX];   // sent for training
    uint64_t source_batches[SOURCES_MAX];  // sent of the source alone, or of all together
    ServedSource sources[SOURCES_MAX + 1]; // of more than one, the last is all of them joined
    unsigned source_count;
    ShardStream streams[SPLIT_COUNT];
    unsigned users;        // requests in progress
    uint64_t requested_ns; // the last request
    struct Served *next;   // in a list of those to be closed
} Served;

// A sample of a request as a sample of one source, or of all sources joined.
MixtureSample served_sample(const Served *served, const WireGet *get, uint64_t sample);

// Opens every shard of the sources. NULL after fail(): 65 when a shard does not fit the manifest or the sources have
// different vocabularies, 74 when one cannot be read, 2 for weights that are not valid.
Served *served_open(const ServedSpec *spec);
// Adds a clause for each two sources that are the same dataset, and one for those with other rules for validation.
void served_add_warnings(const Served *served, Buffer *text);
// Adds a change of the weights, to `served` and to the file `schedule`, durably. *schedule_bytes is the size of the
// file before, so that a refused change can be undone with truncate().
int served_reweight(Served *served, uint64_t from, const uint32_t *weights, const char *schedule,
                    uint64_t *schedule_bytes);
// The dataset that limits T in a split: in a mixture's train split, the shortest source that has a weight, now or
// later.
const Dataset *served_shortest(const Served *served, unsigned split);
// How many train samples of the dataset with this fingerprint are the same here (mixture_same_samples).
uint64_t served_same_samples(const Served *served, const uint8_t fp8[8]);
void served_close(Served *served); // accepts NULL; the row reader must have forgotten it
// Adds it to a list of those to be closed when their requests have ended and no decoder works on them. Accepts NULL.
void served_retire(Served **closing, Served *served);
