// Parts of dedup and decontaminate. --part I/N writes what the decision needs of its documents to a file of DIR. The
// same command without --part reads the files of all parts in place of the texts.
//
// The file is DIR/bands-I-of-N (dedup --similar), DIR/hashes-I-of-N (dedup) or DIR/hits-I-of-N (decontaminate): a line
// of JSON, entries, and 16 bytes. All integers are little-endian. The keys of the line, N is an integer:
//
//   format        "SHRDPART1"
//   kind          bands, hashes or hits
//   rules         text: what else decides the entries: the versions of words and MinHash, the items and their windows
//   inputs        HEX of 32 bytes: SHA-256 of the 16 bytes `digest` of each PATH (dataset.h), in order
//   split         all, train or val: the splits that are read
//   part, parts   N: I and N of the name
//   first         N: the number of its first document; documents are counted over all PATHs, train before val, from 0
//   documents     N: documents of the part
//   header_hash   HEX of 16 bytes: XXH3-128 of this line up to `,"header_hash"`, which is not included
//
// A document is in part I if floor(tokens before it * N / tokens of all) = I - 1, so a part may be empty. The entries:
//
//   bands         for each document: u64, the number of its distinct sequences of 5 words, 0 for a document without
//                 words or of more than 2^24 tokens. Unless it is 0: u64 XXH3-64 of its words, u64 hash of
//                 its digits (words.h), the upper 6 bytes of the keys of its 22 bands, its bitmap (bitmap_filter.h)
//   hashes        for each document: u64 low, u64 high half of the XXH3-128 of its ids
//   hits          for each document in which an item occurs: u64 its number, u64 bytes of the words; f64 share of the
//                 item, u32 the item, the words of its first sequence. Then u64 2^64 - 1, and a bit for each item, in
//                 whole bytes: whether it occurs
//
// The last 16 bytes are the XXH3-128 of all bytes before them. All hashes of 16 bytes are in canonical form.
#pragma once

#include "shardtool/similar/bitmap_filter.h"
#include "shardtool/similar/minhash.h"
#include "shardtool/support/documents.h"

enum { PART_KEY_BYTES = 6 };
typedef enum { PART_BANDS, PART_HASHES, PART_HITS, PART_KINDS } PartKind;

// What the files of a command have in common.
typedef struct {
    const char *directory;
    PartKind kind;
    const char *rules;
    int split;                    // as OutputOptions
    const DocumentInputs *inputs; // part_set_find does without
    unsigned count;               // of parts; 0: there are none
} PartSet;

// The set of this kind in output_options.path.
PartSet part_set_of_output(PartKind kind, const char *rules);
// Sets `count` to the parts in the directory; 0 if there is none, or its dataset is finished and stays. 66 with the
// numbers when some are missing; 2 for files of another number of parts or of another kind.
int part_set_find(PartSet *set);
// Adds to the pending error which parts a directory holds, if it does. Returns -1.
int part_set_fail_in(const char *directory);
void part_set_log_rest(const PartSet *set); // after the last use of the files: which may be removed

// Reading. Zero it first.
typedef struct {
    char path[PATH_MAX_BYTES];
    Bytes map;
    Cursor entries;            // that are not yet read
    uint64_t first, documents; // of the line
} PartFile;

// What the entries are read to; the bytes are borrowed of the file. Each function fails (65) at the end.
typedef struct {
    uint64_t count, text, digits; // of ShingleHead; count 0: the document is not compared
    const uint8_t *keys, *bitmap; // PART_KEY_BYTES for each band
} PartBands;
typedef struct {
    uint64_t number; // UINT64_MAX: no further one, and `words` are the bits of the items
    double share;
    uint32_t item;
    Bytes words;
} PartHit;
int part_file_bands(PartFile *file, PartBands *bands);
int part_file_hash(PartFile *file, DocumentHash *hash);
int part_file_hit(PartFile *file, PartHit *hit);

// Opens the file of a part, and checks the bytes of the whole file: 65 when one is damaged or it was renamed. 2 when it
// was made of other datasets or by other rules.
int part_file_open(PartFile *file, const PartSet *set, unsigned number);
int part_file_check(PartFile *file, const PartSet *set, unsigned number); // the same for the bytes of `map`
int part_file_end(const PartFile *file);                                  // 65 unless all entries were read, each whole
int part_file_damaged(const PartFile *file);                              // fails with 65
void part_file_close(PartFile *file);                                     // accepts a zeroed struct

// Opens the files of all parts in order, and calls `visit` for each of their documents: it reads the entry. -1 after
// fail(), also when they do not have all documents.
int part_set_visit(const PartSet *set, int (*visit)(void *context, PartFile *file, uint64_t number), void *context);

// Writing.
typedef struct {
    PartSet set;
    unsigned number; // from 1
    uint64_t first, documents, tokens, all_documents, all_tokens;
    uint64_t started_ns;
    NewFile file;
    Buffer block;
    void *hash; // XXH3_state_t
} PartWriter;

// All of a command with --part `option`: opens the PATHs, and calls `work` to add the entries of the documents from
// `first` on. Does nothing when the file is there already; 2 when it is of other datasets or rules, unless --force,
// and when the directory holds parts of another kind or number.
int part_set_write(PartSet *set, const char *option, int count, char **paths,
                   int (*work)(void *context, PartWriter *writer), void *context);
int part_writer_add(PartWriter *writer, const void *data, size_t size);
