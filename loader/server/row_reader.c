// Reads rows from compressed shards. A window holds the extents of one shuffle group, decoded frame by frame into one
// mapping, from which rows are copied.
#include "loader/server/row_reader.h"
#include "common/cgroup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mapguard.h"
#include "common/search.h"
#include "loader/protocol/sampling.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    WINDOWS = 16, // of 18 MiB each: the current and the next group of each stream (split, seed, T) that is requested
    KEPT_BYTES = 64 << 20, // a larger mapping, of a whole split, is emptied before another group uses it
};

typedef struct {
    uint64_t origin;             // the first token of its first frame
    uint16_t *ids;               // ids[0] is token `origin`
    uint64_t frame, frame_count; // frames [frame, frame + frame_count) of the split
    uint64_t first;              // the index in `decoded` of its first frame
} Extent;

typedef struct {
    SampleOrder order;
    ShuffleGroup group;
    uint64_t used; // the reader's `uses` at the last use; 0 = empty
    Extent extent[SAMPLE_ORDER_GROUP_CHUNKS];
    uint64_t missing, frame_count; // frames not yet decoded; all frames
    uint64_t next;                 // every frame before this one is decoded
    uint8_t *decoded;              // one byte per frame, behind the ids in the same mapping
    void *map;
    size_t map_bytes;
} Window;

typedef struct {
    ShardFile *shards;
    uint64_t *first_frame; // of each shard within the split
    const DatasetShard *names;
    uint64_t count, frame_tokens; // number of shards; tokens of the longest frame
} SplitStream;

struct RowReader {
    SplitStream splits[SPLIT_COUNT];
    ShardCursor *cursor;
    Window windows[WINDOWS];
    Window *current;
    uint64_t uses, frames;
    uint64_t whole_split_bytes; // limit on the decoded frames of all windows that hold a whole split
};

// What differs between a shard and its line in the manifest; NULL when nothing does.
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

// Each shard takes one mapping.
static int fail_mapping(uint64_t mapped, uint64_t count) {
    unsigned long long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (file && fscanf(file, "%llu", &limit) != 1) limit = 0;
    if (file) fclose(file);
    return fail_in("%llu of %llu shards are mapped (vm.max_map_count is %llu; raise it, or `ulimit -v`, or make larger "
                   "shards with shardtool merge)",
                   (unsigned long long)mapped, (unsigned long long)count, limit);
}

static int stream_open(SplitStream *stream, const Dataset *dataset, unsigned split) {
    uint64_t count = dataset->shard_count[split], frames = 0;
    stream->names = dataset->shards[split];
    stream->shards = calloc(count + 1, sizeof *stream->shards);
    stream->first_frame = calloc(count + 1, sizeof *stream->first_frame);
    if (!stream->shards || !stream->first_frame) die(EX_MEMORY, "no memory for %llu shards", (unsigned long long)count);
    for (; stream->count < count; stream->count++) {
        ShardFile *shard = &stream->shards[stream->count];
        const DatasetShard *name = &stream->names[stream->count];
        if (mapguard_run(open_shard, &(Opening){shard, name->path}, name->path) < 0) {
            shard_file_close(shard);
            return err_code() == EX_MEMORY ? fail_mapping(stream->count, count) : -1;
        }
        const char *difference = manifest_difference(shard, name, dataset);
        if (difference) {
            shard_file_close(shard);
            return fail(EX_DATA, "'%s' is not the shard that the manifest lists: its %s differs", name->path,
                        difference);
        }
        for (uint64_t i = 0; i < shard->frame_count; i++)
            if (shard->frames[i].tokens > stream->frame_tokens) stream->frame_tokens = shard->frames[i].tokens;
        stream->first_frame[stream->count] = frames;
        frames += shard->frame_count;
    }
    stream->first_frame[count] = frames;
    return 0;
}

// Memory of this machine, or of this process's control group where that is less.
static uint64_t memory_bytes(void) {
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = cgroup_limits().memory_bytes;
    return limit && limit < bytes ? limit : bytes;
}

RowReader *row_reader_open(const Dataset *dataset) {
    RowReader *reader = calloc(1, sizeof *reader);
    if (!reader) die(EX_MEMORY, "no memory");
    reader->cursor = shard_cursor_open();
    reader->whole_split_bytes = memory_bytes() / 4;
    for (unsigned split = 0; split < SPLIT_COUNT; split++)
        if (stream_open(&reader->splits[split], dataset, split) < 0) {
            row_reader_close(reader);
            return NULL;
        }
    return reader;
}

void row_reader_close(RowReader *reader) {
    if (!reader) return;
    for (unsigned split = 0; split < SPLIT_COUNT; split++) {
        SplitStream *stream = &reader->splits[split];
        for (uint64_t i = 0; i < stream->count; i++) shard_file_close(&stream->shards[i]);
        free(stream->shards);
        free(stream->first_frame);
    }
    for (int i = 0; i < WINDOWS; i++)
        if (reader->windows[i].map) munmap(reader->windows[i].map, reader->windows[i].map_bytes);
    shard_cursor_close(reader->cursor);
    free(reader);
}

static uint64_t shard_of_token(const SplitStream *stream, uint64_t token) {
    return floor_index(&stream->names->first, sizeof *stream->names, stream->count, token);
}

static uint64_t shard_of_frame(const SplitStream *stream, uint64_t frame) {
    return floor_index(stream->first_frame, sizeof *stream->first_frame, stream->count, frame);
}

static uint64_t frame_of_token(const SplitStream *stream, uint64_t token) {
    uint64_t shard = shard_of_token(stream, token);
    return stream->first_frame[shard] + shard_frame_at(&stream->shards[shard], token - stream->names[shard].first);
}

static const ShardFrame *frame_at(const SplitStream *stream, uint64_t frame, uint64_t *shard, uint64_t *first_token) {
    *shard = shard_of_frame(stream, frame);
    const ShardFrame *found = &stream->shards[*shard].frames[frame - stream->first_frame[*shard]];
    *first_token = stream->names[*shard].first + found->first;
    return found;
}

static bool same_groups(const SampleOrder *a, const SampleOrder *b) {
    return a->mode == b->mode && a->split == b->split && a->sequence_tokens == b->sequence_tokens &&
           (a->seed == b->seed || !a->seeded_groups);
}

static bool window_holds(const Window *window, const SampleOrder *order, uint64_t sample) {
    return window->used && same_groups(&window->order, order) && sample >= window->group.first_sample &&
           sample - window->group.first_sample < window->group.samples;
}

// Maps memory for the frames of a window, unless its mapping is large enough. Untouched pages take no memory.
static void window_reserve(Window *window, size_t ids, size_t frames) {
    size_t bytes = ids * sizeof(uint16_t) + frames;
    if (bytes > window->map_bytes) {
        if (window->map) munmap(window->map, window->map_bytes);
        window->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (window->map == MAP_FAILED)
            die(EX_MEMORY, "no memory for a window of %zu bytes: %s", bytes, strerror(errno));
        window->map_bytes = bytes;
    }
    if (window->map_bytes > KEPT_BYTES) madvise(window->map, window->map_bytes, MADV_DONTNEED);
    window->decoded = (uint8_t *)window->map + ids * sizeof(uint16_t);
    memset(window->decoded, 0, frames);
}

static void window_set(RowReader *reader, Window *window, const SampleOrder *order, uint64_t sample) {
    const SplitStream *stream = &reader->splits[order->split];
    window->order = *order;
    sample_order_group(order, sample, &window->group);
    const ShuffleGroup *group = &window->group;
    size_t ids = 0;
    uint64_t frames = 0;
    for (unsigned i = 0; i < group->extent_count; i++) {
        Extent *extent = &window->extent[i];
        uint64_t shard, last_token, last = frame_of_token(stream, group->extent[i] + group->extent_tokens - 1);
        extent->frame = frame_of_token(stream, group->extent[i]);
        extent->frame_count = last - extent->frame + 1;
        extent->first = frames;
        frames += extent->frame_count;
        frame_at(stream, extent->frame, &shard, &extent->origin);
        uint32_t last_tokens = frame_at(stream, last, &shard, &last_token)->tokens;
        ids += last_token + last_tokens - extent->origin;
    }
    window_reserve(window, ids, frames);
    uint16_t *at = window->map;
    for (unsigned i = 0; i < group->extent_count; i++) {
        Extent *extent = &window->extent[i];
        uint64_t shard, last_token;
        extent->ids = at;
        uint32_t tokens = frame_at(stream, extent->frame + extent->frame_count - 1, &shard, &last_token)->tokens;
        at += last_token + tokens - extent->origin;
    }
    window->missing = window->frame_count = frames;
    window->next = 0;
}

static Window *window_get(RowReader *reader, const SampleOrder *order, uint64_t sample) {
    Window *oldest = &reader->windows[0];
    for (int i = 0; i < WINDOWS; i++) {
        Window *window = &reader->windows[i];
        if (window_holds(window, order, sample)) {
            window->used = ++reader->uses;
            return window;
        }
        if (window->used < oldest->used) oldest = window;
    }
    window_set(reader, oldest, order, sample);
    oldest->used = ++reader->uses;
    return oldest;
}

typedef struct {
    const ShardFile *file;
    ShardCursor *cursor;
    uint64_t index;
    uint16_t *ids;
} FrameDecoding;

static int decode_guarded(void *self) {
    const FrameDecoding *decoding = self;
    return shard_decode(decoding->file, decoding->cursor, decoding->index, decoding->ids);
}

// Logs the error with its path, which the trainer must not see, and replaces it by one without.
static int decoding_failed(RowReader *reader, const char *split, uint64_t shard, uint64_t index) {
    bool readable = err_code() != EX_IO;
    log_warn("%s", err_text());
    err_clear();
    if (!readable) { // the decoder was interrupted
        shard_cursor_close(reader->cursor);
        reader->cursor = shard_cursor_open();
    }
    return fail(readable ? EX_DATA : EX_IO, "%s shard %llu, frame %llu %s", split, (unsigned long long)shard,
                (unsigned long long)index,
                readable ? "is damaged: `shardtool verify` the dataset" : "cannot be read: see the loader's log");
}

// Decodes frame `number` of the extent into the window.
static int frame_decode(RowReader *reader, Window *window, const Extent *extent, uint64_t number,
                        uint32_t *shard_number) {
    const SplitStream *stream = &reader->splits[window->order.split];
    uint64_t shard, first, index;
    if (window->decoded[extent->first + number]) return 0;
    frame_at(stream, extent->frame + number, &shard, &first);
    index = extent->frame + number - stream->first_frame[shard];
    const ShardFile *file = &stream->shards[shard];
    FrameDecoding decoding = {file, reader->cursor, index, extent->ids + (first - extent->origin)};
    if (mapguard_run(decode_guarded, &decoding, file->path) < 0) {
        *shard_number = (uint32_t)shard;
        return decoding_failed(reader, split_names[window->order.split], shard, index);
    }
    window->decoded[extent->first + number] = 1;
    window->missing--;
    reader->frames++;
    return 0;
}

// Decodes the frames of the sample that begins at `token`.
static int window_decode(RowReader *reader, Window *window, const Extent *extent, uint64_t token, uint32_t *shard) {
    const SplitStream *stream = &reader->splits[window->order.split];
    uint64_t number = frame_of_token(stream, token) - extent->frame;
    uint64_t last = frame_of_token(stream, token + window->order.sequence_tokens) - extent->frame;
    for (; number <= last; number++)
        if (frame_decode(reader, window, extent, number, shard) < 0) return -1;
    return 0;
}

// A group that is the whole split: it has no next group, and may exceed memory.
static bool is_whole_split(const Window *window) { return window->group.samples == UINT64_MAX; }

// Drops all decoded frames of a window of a whole split when they reach the memory limit.
static void limit_whole_split(RowReader *reader, Window *window) {
    size_t held = (window->frame_count - window->missing) * reader->splits[window->order.split].frame_tokens * 2;
    unsigned sharers = 0; // of the memory: each block size and split has a window of its own
    for (int i = 0; i < WINDOWS; i++) sharers += reader->windows[i].used && is_whole_split(&reader->windows[i]);
    if (!is_whole_split(window) || held < reader->whole_split_bytes / (sharers ? sharers : 1)) return;
    madvise(window->map, window->map_bytes, MADV_DONTNEED); // also zeroes `decoded`
    window->missing = window->frame_count;
}

int row_reader_read(RowReader *reader, const WireGet *get, uint16_t *ids, uint32_t *rows, uint64_t *epoch,
                    uint32_t *shard) {
    SampleOrder order;
    const SplitStream *stream = &reader->splits[get->split];
    const DatasetShard *last = stream->count ? &stream->names[stream->count - 1] : NULL;
    uint64_t tokens = last ? last->first + last->tokens : 0;
    if (sample_order_init(&order, get->mode, get->split, get->seed, tokens, get->sequence_tokens) < 0) return -1;
    uint64_t left = sample_order_left(&order, get->first_sample);
    *rows = left < get->rows ? (uint32_t)left : get->rows, *epoch = 0;
    if (!*rows) return 0;
    Window *window = window_get(reader, &order, get->first_sample);
    *epoch = window->group.epoch;
    size_t row_ids = get->sequence_tokens + 1ull;
    for (uint64_t row = 0; row < *rows; row++, ids += row_ids) {
        uint64_t sample = get->first_sample + row;
        if (!window_holds(window, &order, sample)) window = window_get(reader, &order, sample);
        unsigned number;
        uint64_t token = sample_order_token(&order, &window->group, sample, &number);
        const Extent *extent = &window->extent[number];
        if (window->missing) {
            limit_whole_split(reader, window);
            if (window_decode(reader, window, extent, token, shard) < 0) return -1;
        }
        memcpy(ids, extent->ids + (token - extent->origin), row_ids * sizeof *ids);
    }
    reader->current = window;
    return 0;
}

// Decodes the next frame of the window; false when all are decoded.
static bool window_prefetch(RowReader *reader, Window *window) {
    uint32_t shard;
    while (window->next < window->frame_count && window->decoded[window->next]) window->next++;
    for (unsigned i = 0; i < window->group.extent_count; i++) {
        const Extent *extent = &window->extent[i];
        uint64_t number = window->next - extent->first;
        if (number >= extent->frame_count) continue;
        if (frame_decode(reader, window, extent, number, &shard) == 0) return true;
        err_clear(); // the request that needs this frame will report the error
        window->next++;
        return true;
    }
    return false;
}

bool row_reader_prefetch(RowReader *reader) {
    Window *window = reader->current;
    if (!window || is_whole_split(window)) return false;
    if (window_prefetch(reader, window)) return true;
    uint64_t next = window->group.first_sample + window->group.samples;
    if (!sample_order_left(&window->order, next)) return false;
    SampleOrder order = window->order;
    return window_prefetch(reader, window_get(reader, &order, next));
}

uint64_t row_reader_frames(const RowReader *reader) { return reader->frames; }
