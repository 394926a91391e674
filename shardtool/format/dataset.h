// A dataset directory: train/%03u/%06u.zst and val/..., and dataset.jsonl, the manifest: a header line (format,
// fingerprints, options, sources, totals, hash of the lines below), then a line per shard (file, split, tokens,
// documents, bytes, content hash, stored hash, source range). Sorted paths are stream order.
//
// Beside them may lie .lock, and .bpe-cache: the pieces that `tokenize` has merged (shared_cache_save), which let
// another run over similar text start fast. At most 32 MB. It is no part of the data: only `tokenize` reads it, and it
// may be removed at any time.
//
// Dataset fingerprint = SHA-256 over lines `split tokens documents content_hash\n` in manifest order,
// `val=P seed=S\n`, and the vocabulary fingerprint in hex: the same data has the same name wherever and however it is
// stored.
#pragma once

#include "common/arena.h"
#include "shardtool/format/shard.h"
#include "shardtool/format/split.h"

typedef struct {
    const char *source; // the file as it was found
    uint64_t document;  // of it, from 0
} DatasetPosition;

typedef struct {
    const char *path;                                // the directory joined with the manifest's file name
    uint64_t first;                                  // token of the split at which it begins
    uint64_t tokens, documents, bytes, source_bytes; // bytes: of the file
    uint8_t content_hash[32], stored_hash[16];
    DatasetPosition from, to; // the documents its first and its last token come from
} DatasetShard;

// One argument of the run that made the dataset.
typedef struct {
    const char *path; // as typed
    uint64_t files, bytes;
    uint8_t digest[16]; // XXH3-128 over each file's path, size, first and last 64 KiB
} DatasetSource;

typedef struct {
    Arena arena;             // holds every string
    const char *path, *name; // directory, and its last part
    uint8_t fingerprint[32], vocab_fp[32], params_fp[32];
    const char *params, *val; // the options line that params_fp hashes; the share of validation documents, as in it
    uint64_t val_seed;
    uint32_t vocab_size, eot_id;
    uint64_t tokens[SPLIT_COUNT], documents[SPLIT_COUNT], source_bytes;
    DatasetShard *shards[SPLIT_COUNT];
    uint64_t shard_count[SPLIT_COUNT];
    DatasetSource *sources;
    uint64_t source_count;
} Dataset;

// Reads and checks the manifest; the shards themselves are opened by who reads them. 66 when there is none, 65 with the
// line when it is damaged or names a file that is missing or of another size.
int dataset_open(Dataset *dataset, const char *path);
void dataset_close(Dataset *dataset); // accepts a zeroed struct

// Making one: begin zeroed but for the fields that are not counted, add shards and sources in order, save.
void dataset_begin(Dataset *dataset, const char *path);
void dataset_add(Dataset *dataset, int split, const DatasetShard *shard); // copies; path and first are filled in
void dataset_add_source(Dataset *dataset, const DatasetSource *source);
int dataset_save(Dataset *dataset); // the manifest appears whole; fills in the fingerprint

// "DIR/train/000/000017.zst"; dies when the path is too long.
void dataset_shard_path(char out[PATH_MAX_BYTES], const char *directory, int split, uint64_t number);
bool dataset_is(const char *path);                                            // a directory with a manifest
void dataset_bpe_cache_path(char out[PATH_MAX_BYTES], const char *directory); // "DIR/.bpe-cache"
// Makes the folder of a shard, and it is on disk before a file in it is.
int dataset_make_folder(const char *directory, int split, uint64_t number);
// Removes what a run that did not finish, or that is made anew, left behind: temps, shards and the manifest.
int dataset_clear(const char *directory);
