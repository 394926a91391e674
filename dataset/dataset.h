// A dataset directory: the shards train/%03u/%06u.zst and val/%03u/%06u.zst, and the manifest dataset.jsonl.
//
// The manifest has a line for the header and one for each shard, of train first. Each is a JSON object. N is an integer
// from 0 to 2^63-1, HEX has two digits for each byte. A reader refuses a line without one of the keys, but `part`,
// `sources`, `names_from`, `history`, `docs`, `source_bytes`, `train` and `val` may be missing. It ignores other keys.
//
//   format        "SHRDSET2", or "SHRDSET1", which has no header_hash; a reader refuses others
//   fingerprint   HEX of 32 bytes: of the dataset (below); a reader computes and compares it
//   vocab_fp      HEX of 32 bytes: of the vocabulary (tokenizer/merge/vocab.h)
//   params_fp     HEX of 32 bytes: SHA-256 of the text of `params` and "\n"
//   vocab_size    N: the number of ids, 1 to IDS_MAX = 1,048,576
//   eot_id        N: the id that ends a document, up to 2^32-1
//   params        text: the options that decide the bytes of the shards; "merge" if they differ between merged datasets
//   part          text, only of an unfinished dataset: I/N HASH, of `tokenize --part I/N`
//   val_share     text: the share of the documents in val, as a decimal number; "mixed" of datasets that were joined
//                 and have other shares or seeds
//   val_seed      N: the seed by which documents were chosen for val (below)
//   sources       a list of the arguments of the command: `path` as typed, the N `files` and `bytes`, and the HEX of 16
//                 bytes `digest`, by which shardtool finds that inputs have changed
//   names_from    text, optional: the folder, as typed, that names of inputs in tables of documents are relative to, if
//                 inputs are named by absolute paths or by ..; tokenize --append takes it
//   history       how the dataset came about: an object of two texts, `command` and its `settings`, and if it was made
//                 of datasets, `from`, the list of these. Each is such an object, with the text `name` and the N
//                 `tokens` and `documents` that it had; without `command` it is not known
//   source_bytes  N: bytes of the documents before they were tokenized
//   train, val    objects of three N, the sums over the split: `shards`, `tokens`, `documents`
//   lines_hash    HEX of 32 bytes: SHA-256 of all lines after this one, with their ends; a reader compares it
//   header_hash   HEX of 32 bytes: SHA-256 of this line up to `,"header_hash"`, which is not included. It is the last
//                 key, and `}` follows it; a reader compares it
//
// The line of a shard:
//
//   file          text: its path in the directory, SPLIT/%03u/%06u.zst with K / 1000 and K, where K counts the
//                 shards of the split from 0; a reader refuses another
//   split         text: train or val
//   tokens        N
//   documents     N: that start in the shard
//   bytes         N: the size of the file; a reader compares it
//   source_bytes  N: of the documents that end in the shard
//   content_hash  HEX of 32 bytes: as in the trailer of the shard
//   stored_hash   HEX of 16 bytes: as in the trailer
//   from, to      objects: the file `source`, and the N `document` in it, of the first and the last token
//   docs          only of a shard with a table of its documents (dataset/provenance.h), which is beside it, with .docs
//                 in place of .zst: an object of N `bytes` and `hash`, the HEX of 16 bytes of its XXH3-128
//
// The order of the lines of a split is the order of its tokens.
//
// The directory may also hold skipped.jsonl, the bad inputs that the run skipped, and .lock.
//
// A document is in val if val_share is 1, or if the XXH3-64 of its text, of which the first 65,536 bytes count, with
// the seed val_seed is below val_share * 2^64, rounded down. The text is that of the input, before bytes that are not
// UTF-8 are replaced; the markers of a conversation are bytes in it (common/turns.h). So its split depends on nothing
// else: not on the file or archive that holds it, nor on other documents. If datasets with the same val_share and
// val_seed are joined, no document is in both splits.
//
// Dataset fingerprint = SHA-256 over lines `split tokens documents content_hash\n` in manifest order, `val=P seed=S\n`,
// and vocab_fp in lower-case hex. P is the text of val_share, S is val_seed. The fingerprint identifies the data,
// independent of place, storage and provenance.
#pragma once

#include "common/arena.h"
#include "dataset/manifest.h"
#include "dataset/provenance.h"
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
    ProvenanceFile docs;      // the table of its documents
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
    const char *part;       // of a part that tokenize --part made: its number and all files, see run_part.h; else NULL
    const char *names_from; // a folder with its `/`; NULL: none
    const char *history;    // as JSON (lineage.h); NULL: not known
    const char *params, *val; // the options that params_fp hashes; the validation share, as text
    uint64_t val_seed;
    uint32_t vocab_size, eot_id;
    uint64_t tokens[SPLIT_COUNT], documents[SPLIT_COUNT], source_bytes;
    DatasetShard *shards[SPLIT_COUNT];
    uint64_t shard_count[SPLIT_COUNT];
    DatasetSource *sources;
    uint64_t source_count;
} Dataset;

// How the file of a shard is compared with its row in a manifest or a journal.
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
// 65 for two parts of one whole with different vocabularies.
int dataset_fail_vocabularies(const char *path, const uint8_t vocab_fp[32], uint32_t vocab_size, const char *other,
                              const uint8_t other_fp[32], uint32_t other_size);
int dataset_check_size(const char *path, uint64_t bytes); // 65 when the file is missing or has another size

// "DIR/train/000/000017.zst"; dies when the path is too long.
void dataset_shard_path(char out[PATH_MAX_BYTES], const char *directory, int split, uint64_t number);
void dataset_docs_path(char out[PATH_MAX_BYTES], const char *directory, int split, uint64_t number); // .docs
void dataset_skips_path(char out[PATH_MAX_BYTES], const char *directory); // "DIR/skipped.jsonl"
// A directory with a manifest, or one whose replacement was interrupted. For a URL: whether it does not
// end in .zst, as shards do.
bool dataset_is(const char *path);
bool dataset_is_unfinished(const char *path); // a directory that tokenize has not finished
// Creates the folder of a shard, durably.
int dataset_make_folder(const char *directory, int split, uint64_t number);
