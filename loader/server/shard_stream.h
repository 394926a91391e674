// The shards of one split, opened, as one stream of tokens and of frames.
#pragma once

#include "dataset/dataset.h"

struct CachedFrame;

#define SHARD_NO_MATCH UINT64_MAX

typedef struct {
    ShardFile *shards;
    uint64_t *first_token, *first_frame; // of each shard within the split
    uint64_t count, capacity, tokens, frames;
    unsigned split;
    struct CachedFrame **cached; // by frame: its copy in the cache, or NULL; belongs to the cache
    // By shard: when its last line was logged, so that a damaged one logs a line every 10 s.
    uint64_t *failure_logged_ns;
    uint64_t *matches; // by shard, or NULL: see shard_stream_match
} ShardStream;

// Room for `capacity` shards.
void shard_stream_open(ShardStream *stream, unsigned split, uint64_t capacity);
// Opens the shards of the dataset and appends them. Fails with 65 when one does not fit the manifest, 74 when it cannot
// be read, 82 when it cannot be mapped.
int shard_stream_add(ShardStream *stream, const Dataset *dataset);
void shard_stream_ready(ShardStream *stream); // after the last shard_stream_add
// Finds the shards that are also in `other`: the same tokens in the same frames, in any file. matches[i] is the number
// of shard i in `other`, or SHARD_NO_MATCH.
void shard_stream_match(ShardStream *stream, const ShardStream *other);
void shard_stream_close(ShardStream *stream); // accepts a zeroed struct; the cache must have forgotten the stream

uint64_t shard_stream_frame_of(const ShardStream *stream, uint64_t token);

// A frame of the stream: its file and its number there, and the place of its tokens in the stream.
typedef struct {
    const ShardFile *file;
    uint64_t shard, index, first_token;
    uint32_t tokens;
} FramePlace;
FramePlace shard_stream_place(const ShardStream *stream, uint64_t frame);
