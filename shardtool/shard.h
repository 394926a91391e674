// The shard format "SHRD1": a plain .zst file that `zstd -dc` turns into raw little-endian u16 ids, and that is mapped,
// seekable and checked besides. This comment is its specification. All integers little-endian.
//
//   [A] empty zstd frame      28 B5 2F FD 20 00 01 00 00, so that `file`, lz4 and libarchive see zstd
//   [B] skippable 0x184D2A50  "SHRDHDR1", u16 header_len, u16 version, u8 dtype (1 u16, 2 u32), u8 eot_policy (0 none,
//                             1 after, 2 before), u32 eot_id, u32 vocab_size, u64 frame_tokens, u8 vocab_fp[32],
//                             u8 params_fp[32], u32 crc
//   [C] data frames           frame_tokens ids each (the last may be shorter), single segment, content size and XXH64
//                             on, no dictionary
//   [D] skippable 0x184D2A51  document index: u8 flags (bit 0 continues from the previous shard, bit 1 continues into
//                             the next), then zstd(LEB128 token lengths, end-of-text included, a cut document counts
//                             the part that is here), u32 crc
//   [E] skippable 0x184D2A52  u64 tokens, u64 documents that begin here, u64 source bytes, u8 content_hash[32] =
//                             SHA-256 of the raw ids, u64 offset of D from the member's start, u8 stored_hash[16] =
//                             XXH3-128 canonical of [member start, E), u32 crc
//   [F] skippable 0x184D2A5E  the standard seek table, checksum flag on; A, B, D, E listed with decompressed size 0
//
// Every crc is CRC32C of the payload before it. `cat a.zst b.zst` stays readable and seekable: a member's start is
// EOF - table - sum(sizes), found backwards.
#pragma once

#include "common/bytes.h"

enum { SHARD_FRAME_TOKENS = 32768 };

typedef struct {
    uint64_t offset;   // of the zstd frame in the file
    uint64_t first;    // token of the shard at which it begins
    uint32_t bytes;    // compressed
    uint32_t tokens;   // ids in it
    uint32_t checksum; // low 32 bits of XXH64 of the ids, from the seek table
} ShardFrame;

// An open shard: mapped, its tables checked, its frames not yet decoded. Safe to read from several threads.
typedef struct {
    char *path;
    Bytes map;
    ShardFrame *frames;
    uint64_t frame_count, tokens, documents;
    uint64_t frame_tokens; // of every frame but the last of each member
    uint32_t vocab_size, eot_id;
    uint8_t vocab_fp[32], params_fp[32], content_hash[32]; // of the last member
} Shard;

// Fails with 65 and the path, the block and the offset when the file is no shard, damaged or cut.
int shard_open(Shard *shard, const char *path);
void shard_close(Shard *shard); // accepts a zeroed struct

uint64_t shard_frame_at(const Shard *shard, uint64_t token); // the frame that holds token `token` < shard->tokens

// Decodes frame `index` into ids (frames[index].tokens of them): frame checksum, length and id < vocab_size are
// checked; 65 names file, frame and offset. One ShardCursor per thread.
typedef struct ShardCursor ShardCursor;
ShardCursor *shard_cursor_open(void);
void shard_cursor_close(ShardCursor *cursor); // accepts NULL
int shard_decode(const Shard *shard, ShardCursor *cursor, uint64_t index, uint16_t *ids);
