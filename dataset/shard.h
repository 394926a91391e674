// The shard format "SHRD1": a .zst file that `zstd -dc` decompresses to raw little-endian ids, with a document index,
// checksums and a seek table. This comment is its specification. All integers are little-endian. Ids are u16 if the
// vocabulary has at most 65,536, else u32.
//
//   [A] empty zstd frame      28 B5 2F FD 20 00 01 00 00, so that `file`, lz4 and libarchive see zstd
//   [B] skippable 0x184D2A50  "SHRDHDR1", u16 header_len (98, all of it), u16 version (1), u8 dtype (1 = u16, 2 = u32),
//                             u8 eot_policy (1 = an end-of-text id after each document), u32 eot_id, u32 vocab_size,
//                             u64 frame_tokens, u8 vocab_fp[32], u8 params_fp[32], u32 crc
//   [C] data frames           frame_tokens ids each (the last may be shorter), single segment, content size and XXH64
//                             on, no dictionary; frames merged without recompression may be shorter anywhere
//   [D] skippable 0x184D2A51  document index: u8 flags (bit 0: the first document continues from the previous shard,
//                             bit 1: the last one continues in the next), then zstd(LEB128 token lengths, end-of-text
//                             included; of a document that spans shards, the tokens in this shard), u32 crc
//   [E] skippable 0x184D2A52  u64 tokens, u64 documents that start here,
//                             u64 source bytes of the documents that end here,
//                             u8 content_hash[32] = SHA-256 of the raw ids,
//                             u64 offset of D from the start of the member,
//                             u8 stored_hash[16] = XXH3-128 canonical of [member start, E), u32 crc
//   [F] skippable 0x184D2A5E  the standard seek table, checksum flag on; A, B, D, E listed with decompressed size 0
//                             and the checksum of nothing, 0x51D8E999
//
// Every crc is the CRC32C of the payload before it. Readers refuse other values of dtype and eot_policy, and a dtype
// that does not fit vocab_size, and ignore other skippable frames between B and E. The concatenation of shards is
// readable and seekable: reading backwards from the end of the file, the shard (a "member" of the file) before offset
// `end` starts at end - table - sum(sizes).
#pragma once

#include "common/bytes.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/id_array.h"
#include <xxhash.h>

enum {
    SHARD_FRAME_TOKENS = 32768,
    SHARD_FRAME_TOKENS_MAX = 1 << 26, // 128 MiB of u16 ids
    SHARD_VERSION = 1,
    SHARD_HEADER_BYTES = 98,
    SHARD_TRAILER_BYTES = 84,
    SHARD_ENTRY_BYTES = 12, // of an entry of the seek table
    SHARD_FOOTER_BYTES = 9,
    SHARD_LEVEL = 2, // of compression
    SHARD_LEVEL_MAX = 19,
    SKIPPABLE_BYTES = 8 // magic and length of a skippable frame
};

#define ZSTD_FRAME_MAGIC    0xFD2FB528u
#define SHARD_HEADER_MAGIC  0x184D2A50u
#define SHARD_INDEX_MAGIC   0x184D2A51u
#define SHARD_TRAILER_MAGIC 0x184D2A52u
#define SHARD_TABLE_MAGIC   0x184D2A5Eu
#define SHARD_FOOTER_MAGIC  0x8F92EAB1u
#define SHARD_EMPTY_XXH64   0x51D8E999u
#define SHARD_OPENING       "\x28\xB5\x2F\xFD\x20\x00\x01\x00\x00" // [A], nine bytes

enum { SHARD_CONTINUES_BEFORE = 1, SHARD_CONTINUES_AFTER = 2 };
enum { SHARD_U16 = 1, SHARD_U32 = 2, SHARD_EOT_AFTER = 1 }; // the values of dtype and eot_policy

typedef struct {
    uint64_t offset;   // of the zstd frame in the file
    uint64_t first;    // index of its first token in the file
    uint32_t bytes;    // compressed size
    uint32_t tokens;   // number of ids
    uint32_t checksum; // low 32 bits of XXH64 of the ids, from the seek table
} ShardFrame;

// One shard of a file. A file holds several after `cat a.zst b.zst`.
typedef struct {
    uint64_t offset, trailer, table, end; // file offsets of A, E and F, and of the end of F
    uint64_t first_frame, frame_count;
    uint64_t tokens, documents, source_bytes, frame_tokens;
    Bytes index; // the payload of D without its crc
    uint32_t vocab_size, eot_id;
    uint8_t vocab_fp[32], params_fp[32], content_hash[32], stored_hash[16];
} Shard;

// An open shard file: mapped, tables checked, frames not yet decoded. Several threads may read it.
typedef struct {
    char *path;
    Bytes map;
    bool borrowed;       // the map belongs to the caller
    struct UrlFile *url; // of a file by URL (remote/url_map.h), whose tables are held; else NULL
    uint64_t foreign;    // of a file by URL: a number of its own, for its decoders; else 0
    ShardFrame *frames;
    Shard *members;
    uint64_t frame_count, member_count, tokens, documents, source_bytes;
    uint64_t frame_tokens; // the largest frame; merged files also have shorter ones
    uint32_t vocab_size, eot_id;
    uint8_t vocab_fp[32], params_fp[32], content_hash[32]; // of the last shard
} ShardFile;

// Fails with 65, naming path, block and offset, when the file is not a shard, or is damaged or truncated.
// "-" is standard input; a pipe is first copied to an unlinked temporary file (stdin_spool).
int shard_file_open(ShardFile *shard, const char *path);
// Brings bytes of a file by URL into the map until they are released. Others do nothing. -1 after fail().
int shard_hold(const ShardFile *shard, uint64_t offset, uint64_t size);
void shard_release(const ShardFile *shard, uint64_t offset, uint64_t size);
// Whether a file with these first bytes is a shard.
bool shard_begins(Bytes head);
int shard_file_open_bytes(ShardFile *shard, const char *name, Bytes bytes); // borrows the bytes
void shard_file_close(ShardFile *shard);                                    // accepts a zeroed struct

uint64_t shard_frame_at(const ShardFile *shard, uint64_t token); // the frame that holds token `token`, which must exist

// Decodes frame `index` into ids (frames[index].tokens of id_bytes(vocab_size) each). Checks the frame checksum, the
// length and that ids are below vocab_size; 65 names file, frame and offset. Each thread uses its own ShardCursor.
typedef struct ShardCursor ShardCursor;
ShardCursor *shard_cursor_open(void);
void shard_cursor_close(ShardCursor *cursor); // accepts NULL
int shard_decode(const ShardFile *shard, ShardCursor *cursor, uint64_t index, void *ids);

// Parses block B. The caller has checked its magic and size. For readers that do not use the seek table.
int shard_read_header(Shard *member, Bytes block, uint64_t offset);

// Appends the LEB128 lengths of a member's document index to `lengths`; 65 when it is damaged.
int shard_lengths(const ShardFile *shard, const Shard *member, Buffer *lengths);

// Decodes each frame, rebuilds and compares index and seek table, compares both hashes: detects every flipped bit and
// every truncation. With `quick` it checks the tables and the hash of the stored bytes without decoding.
int shard_verify(const ShardFile *shard, ShardCursor *cursor, bool quick);

// The parameters that all shards of a run share.
typedef struct {
    uint64_t frame_tokens;
    uint32_t vocab_size, eot_id;
    uint8_t vocab_fp[32], params_fp[32];
    unsigned level; // of compression: 1 to SHARD_LEVEL_MAX; 0: SHARD_LEVEL
} ShardParams;

// Adds the parameters of zstd at a level: "pairs,4,13,13,17,1".
void shard_level_print(Buffer *text, unsigned level);

// The compressor of one thread. shard_encode replaces `frame` with the zstd frame of ids, after decoding it again and
// comparing; 65 when an id is not below vocab_size.
typedef struct ShardEncoder ShardEncoder;
ShardEncoder *shard_encoder_open(void);
void shard_encoder_close(ShardEncoder *encoder); // accepts NULL
int shard_encode(ShardEncoder *encoder, const ShardParams *params, const void *ids, size_t count, Buffer *frame);
int shard_fail_zstd(size_t result); // fail() with an error of libzstd: 82 without memory, else 70

// A shard being written. The document index is computed from the end-of-text ids.
typedef struct {
    NewFile file;
    int pipe; // output descriptor, or -1 when writing to `file`
    ShardParams params;
    uint64_t offset, tokens, documents, source_bytes, frame_count, document_tokens;
    bool continues_before;
    Buffer lengths, table;
    Sha256 content;
    XXH3_state_t *stored;
    uint8_t content_hash[32], stored_hash[16]; // set by shard_writer_finish
} ShardWriter;

// continues: the first document started in the previous shard. A NULL path writes to descriptor `pipe`.
int shard_writer_open(ShardWriter *writer, const char *path, int pipe, const ShardParams *params, bool continues);
// The frame comes from shard_encode or from another shard. source_bytes: size of the documents that end in it.
int shard_writer_append(ShardWriter *writer, const void *ids, size_t count, Bytes frame, uint64_t source_bytes);
int shard_writer_finish(ShardWriter *writer);   // writes D, E, F and commits the file
void shard_writer_abandon(ShardWriter *writer); // removes the temporary file; accepts a zeroed or finished writer

// Parts of the seek table [F] and of the document index [D], for the writer and for `verify`.
void shard_table_add(Buffer *table, uint64_t bytes, uint64_t raw_bytes, uint32_t checksum);
void shard_table_finish(Buffer *table); // adds header and footer to the entries
// Appends the lengths of the documents that end in ids. *carry is the length so far of the document that has not ended.
// Returns the number of documents that ended. Ids have `bytes` each.
uint64_t shard_index_add(Buffer *lengths, const void *ids, unsigned bytes, size_t count, uint32_t eot_id,
                         uint64_t *carry);
void shard_index_finish(Buffer *lengths, uint64_t carry);
