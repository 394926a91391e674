// A dataset directory: the shards train/%03u/%06u.zst and val/%03u/%06u.zst, and the manifest dataset.jsonl.
//
// The manifest has a header line (format, fingerprints, options, sources, totals, hash of the following lines, hash of
// the header up to here), then one line per shard (file, split, tokens, documents, bytes, content hash, stored hash,
// source range). The order of the sorted paths is the order of the tokens.
//
// The directory may also hold skipped.jsonl, the bad inputs that the run skipped, and .lock.
//
// Dataset fingerprint = SHA-256 over lines `split tokens documents content_hash\n` in manifest order,
// `val=P seed=S\n`, and the vocabulary fingerprint in hex. It identifies the data, independent of place and storage.
#pragma once

#include "common/arena.h"
#include "dataset/manifest.h"
#include "dataset/shard.h"
#include "dataset/split.h"

#define DATASET_REPLACEMENT ".new/" DATASET_MANIFEST // of a dataset that is about to take this one's place
#define DATASET_JOURNAL     ".journal"
#define DATASET_PENDING     ".pending"
#define DATASET_WINDOW      ".window"
#define DATASET_SKIPS       "skipped.jsonl"

typedef struct {
    const char *source; // path of the input file
    uint64_t document;  // index in that file
} DatasetPosition;

typedef struct {
    const char *path;                                // joined with the directory
    uint64_t first;                                  // index of its first token in the split
    uint64_t tokens, documents, bytes, source_bytes; // bytes: size of the file
    uint8_t content_hash[32], stored_hash[16];
    DatasetPosition from, to; // the documents of its first and its last token
} DatasetShard;

// One argument of the run that made the dataset.
typedef struct {
    const char *path; // as typed
    uint64_t files, bytes;
    uint8_t digest[16]; // XXH3-128 over each file's path, size, first and last 64 KiB
} DatasetSource;

typedef struct {
    Arena arena;             // owns every string
    const char *path, *name; // the directory and its last component
    uint8_t fingerprint[32], vocab_fp[32], params_fp[32];
    const char *part; // of a part that tokenize --part made: its number and all files, see run_part.h; else NULL
    const char *params, *val; // the options that params_fp hashes; the validation share, as text
    uint64_t val_seed;
    uint32_t vocab_size, eot_id;
    uint64_t tokens[SPLIT_COUNT], documents[SPLIT_COUNT], source_bytes;
    DatasetShard *shards[SPLIT_COUNT];
    uint64_t shard_count[SPLIT_COUNT];
    DatasetSource *sources;
    uint64_t source_count;
} Dataset;

// What is compared of the file of a shard that a manifest or a journal lists.
typedef enum { SHARD_FILE_NOTHING, SHARD_FILE_SIZE, SHARD_FILE_HASH } ShardFileCheck;

// Reads and checks the manifest without opening the shards. 66 when there is no manifest; 65, with the line, when it is
// damaged or lists a file that is missing or has another size.
int dataset_open(Dataset *dataset, const char *path);
int dataset_open_manifest(Dataset *dataset, const char *path); // the same, whatever files there are
void dataset_close(Dataset *dataset);                          // accepts a zeroed struct

// To write a dataset: begin, set vocabulary, params and val, add shards and sources in order, save.
uint64_t dataset_bytes(const Dataset *dataset, int split); // size of the files of a split
void dataset_begin(Dataset *dataset, const char *path);
void dataset_add(Dataset *dataset, int split, const DatasetShard *shard); // copies; sets path and first
void dataset_add_source(Dataset *dataset, const DatasetSource *source);
int dataset_save(Dataset *dataset); // writes the manifest atomically; sets the fingerprint

struct json_t; // of libjansson
// The line of a shard in the manifest, and a shard from its JSON object: its split, or -1 when the object is malformed
// or the file does not pass the check.
void dataset_write_shard(Buffer *out, int split, uint64_t number, const DatasetShard *shard);
int dataset_read_shard(Dataset *dataset, const struct json_t *object, ShardFileCheck check);
int dataset_check_size(const char *path, uint64_t bytes); // 65 when the file is missing or has another size

// "DIR/train/000/000017.zst"; dies when the path is too long.
void dataset_shard_path(char out[PATH_MAX_BYTES], const char *directory, int split, uint64_t number);
void dataset_skips_path(char out[PATH_MAX_BYTES], const char *directory); // "DIR/skipped.jsonl"
// A directory with a manifest, or one whose replacement was interrupted. For a URL: whether it does not
// end in .zst, as shards do.
bool dataset_is(const char *path);
// Creates the folder of a shard, durably.
int dataset_make_folder(const char *directory, int split, uint64_t number);
