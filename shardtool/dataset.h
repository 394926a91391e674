// A dataset directory: train/%03u/%06u.zst and val/..., and dataset.jsonl, the manifest: a header line (format,
// fingerprints, options, totals, hash of the lines below), then a line per shard (file, split, tokens, documents,
// bytes, content hash, stored hash, source range). Sorted paths are stream order.
//
// Dataset fingerprint = SHA-256 over lines `split tokens documents content_hash\n` in manifest order,
// `val=P seed=S\n`, and the vocabulary fingerprint in hex: the same data has the same name wherever and however it is
// stored.
#pragma once

#include "shardtool/shard.h"

enum { SPLIT_TRAIN, SPLIT_VAL, SPLIT_COUNT };

typedef struct {
    char *path;     // the directory joined with the manifest's file name
    uint64_t first; // token of the split at which it begins
    uint64_t tokens, documents, bytes;
    uint8_t content_hash[32], stored_hash[16];
} DatasetShard;

typedef struct {
    char *path, *name; // directory, and its last part
    uint8_t fingerprint[32], vocab_fp[32], params_fp[32];
    uint32_t vocab_size, eot_id;
    uint64_t tokens[SPLIT_COUNT], documents[SPLIT_COUNT];
    DatasetShard *shards[SPLIT_COUNT];
    uint64_t shard_count[SPLIT_COUNT];
} Dataset;

// Reads and checks the manifest; the shards themselves are opened by who reads them. 66 when there is none, 65 with the
// line when it is damaged or names a file that is missing or of another size.
int dataset_open(Dataset *dataset, const char *path);
void dataset_close(Dataset *dataset); // accepts a zeroed struct
