// Opens the shards of a split. Only their tables are read; frames are decoded later (frame_cache.h).
#include "loader/server/shard_stream.h"
#include "common/err.h"
#include "common/file/mapguard.h"
#include "common/search.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

void shard_stream_open(ShardStream *stream, unsigned split, uint64_t capacity) {
    *stream = (ShardStream){.split = split, .capacity = capacity};
    stream->shards = allocate_zeroed(capacity + 1, sizeof *stream->shards);
    stream->first_token = allocate_zeroed(capacity + 1, sizeof *stream->first_token);
    stream->first_frame = allocate_zeroed(capacity + 1, sizeof *stream->first_frame);
    stream->failure_logged_ns = allocate_zeroed(capacity + 1, sizeof *stream->failure_logged_ns);
}

// Names the first difference between a shard and its line in the manifest; NULL when they agree.
static const char *manifest_difference(const ShardFile *shard, const DatasetShard *name, const Dataset *dataset) {
    if (shard->tokens != name->tokens) return "number of tokens";
    if (shard->vocab_size != dataset->vocab_size || memcmp(shard->vocab_fp, dataset->vocab_fp, 32)) return "vocabulary";
    return memcmp(shard->content_hash, name->content_hash, 32) ? "content hash" : NULL;
}

typedef struct {
    ShardFile *shard;
    const char *path;
} Opening;

static int open_shard(void *self) {
    const Opening *opening = self;
    return shard_file_open(opening->shard, opening->path);
}

// Adds the limit to the error: each shard needs one mapping.
static int fail_mapping(const ShardStream *stream) {
    unsigned long long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (file && fscanf(file, "%llu", &limit) != 1) limit = 0;
    if (file) fclose(file);
    return fail_in("%llu of %llu shards are mapped (vm.max_map_count is %llu; raise it, or `ulimit -v`, or make larger "
                   "shards with millrace merge)",
                   (unsigned long long)stream->count, (unsigned long long)stream->capacity, limit);
}

static int add_shard(ShardStream *stream, const Dataset *dataset, const DatasetShard *name) {
    ShardFile *shard = &stream->shards[stream->count];
    if (mapguard_run(open_shard, &(Opening){shard, name->path}, name->path) < 0) {
        shard_file_close(shard);
        return err_code() == EX_MEMORY ? fail_mapping(stream) : -1;
    }
    const char *difference = manifest_difference(shard, name, dataset);
    if (difference) {
        shard_file_close(shard);
        return fail(EX_DATA, "'%s' is not the shard that the manifest lists: its %s differs", name->path, difference);
    }
    // Around each page that was read, the kernel has mapped 15 more: 120 KiB of each shard would count as resident.
    madvise((void *)shard->map.data, shard->map.size, MADV_DONTNEED);
    stream->first_token[stream->count] = stream->tokens;
    stream->first_frame[stream->count] = stream->frames;
    stream->tokens += shard->tokens;
    stream->frames += shard->frame_count;
    stream->count++;
    return 0;
}

int shard_stream_add(ShardStream *stream, const Dataset *dataset) {
    for (uint64_t i = 0; i < dataset->shard_count[stream->split]; i++)
        if (add_shard(stream, dataset, &dataset->shards[stream->split][i]) < 0) return -1;
    return 0;
}

void shard_stream_ready(ShardStream *stream) {
    stream->cached = allocate_zeroed(stream->frames + 1, sizeof *stream->cached);
}

static bool same_shard(const ShardFile *a, const ShardFile *b) {
    if (a->tokens != b->tokens || a->frame_count != b->frame_count || memcmp(a->content_hash, b->content_hash, 32))
        return false;
    for (uint64_t i = 0; i < a->frame_count; i++)
        if (a->frames[i].tokens != b->frames[i].tokens) return false;
    return true;
}

void shard_stream_match(ShardStream *stream, const ShardStream *other) {
    stream->matches = allocate_zeroed(stream->count + 1, sizeof *stream->matches);
    uint64_t next = 0; // most often, the shards are in the same order
    for (uint64_t i = 0; i < stream->count; i++) {
        uint64_t tries = 0;
        while (tries < other->count && !same_shard(&stream->shards[i], &other->shards[(next + tries) % other->count]))
            tries++;
        bool found = tries < other->count;
        stream->matches[i] = found ? (next + tries) % other->count : SHARD_NO_MATCH;
        if (found) next = stream->matches[i] + 1;
    }
}

void shard_stream_close(ShardStream *stream) {
    for (uint64_t i = 0; i < stream->count; i++) shard_file_close(&stream->shards[i]);
    free(stream->shards);
    free(stream->first_token);
    free(stream->first_frame);
    free(stream->failure_logged_ns);
    free(stream->cached);
    free(stream->matches);
    *stream = (ShardStream){0};
}

uint64_t shard_stream_frame_of(const ShardStream *stream, uint64_t token) {
    assert(token < stream->tokens);
    uint64_t shard = floor_index(stream->first_token, sizeof *stream->first_token, stream->count, token);
    return stream->first_frame[shard] + shard_frame_at(&stream->shards[shard], token - stream->first_token[shard]);
}

FramePlace shard_stream_place(const ShardStream *stream, uint64_t frame) {
    uint64_t shard = floor_index(stream->first_frame, sizeof *stream->first_frame, stream->count, frame);
    const ShardFile *file = &stream->shards[shard];
    assert(frame < stream->frames);
    uint64_t index = frame - stream->first_frame[shard];
    const ShardFrame *found = &file->frames[index];
    return (FramePlace){file, shard, index, stream->first_token[shard] + found->first, found->tokens};
}
