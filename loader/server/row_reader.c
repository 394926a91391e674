// Rows out of decoded frames. A track is one stream of requests (source, split, mode, seed, T): it keeps the shuffle
// group that the stream reads, and how far the frames of this group and of the next have been prefetched.
#include "loader/server/row_reader.h"
#include "common/err.h"
#include "common/log.h"
#include <stdlib.h>

enum {
    TRACKS = 128,         // streams of requests at a time; an older one loses only its place in the prefetch
    STEP_BYTES = 1 << 20, // copied for one request before the next one gets its turn
    ROWS_AHEAD = 32,      // rows of a request whose frames are decoded at the same time
    QUEUE_MAX = 16,       // frames in the queue above which nothing is prefetched
    GROUP_IDS = 32 << 20, // more than the frames of a shuffle group, 20 Mi, and leftovers of others
    TRACK_ACTIVE_S = 10   // only tracks that were used more recently are prefetched
};

typedef struct {
    Served *served; // NULL: unused
    unsigned source;
    SampleOrder order;
    ShuffleGroup group;
    uint64_t used_ns;
    // The next frame to prefetch is `frame` of `extent` of group `prefetched`.
    ShuffleGroup prefetched;
    unsigned extent;
    uint64_t frame;
    bool is_next; // `prefetched` is the group after `group`, else `group` itself
} Track;

struct RowReader {
    FrameCache *cache;
    Track tracks[TRACKS];
    unsigned turn; // the track that is prefetched next
};

RowReader *row_reader_open(uint64_t cache_bytes, unsigned threads) {
    RowReader *reader = allocate_zeroed(1, sizeof *reader);
    reader->cache = frame_cache_open(cache_bytes, threads, frame_decode);
    if (reader->cache) return reader;
    free(reader);
    return NULL;
}

bool row_reader_close(RowReader *reader) {
    if (!reader) return true;
    bool closed = frame_cache_close(reader->cache);
    free(reader);
    return closed;
}

FrameCache *row_reader_cache(RowReader *reader) { return reader->cache; }

bool row_reader_forget(RowReader *reader, Served *served) {
    for (Track *track = reader->tracks; track < reader->tracks + TRACKS; track++)
        if (track->served == served) *track = (Track){0};
    bool gone = true;
    for (unsigned split = 0; split < SPLIT_COUNT; split++)
        gone = frame_cache_forget(reader->cache, &served->streams[split]) && gone;
    return gone;
}

// --- tracks

static bool group_has(const ShuffleGroup *group, uint64_t sample) {
    return sample >= group->first_sample && sample - group->first_sample < group->samples;
}

static void track_set_prefetch(Track *track, const ShuffleGroup *group, bool is_next) {
    track->prefetched = *group, track->is_next = is_next;
    track->extent = 0, track->frame = 0;
}

static bool track_matches(const Track *track, const RowCopy *copy, unsigned source) {
    const SampleOrder *order = &copy->order[source];
    return track->served == copy->served && track->source == source && track->order.mode == order->mode &&
           track->order.split == order->split && track->order.seed == order->seed &&
           track->order.sequence_tokens == order->sequence_tokens;
}

// Sets the group of `sample` in the copy, and notes that its stream of requests has come to it. Streams that are equal
// but for their position have tracks of their own.
static void enter_group(RowReader *reader, RowCopy *copy, unsigned source, uint64_t sample) {
    ShuffleGroup *group = &copy->group[source];
    Track *oldest = reader->tracks;
    for (Track *track = reader->tracks; track < reader->tracks + TRACKS; track++) {
        if (track->used_ns < oldest->used_ns) oldest = track;
        if (!track_matches(track, copy, source)) continue;
        bool next = track->is_next && group_has(&track->prefetched, sample);
        if (next) track->group = track->prefetched, track->is_next = false;
        if (!group_has(&track->group, sample)) continue;
        *group = track->group;
        track->used_ns = clock_ns();
        return;
    }
    sample_order_group(&copy->order[source], sample, group);
    *oldest = (Track){.served = copy->served, .source = source, .order = copy->order[source], .group = *group};
    oldest->used_ns = clock_ns();
    track_set_prefetch(oldest, group, false);
}

// --- copying

// Sets the order of a source in the copy. -1 after fail() when the source is too short.
static int enter_source(RowCopy *copy, unsigned source) {
    const WireGet *get = &copy->get;
    copy->known |= 1u << source;
    copy->group[source].samples = 0;
    const uint64_t tokens = copy->served->sources[source].tokens[get->split];
    const bool joined = source == copy->served->source_count;
    if (sample_order_init(&copy->order[source], get->mode, get->split, get->seed, joined ? 0 : source, tokens,
                          get->sequence_tokens) == 0)
        return 0;
    return !joined ? fail_in("'%s'", copy->served->parts[source].name) : -1;
}

// The first token of row `row`; one of `starts` ids from there on begins it (sample_order_starts).
static uint64_t row_token(RowReader *reader, RowCopy *copy, uint32_t row, uint32_t *starts) {
    unsigned split = copy->get.split;
    MixtureSample at = served_sample(copy->served, &copy->get, copy->get.first_sample + row);
    if (!group_has(&copy->group[at.source], at.sample)) enter_group(reader, copy, at.source, at.sample);
    uint64_t token = sample_order_token(&copy->order[at.source], &copy->group[at.source], at.sample);
    *starts = sample_order_starts(&copy->order[at.source], token);
    return copy->served->sources[at.source].first_token[split] + token;
}

int row_copy_begin(RowReader *reader, RowCopy *copy, Served *served, const WireGet *get, void *ids) {
    copy->served = served, copy->get = *get, copy->ids = ids;
    copy->id_bytes = id_bytes(served->dataset.vocab_size);
    copy->done = copy->column = copy->skipped = copy->prefetched = copy->known = 0;
    copy->epoch = 0, copy->awaited = NULL, copy->found = false;
    for (uint32_t row = 0; row < get->rows; row++) {
        const unsigned source = served_sample(served, get, get->first_sample + row).source;
        if (!(copy->known & 1u << source) && enter_source(copy, source) < 0) return -1;
    }
    const MixtureSample first = served_sample(served, get, get->first_sample);
    uint64_t left = sample_order_left(&copy->order[first.source], first.sample);
    copy->rows = left < get->rows ? (uint32_t)left : get->rows;
    if (!copy->rows) return 0;
    uint32_t starts;
    row_token(reader, copy, 0, &starts);
    copy->epoch = copy->group[first.source].epoch;
    return 0;
}

void row_copy_end(RowCopy *copy) {
    if (copy->awaited) frame_unpin(copy->awaited);
    copy->awaited = NULL;
}

// Queues the frames of the following rows, which are decoded at the same time as the awaited frame.
static void prefetch_rows(RowReader *reader, RowCopy *copy) {
    ShardStream *stream = &copy->served->streams[copy->get.split];
    if (copy->prefetched < copy->done + 1) copy->prefetched = copy->done + 1;
    for (; copy->prefetched < copy->rows && copy->prefetched <= copy->done + ROWS_AHEAD; copy->prefetched++) {
        uint32_t starts;
        uint64_t token = row_token(reader, copy, copy->prefetched, &starts);
        uint64_t frame = shard_stream_frame_of(stream, token);
        uint64_t last = shard_stream_frame_of(stream, token + starts - 1 + copy->get.sequence_tokens);
        for (; frame <= last; frame++)
            if (!frame_cache_prefetch(reader->cache, stream, frame)) return;
    }
}

// Looks in the frame of the current position for the document that begins the row.
static void find_start(RowCopy *copy, const CachedFrame *frame, uint64_t token, uint32_t starts) {
    uint64_t at = token - frame->place.first_token, left = frame->place.tokens - at;
    const uint32_t eot = copy->served->dataset.eot_id;
    while (copy->skipped < starts && left && id_at(frame->ids, at, copy->id_bytes) != eot)
        at++, left--, copy->skipped++;
    copy->found = copy->skipped == starts || left;
    if (copy->skipped == starts) copy->skipped = 0; // no document begins here
}

// Copies from the frame of the current position to the end of the frame or of the row.
static void copy_part(RowCopy *copy, const CachedFrame *frame, uint64_t token) {
    uint64_t from = token - frame->place.first_token, left = frame->place.tokens - from;
    uint32_t want = copy->get.sequence_tokens + 1 - copy->column, count = left < want ? (uint32_t)left : want;
    const size_t bytes = (size_t)count * copy->id_bytes;
    memcpy(copy->ids, (const uint8_t *)frame->ids + from * copy->id_bytes, bytes);
    copy->ids += bytes, copy->column += count;
    if (copy->column <= copy->get.sequence_tokens) return;
    copy->column = copy->skipped = 0, copy->found = false, copy->done++;
}

RowResult row_copy_advance(RowReader *reader, RowCopy *copy) {
    ShardStream *stream = &copy->served->streams[copy->get.split];
    if (copy->awaited && copy->awaited->state == FRAME_QUEUED) return ROWS_WAIT;
    row_copy_end(copy);
    uint64_t token = 0;
    uint32_t known = UINT32_MAX, starts = 1; // `token` and `starts` are of row `known`
    for (const uint8_t *began = copy->ids; copy->done < copy->rows;) {
        if (known != copy->done) token = row_token(reader, copy, copy->done, &starts), known = copy->done;
        uint64_t at = token + copy->skipped + copy->column;
        CachedFrame *frame = frame_cache_get(reader->cache, stream, shard_stream_frame_of(stream, at));
        if (frame->state != FRAME_READY) {
            frame_pin(frame);
            copy->awaited = frame;
            if (frame->state == FRAME_FAILED) return frame_fail(frame), ROWS_FAILED;
            prefetch_rows(reader, copy);
            return ROWS_WAIT;
        }
        if (starts > 1 && !copy->found) {
            find_start(copy, frame, at, starts);
            continue;
        }
        copy_part(copy, frame, at);
        if (copy->ids - began >= STEP_BYTES && copy->done < copy->rows) return ROWS_MORE;
    }
    return ROWS_DONE;
}

// --- prefetch

static bool is_whole_split(const ShuffleGroup *group) { return group->samples == UINT64_MAX; }

static bool is_active(const Track *track, uint64_t now) {
    return track->served && !is_whole_split(&track->group) && now - track->used_ns < TRACK_ACTIVE_S * 1000000000ull;
}

// The next frame of the group to prefetch; false when all have been queued.
static bool track_next_frame(Track *track, uint64_t *frame) {
    const ShardStream *stream = &track->served->streams[track->order.split];
    for (; track->extent < track->prefetched.extent_count; track->extent++, track->frame = 0) {
        uint64_t first = track->served->sources[track->source].first_token[track->order.split];
        SampleExtent extent = track->prefetched.extents[track->extent];
        uint64_t begin = first + extent.first_token, end = begin + extent.tokens - 1;
        uint64_t last = shard_stream_frame_of(stream, end);
        if (!track->frame) track->frame = shard_stream_frame_of(stream, begin) + 1; // 0 is "not set"
        for (; track->frame - 1 <= last; track->frame++)
            if (!stream->cached[track->frame - 1]) {
                *frame = track->frame - 1;
                return true;
            }
    }
    return false;
}

// Queues one frame for the track; false when all are queued or the cache has no room.
static bool track_prefetch(RowReader *reader, Track *track) {
    uint64_t frame;
    while (!track_next_frame(track, &frame)) {
        uint64_t next = track->group.first_sample + track->group.samples;
        if (track->is_next || !sample_order_left(&track->order, next)) return false;
        ShuffleGroup group;
        sample_order_group(&track->order, next, &group);
        track_set_prefetch(track, &group, true);
    }
    return frame_cache_prefetch(reader->cache, &track->served->streams[track->order.split], frame);
}

void row_reader_prefetch(RowReader *reader) {
    uint64_t now = clock_ns();
    if (frame_cache_queued(reader->cache) >= QUEUE_MAX) return;
    // Two groups for each track must fit, or the frames of one would drive out the frames of another.
    uint64_t bytes = 0;
    for (const Track *track = reader->tracks; track < reader->tracks + TRACKS; track++)
        if (is_active(track, now)) bytes += 2ull * GROUP_IDS * id_bytes(track->served->dataset.vocab_size);
    if (!bytes || bytes > frame_cache_stats(reader->cache).room) return;
    for (unsigned tries = 0; tries < TRACKS && frame_cache_queued(reader->cache) < QUEUE_MAX;) {
        Track *track = &reader->tracks[reader->turn];
        if (is_active(track, now) && track_prefetch(reader, track)) {
            tries = 0;
        } else {
            tries++;
        }
        reader->turn = (reader->turn + 1) % TRACKS;
    }
}
