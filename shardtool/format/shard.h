// The shard format "SHRD1": a plain .zst file that `zstd -dc` turns into raw little-endian u16 ids, and that is mapped,
// seekable and checked besides. This comment is its specification. All integers little-endian.
//
//   [A] empty zstd frame      28 B5 2F FD 20 00 01 00 00, so that `file`, lz4 and libarchive see zstd
//   [B] skippable 0x184D2A50  "SHRDHDR1", u16 header_len (98, all of it), u16 version (1), u8 dtype (1 u16, 2 u32),
//                             u8 eot_policy (0 none, 1 after, 2 before), u32 eot_id, u32 vocab_size, u64 frame_tokens,
//                             u8 vocab_fp[32], u8 params_fp[32], u32 crc
//   [C] data frames           frame_tokens ids each (the last may be shorter), single segment, content size and XXH64
//                             on, no dictionary; frames merged without recompression may be shorter anywhere
//   [D] skippable 0x184D2A51  document index: u8 flags (bit 0 continues from the previous shard, bit 1 continues into
//                             the next), then zstd(LEB128 token lengths, end-of-text included, a cut document counts
//                             the part that is here), u32 crc
//   [E] skippable 0x184D2A52  u64 tokens, u64 documents that begin here, u64 source bytes of the documents that end
//                             here, u8 content_hash[32] = SHA-256 of the raw ids, u64 offset of D from the member's
//                             start (0 = no D), u8 stored_hash[16] = XXH3-128 canonical of [member start, E), u32 crc
//   [F] skippable 0x184D2A5E  the standard seek table, checksum flag on; A, B, D, E listed with decompressed size 0
//                             and the checksum of nothing, 0x51D8E999
//
// Every crc is CRC32C of the payload before it. Other skippable frames between B and E are ignored. `cat a.zst b.zst`
// stays readable and seekable: a member's start is EOF - table - sum(sizes), found backwards.
#pragma once

#include "common/bytes.h"
#include "common/file.h"
#include "common/hash.h"
#include <xxhash.h>

enum {
    SHARD_FRAME_TOKENS = 32768,
    SHARD_FRAME_TOKENS_MAX = 1 << 26, // 128 MiB of ids
    SHARD_VERSION = 1,
    SHARD_HEADER_BYTES = 98,
    SHARD_TRAILER_BYTES = 84,
    SHARD_ENTRY_BYTES = 12, // of the seek table
    SHARD_FOOTER_BYTES = 9,
    SKIPPABLE_BYTES = 8 // magic and length before a payload
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
typedef enum { EOT_NONE, EOT_AFTER, EOT_BEFORE } EotPolicy;

typedef struct {
    uint64_t offset;   // of the zstd frame in the file
    uint64_t first;    // token of the shard at which it begins
    uint32_t bytes;    // compressed
    uint32_t tokens;   // ids in it
    uint32_t checksum; // low 32 bits of XXH64 of the ids, from the seek table
} ShardFrame;

// One shard of the file, which holds several after a `cat`.
typedef struct {
    uint64_t offset, trailer, table, end; // in the file: of A, E and F, and after F
    uint64_t first_frame, frame_count;
    uint64_t tokens, documents, source_bytes, frame_tokens;
    Bytes index; // the payload of D without its crc; empty when there is none
    EotPolicy eot_policy;
    uint32_t vocab_size, eot_id;
    uint8_t vocab_fp[32], params_fp[32], content_hash[32], stored_hash[16];
} Shard;

// An open shard: mapped, its tables checked, its frames not yet decoded. Safe to read from several threads.
typedef struct {
    char *path;
    Bytes map;
    bool borrowed; // the map is the caller's
    ShardFrame *frames;
    Shard *members;
    uint64_t frame_count, member_count, tokens, documents, source_bytes;
    uint64_t frame_tokens; // of every frame but the last of each member; merged shards have shorter ones
    uint32_t vocab_size, eot_id;
    uint8_t vocab_fp[32], params_fp[32], content_hash[32]; // of the last member
} ShardFile;

// Fails with 65 and the path, the block and the offset when the file is no shard, damaged or cut.
int shard_file_open(ShardFile *shard, const char *path);
int shard_file_open_bytes(ShardFile *shard, const char *name, Bytes bytes); // bytes are borrowed until shard_file_close
void shard_file_close(ShardFile *shard);                                    // accepts a zeroed struct

uint64_t shard_frame_at(const ShardFile *shard, uint64_t token); // the frame that holds token `token` < shard->tokens

// Decodes frame `index` into ids (frames[index].tokens of them): frame checksum, length and id < vocab_size are
// checked; 65 names file, frame and offset. One ShardCursor per thread.
typedef struct ShardCursor ShardCursor;
ShardCursor *shard_cursor_open(void);
void shard_cursor_close(ShardCursor *cursor); // accepts NULL
int shard_decode(const ShardFile *shard, ShardCursor *cursor, uint64_t index, uint16_t *ids);

// Reads block B, of which the magic and the size were looked at, for those who find their way without a seek table.
int shard_read_header(Shard *member, Bytes block, uint64_t offset);

// Appends the LEB128 lengths of a member's document index to `lengths`; 65 when damaged or absent.
int shard_lengths(const ShardFile *shard, const Shard *member, Buffer *lengths);

// Every check there is: each frame decoded, index and seek table rebuilt and compared, both hashes. Any flipped bit
// and any cut is found. `quick` decodes nothing: tables and the hash of the stored bytes.
int shard_verify(const ShardFile *shard, ShardCursor *cursor, bool quick);

// What is the same for all shards of a run.
typedef struct {
    uint64_t frame_tokens;
    uint32_t vocab_size, eot_id;
    uint8_t vocab_fp[32], params_fp[32];
} ShardParams;

// One thread's compressor. Replaces `frame` with the zstd frame of ids, which was decoded again and compared; an id
// that is not below vocab_size is a 65.
typedef struct ShardEncoder ShardEncoder;
ShardEncoder *shard_encoder_open(void);
void shard_encoder_close(ShardEncoder *encoder); // accepts NULL
int shard_encode(ShardEncoder *encoder, const ShardParams *params, const uint16_t *ids, size_t count, Buffer *frame);

// A shard being written, with one end-of-text id after each document: from there the document index follows.
typedef struct {
    NewFile file;
    int pipe; // the descriptor, when it is no file that is renamed; else -1
    ShardParams params;
    uint64_t offset, tokens, documents, source_bytes, frame_count, document_tokens;
    bool continues_before;
    Buffer lengths, table;
    Sha256 content;
    XXH3_state_t *stored;
    uint8_t content_hash[32], stored_hash[16]; // once finished
} ShardWriter;

// `continues` says that the first document began in the shard before. A NULL path writes to descriptor `pipe`.
int shard_writer_open(ShardWriter *writer, const char *path, int pipe, const ShardParams *params, bool continues);
// Frames come from shard_encode or from another shard. source_bytes: of the documents whose end-of-text is in it.
int shard_writer_append(ShardWriter *writer, const uint16_t *ids, size_t count, Bytes frame, uint64_t source_bytes);
int shard_writer_finish(ShardWriter *writer);   // D, E, F; a file then appears under its name, durable
void shard_writer_abandon(ShardWriter *writer); // removes what was written; accepts a zeroed or finished one

// The seek table [F] and its parts, which the writer makes and `verify` makes again.
void shard_table_add(Buffer *table, uint64_t bytes, uint64_t raw_bytes, uint32_t checksum);
void shard_table_finish(Buffer *table); // puts header and footer around the entries
// Appends the lengths of the documents that end in ids; *carry is the length of the one still open.
// Returns how many ended.
uint64_t shard_index_add(Buffer *lengths, const uint16_t *ids, size_t count, uint32_t eot_id, uint64_t *carry);
void shard_index_finish(Buffer *lengths, uint64_t carry);
