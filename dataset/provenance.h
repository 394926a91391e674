// Where documents came from: the table of a shard, in a file beside it, train/000/000017.docs beside 000017.zst. It has
// a row for each document that begins in the shard, in their order. A shard of whose documents nothing is known has
// no table. The line of the shard in the manifest names the table by its hash.
//
// A row has the name of an input, the place of the document in it (`record`), and the kept values: keys with texts. The
// record counts from 0: the row of Parquet, the line of JSON lines, else the document in the file, as in an archive.
//
// A table is a sequence of blocks. A block is two zstd frames:
//
//   [A] skippable 0x184D2A54  "SHRDDOC1", u32 rows, 1 to 16,384, u32 bytes of B when decompressed, up to 16 MiB
//   [B] zstd                  content size and checksum on; the bytes below
//
// Numbers in B are LEB128, of at most 64 bits; texts end in a NUL and are not empty:
//
//   inputs    their number, then as many names
//   keys      their number, up to 64, then as many names
//   places    for each row: 0 if nothing is known of the document, else 1 + zigzag(i - i'), where i is the number of
//             its input, from 0, and i' that of the row before it with an input, or 0. If it is not 0,
//             zigzag(r - r' - 1) follows, modulo 2^64, where r is the record and r' that of the row before it with an
//             input, or 2^64-1
//   values    for each key: for each row 0 without a value, else 1 + its bytes; then the bytes of all values
//
// zigzag(n) is 2n, or of a negative n -2n-1. A name of an input is a path as it was typed, without what an absolute one
// shares with the other arguments of the command, or a URL without its query and user.
#pragma once

#include "dataset/shard.h"

#define SHARD_DOCS_MAGIC 0x184D2A54u

enum {
    PROVENANCE_ROWS_MAX = 16384,
    PROVENANCE_KEYS_MAX = 64,
    PROVENANCE_BLOCK_BYTES = 4 << 20, // with so many bytes a block ends
    PROVENANCE_RAW_MAX = 16 << 20,
    PROVENANCE_VALUE_MAX = 65535 // bytes of a value
};

// A row as bytes that travel with a document: empty if nothing is known, else the record, the input, the values.
void provenance_begin(Buffer *row, const char *input, uint64_t record); // replaces the row
void provenance_add(Buffer *row, const char *key, Bytes value);         // also of values alone, before they have a row

typedef struct {
    const char *input; // borrowed from the row
    uint64_t record;
    Bytes values;
} Provenance;
bool provenance_parse(Bytes row, Provenance *row_read);                    // false if nothing is known
bool provenance_next_value(Bytes *values, const char **key, Bytes *value); // takes one from the front
bool provenance_find_value(const Provenance *row, const char *key, Bytes *value);
// Appends "input":...,"record":N and, with values, "keys":{...} to a JSON object, each of these after `prefix`; or
// INPUT:RECORD KEY=VALUE ..., without control characters. Nothing if nothing is known.
void provenance_add_json(Buffer *out, const char *prefix, Bytes row);
void provenance_add_text(Buffer *out, Bytes row);

// The file of a table, as the manifest lists it.
typedef struct {
    uint64_t bytes;   // 0: there is none
    uint8_t hash[16]; // XXH3-128, canonical
} ProvenanceFile;

// A table that is being written, to a file that appears with its first block. Zero it, then set `path`.
typedef struct ProvenanceBlock ProvenanceBlock;
typedef struct {
    char path[PATH_MAX_BYTES];
    NewFile file;
    uint64_t rows, known; // in all; of them with an input
    ProvenanceBlock *block;
    XXH3_state_t *hash;
} ProvenanceWriter;

int provenance_writer_add(ProvenanceWriter *writer, Bytes row);
// Without a known row there is no file.
int provenance_writer_finish(ProvenanceWriter *writer, ProvenanceFile *file);
void provenance_writer_abandon(ProvenanceWriter *writer); // accepts a zeroed or finished writer

// A whole table in memory. Every byte of a block is checked before one of its rows is returned: 65.
typedef struct {
    const char *path; // for messages, borrowed
    Bytes bytes;
    uint64_t rows;
    size_t next;                    // offset of the next block
    uint64_t first, block_rows, at; // the open block: its first row in the table, its rows, the next one of them
    Buffer raw;                     // of the open block
    Cursor places, lengths[PROVENANCE_KEYS_MAX];
    const uint8_t *values[PROVENANCE_KEYS_MAX];
    Buffer inputs, keys; // const char *, into `raw`
    uint64_t input, record;
} ProvenanceTable;

int provenance_table_open(ProvenanceTable *table, const char *path, Bytes bytes);
int provenance_table_row(ProvenanceTable *table, uint64_t number, Buffer *row); // in order it is fast
void provenance_table_close(ProvenanceTable *table);                            // accepts a zeroed struct

// Reads a table, which `bytes` owns, and compares it with its hash and number of documents: 65.
int provenance_table_read(ProvenanceTable *table, Buffer *bytes, const char *path, const ProvenanceFile *file,
                          uint64_t documents);
int provenance_check(const char *path, const ProvenanceFile *file, uint64_t documents); // every byte of it
