// Where samples come from: datasets, documents and ranges of tokens, by the rules of loader/protocol/sampling.h and
// mixture.h, from manifests and document indexes alone. No token is decoded.
#pragma once

#include "dataset/listed.h"
#include "dataset/provenance_reader.h"
#include "loader/protocol/mixture.h"

enum { ORIGINS_MAX = MIXTURE_SOURCES_MAX };

// The dataset or the datasets that a fingerprint identifies.
typedef struct {
    Dataset datasets[ORIGINS_MAX];
    unsigned count;
    Mixture mixture;     // of more than one, with the entries that the fingerprint has
    bool shared_streams; // in the order until protocol version 3 (mixture.h)
    ProvenanceReader rows[ORIGINS_MAX];
    Buffer marks[ORIGINS_MAX]; // a bit for each document of the training split: it is listed
} Origins;

// Finds the dataset with this fingerprint among `paths`; if no path has it, they are the sources of a mixture, each as
// "DIR" or "DIR:WEIGHT", whose weights change as the file `schedule` says, or NULL. -1 after fail(): 66 when neither
// has the fingerprint.
int origins_open(Origins *origins, unsigned count, const char *const *paths, const char *schedule,
                 const uint8_t fingerprint[32]);
void origins_close(Origins *origins); // accepts a zeroed struct

typedef struct {
    uint8_t mode; // Sampling
    uint32_t sequence_tokens;
    uint64_t seed, first, count; // samples
} SampleRange;

typedef struct {
    uint64_t sample;                        // of the run
    unsigned dataset;                       // its number in the origins
    uint64_t first, tokens;                 // of the training split of that dataset
    uint64_t first_document, last_document; // of it, from 0
    const DatasetShard *shard;              // that holds the first token
} SampleOrigin;

// Sets `origins` to an array, in order of samples, that the caller frees, also after -1 and fail(). A sample has one,
// but if a mixture is read as one split (sampling permuted and sequential), one for each dataset of its tokens.
int origins_find(const Origins *sources, const SampleRange *range, SampleOrigin **origins, size_t *count);

// Marks the documents of --listed KEY=FILE. `rest`: for listed_finish (dataset/listed.h).
int origins_mark(Origins *sources, ListedSet *listed, const char *rest);
// Appends a JSON object or a line for each marked document of a sample: `head`, and where it came from.
int origin_add_marked(Origins *sources, const SampleOrigin *at, bool json, uint64_t step, Buffer *out);

// Appends the documents of a sample and where they came from: an array of JSON objects, or a line for each, and nothing
// if that is known of none.
int origin_add_documents(Origins *sources, const SampleOrigin *at, bool json, Buffer *out);
