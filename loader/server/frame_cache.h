// A cache of decoded frames with a limit on its memory, shared by all datasets and clients, and the threads that
// decode.
//
// One thread, the owner, calls these functions. It never touches a mapped file, so that a disk that does not answer
// stops only decoders: after a second, the other frames of that file wait in the queue, and further decoders are
// started for the rest. The ids of a frame belong to a decoder until frame_cache_collect receives the frame.
#pragma once

#include "common/err.h"
#include "loader/server/shard_stream.h"
#include "loader/server/slab.h"

typedef enum { FRAME_QUEUED, FRAME_READY, FRAME_FAILED } FrameState;

typedef struct CachedFrame {
    ShardStream *stream;
    uint64_t number;
    FramePlace place;
    FrameState state;
    const void *ids; // with FRAME_READY: place.tokens of them, in the width of the file (common/id_array.h)

    // The rest belongs to the cache.
    unsigned pins;
    void *buffer;                      // of `bytes` bytes; NULL with FRAME_FAILED
    Slab *slab;                        // of the buffer
    size_t bytes;                      // whole pages
    struct CachedFrame *newer, *older; // in the order of use, with FRAME_READY
    struct CachedFrame *next, *before; // in a queue
    bool prefetched, decoding;         // in the queue for prefetching; removed from its queue by a decoder
    Error *error;                      // of a decoding that failed
    uint64_t failed_ns;
} CachedFrame;

typedef struct FrameCache FrameCache;

// Decodes the frame at `place`; -1 after fail(). A test passes a function of its own.
typedef int FrameDecode(const FramePlace *place, ShardCursor *cursor, void *ids);
int frame_decode(const FramePlace *place, ShardCursor *cursor, void *ids);

enum { FRAME_CACHE_LEAST = 16 << 20 }; // bytes that it may have however little memory is free

FrameCache *frame_cache_open(uint64_t limit, unsigned threads, FrameDecode *decode);
// Call frame_cache_forget for every stream first. False when a decoder waits for its disk: then its thread, the cache
// and the streams stay until the process ends. Accepts NULL.
bool frame_cache_close(FrameCache *cache);

// The frame, which is queued for decoding unless it is ready. A frame whose decoding failed is tried again after a
// second. frame_cache_prefetch queues it after all that frame_cache_get has queued, and only while the limit permits;
// false when it does not.
CachedFrame *frame_cache_get(FrameCache *cache, ShardStream *stream, uint64_t number);
bool frame_cache_prefetch(FrameCache *cache, ShardStream *stream, uint64_t number);
void frame_pin(CachedFrame *frame); // a pinned frame stays in memory
void frame_unpin(CachedFrame *frame);
int frame_fail(const CachedFrame *frame); // makes the error of a failed frame the pending one, without a path; -1

int frame_cache_event(const FrameCache *cache);       // readable when frame_cache_collect has something to do
void frame_cache_collect(FrameCache *cache);          // receives the frames that have been decoded or have failed
bool frame_cache_idle(const FrameCache *cache);       // nothing is queued or being decoded
unsigned frame_cache_queued(const FrameCache *cache); // without the frames of files that do not answer

// To be called every second while frames are queued: replaces the decoders that have waited for a file for a second,
// and logs the name of each file that has not been readable for 10 s, every 10 s. now_ns: clock_ns().
void frame_cache_watch(FrameCache *cache, uint64_t now_ns);

// Adapts the size to the free memory of this machine (0: not known); called every second. The cache may take an eighth
// a second of the memory that is free beyond 64 MiB. If less than 64 MiB are free, it gives back the difference, down
// to 16 MiB. So a program that plans with the free memory, as the trainer does, gets that memory.
void frame_cache_adapt(FrameCache *cache, uint64_t memory_free);

// Gives the decoded frames of shards that are the same in both (shard_stream_match) to `stream`.
void frame_cache_take_over(ShardStream *stream, ShardStream *from);

// Drops the frames of a stream. False when a decoder still works on one: call it again later.
bool frame_cache_forget(FrameCache *cache, ShardStream *stream);

typedef struct {
    uint64_t decoded, hits, misses, bytes, limit;
    uint64_t room; // for frames at present, at most the limit
} FrameCacheStats;
FrameCacheStats frame_cache_stats(const FrameCache *cache);
