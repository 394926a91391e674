// The cache of decoded frames. The owner keeps the frames in the order of their last use and drops the oldest; the
// decoders share with it two queues and a list of finished frames, under one mutex.
#include "loader/server/frame_cache.h"
#include "common/file/mapguard.h"
#include "common/log.h"
#include "common/sizes.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define MS 1000000ull
enum {
    DECODERS_MAX = 64,
    STALLED_MS = 1000, // longer means a disk that does not answer: a slow processor decodes a frame in 1 ms
    LOG_MS = 10000,
    RETRY_MS = 1000, // a frame that failed is not decoded again sooner
    CLOSE_MS = 100,  // for decoders to finish their frame
    PAGE = 4096,
};

typedef struct {
    CachedFrame *first, *last;
    unsigned count;
} Queue;

typedef struct {
    FrameCache *cache;
    pthread_t thread;
    ShardCursor *cursor;
    CachedFrame *frame; // NULL: idle
    uint64_t began_ns, logged_ns;
    bool stalled;
} DecodeThread;

struct FrameCache {
    FrameDecode *decode;
    uint64_t limit, held; // bytes of all buffers
    uint64_t room;        // the present limit
    Slabs slabs;
    FrameCacheStats stats;
    CachedFrame *newest, *oldest; // ready frames, in the order of use
    unsigned pending;             // frames that are queued, in decoding or finished but not collected
    unsigned stuck;               // of these, when last counted: frames of files that do not answer
    int event;
    unsigned threads; // decoders that are not stalled

    pthread_mutex_t mutex;
    pthread_cond_t work, rest; // signalled when frames are queued; when a decoder becomes idle
    Queue needed, prefetch, done;
    DecodeThread decoders[DECODERS_MAX];
    unsigned decoder_count, stalled;
    bool closing;
};

// --- queues, with the mutex held

static void queue_add(Queue *queue, CachedFrame *frame) {
    frame->next = NULL, frame->before = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = frame;
    queue->last = frame;
    queue->count++;
}

static void queue_remove(Queue *queue, CachedFrame *frame) {
    *(frame->before ? &frame->before->next : &queue->first) = frame->next;
    *(frame->next ? &frame->next->before : &queue->last) = frame->before;
    queue->count--;
}

// --- the threads that decode

static bool file_is_stalled(const FrameCache *cache, const ShardFile *file) {
    for (unsigned i = 0; i < cache->decoder_count; i++) {
        const DecodeThread *decoder = &cache->decoders[i];
        if (decoder->stalled && decoder->frame->place.file == file) return true;
    }
    return false;
}

static CachedFrame *queue_take(FrameCache *cache, Queue *queue) {
    for (CachedFrame *frame = queue->first; frame; frame = frame->next) {
        if (cache->stalled && file_is_stalled(cache, frame->place.file)) continue;
        queue_remove(queue, frame);
        return frame;
    }
    return NULL;
}

typedef struct {
    FrameDecode *decode;
    const CachedFrame *frame;
    ShardCursor *cursor;
} DecodeCall;

static int decode_guarded(void *self) {
    const DecodeCall *decoding = self;
    return decoding->decode(&decoding->frame->place, decoding->cursor, decoding->frame->buffer);
}

int frame_decode(const FramePlace *place, ShardCursor *cursor, void *ids) {
    const ShardFrame *frame = &place->file->frames[place->index];
    uintptr_t begin = (uintptr_t)place->file->map.data + frame->offset, page = begin / PAGE * PAGE;
    // One request to the disk for the whole frame, instead of one for each page that is touched.
    madvise((void *)page, begin + frame->bytes - page, MADV_WILLNEED);
    return shard_decode(place->file, cursor, place->index, ids);
}

// The mutex is not held.
static void decode_frame(DecodeThread *decoder, CachedFrame *frame) {
    DecodeCall decoding = {decoder->cache->decode, frame, decoder->cursor};
    if (mapguard_run(decode_guarded, &decoding, frame->place.file->path) == 0) return;
    if (!frame->error) frame->error = allocate_zeroed(1, sizeof *frame->error);
    err_take(frame->error);
    if (frame->error->code == EX_IO) { // the decompressor was interrupted
        shard_cursor_close(decoder->cursor);
        decoder->cursor = shard_cursor_open();
    }
}

static void *run_decoder(void *self) {
    DecodeThread *decoder = self;
    FrameCache *cache = decoder->cache;
    pthread_mutex_lock(&cache->mutex);
    for (;;) {
        CachedFrame *frame = cache->closing ? NULL : queue_take(cache, &cache->needed);
        if (!frame && !cache->closing) frame = queue_take(cache, &cache->prefetch);
        if (!frame) {
            pthread_cond_signal(&cache->rest);
            if (cache->closing) break;
            pthread_cond_wait(&cache->work, &cache->mutex);
            continue;
        }
        frame->decoding = true;
        decoder->frame = frame, decoder->began_ns = clock_ns();
        pthread_mutex_unlock(&cache->mutex);
        decode_frame(decoder, frame);
        pthread_mutex_lock(&cache->mutex);
        decoder->frame = NULL;
        if (decoder->stalled) { // the frames of this file can be taken again
            decoder->stalled = false, cache->stalled--;
            pthread_cond_broadcast(&cache->work);
        }
        uint64_t one = 1;
        if (!cache->done.first && write(cache->event, &one, sizeof one) < 0)
            die(EX_BUG, "cannot write to an eventfd: %s", strerror(errno));
        queue_add(&cache->done, frame);
    }
    pthread_mutex_unlock(&cache->mutex);
    return NULL;
}

// The mutex is held. False when no further thread can be started.
static bool start_decoder(FrameCache *cache) {
    if (cache->decoder_count == DECODERS_MAX) return false;
    DecodeThread *decoder = &cache->decoders[cache->decoder_count];
    *decoder = (DecodeThread){.cache = cache, .cursor = shard_cursor_open()};
    if (pthread_create(&decoder->thread, NULL, run_decoder, decoder) == 0) {
        cache->decoder_count++;
        return true;
    }
    shard_cursor_close(decoder->cursor);
    return false;
}

// --- open and close

FrameCache *frame_cache_open(uint64_t limit, unsigned threads, FrameDecode *decode) {
    FrameCache *cache = allocate_zeroed(1, sizeof *cache);
    cache->limit = cache->room = limit, cache->decode = decode, cache->threads = threads;
    slabs_init(&cache->slabs, limit);
    cache->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->work, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&cache->rest, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_lock(&cache->mutex);
    while (cache->decoder_count < threads && start_decoder(cache)) {
    }
    unsigned started = cache->decoder_count;
    pthread_mutex_unlock(&cache->mutex);
    if (started == threads && cache->event >= 0) return cache;
    fail(EX_LIMIT, "cannot start a thread that decodes frames: %s", strerror(errno));
    frame_cache_close(cache);
    return NULL;
}

static bool all_idle(const FrameCache *cache) {
    for (unsigned i = 0; i < cache->decoder_count; i++)
        if (cache->decoders[i].frame) return false;
    return true;
}

static void drop_frame(FrameCache *cache, CachedFrame *frame);

static void drop_queue(FrameCache *cache, Queue *queue) {
    for (CachedFrame *frame; (frame = queue->first);) {
        queue_remove(queue, frame);
        cache->pending--;
        drop_frame(cache, frame);
    }
}

bool frame_cache_close(FrameCache *cache) {
    if (!cache) return true;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += CLOSE_MS * (long)MS;
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    pthread_mutex_lock(&cache->mutex);
    cache->closing = true;
    pthread_cond_broadcast(&cache->work);
    int timeout = 0;
    while (!all_idle(cache) && !timeout) timeout = pthread_cond_timedwait(&cache->rest, &cache->mutex, &end);
    bool idle = all_idle(cache);
    pthread_mutex_unlock(&cache->mutex);
    if (!idle) return false;
    for (unsigned i = 0; i < cache->decoder_count; i++) {
        pthread_join(cache->decoders[i].thread, NULL);
        shard_cursor_close(cache->decoders[i].cursor);
    }
    drop_queue(cache, &cache->needed), drop_queue(cache, &cache->prefetch), drop_queue(cache, &cache->done);
    while (cache->oldest) drop_frame(cache, cache->oldest);
    if (cache->event >= 0) close(cache->event);
    pthread_mutex_destroy(&cache->mutex);
    pthread_cond_destroy(&cache->work);
    pthread_cond_destroy(&cache->rest);
    free(cache);
    return true;
}

// --- the frames in the order of use

static void use_add(FrameCache *cache, CachedFrame *frame) {
    frame->newer = NULL, frame->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = frame;
    cache->newest = frame;
}

static void use_remove(FrameCache *cache, CachedFrame *frame) {
    *(frame->newer ? &frame->newer->older : &cache->newest) = frame->older;
    *(frame->older ? &frame->older->newer : &cache->oldest) = frame->newer;
}

void frame_pin(CachedFrame *frame) { frame->pins++; }

void frame_unpin(CachedFrame *frame) { frame->pins--; }

static void buffer_drop(FrameCache *cache, CachedFrame *frame) {
    if (!frame->buffer) return;
    slab_return(&cache->slabs, frame->slab, frame->buffer);
    cache->held -= frame->bytes;
    frame->buffer = NULL;
}

// Forgets a frame that is not in a queue.
static void drop_frame(FrameCache *cache, CachedFrame *frame) {
    if (frame->state == FRAME_READY) use_remove(cache, frame);
    buffer_drop(cache, frame);
    frame->stream->cached[frame->number] = NULL;
    free(frame->error);
    free(frame);
}

// Drops the frames that have not been used for longest.
static void make_room(FrameCache *cache, uint64_t bytes) {
    for (CachedFrame *old = cache->oldest, *newer; cache->held + bytes > cache->room && old; old = newer) {
        newer = old->newer;
        if (!old->pins) drop_frame(cache, old);
    }
}

void frame_cache_adapt(FrameCache *cache, uint64_t memory_free) {
    enum { KEPT = 64 << 20, PARTS = 8 };
    if (!memory_free) return;
    uint64_t room = cache->held;
    if (memory_free > KEPT)
        room += (memory_free - KEPT) / PARTS;
    else
        room -= room < KEPT - memory_free ? room : KEPT - memory_free;
    if (room < FRAME_CACHE_LEAST) room = FRAME_CACHE_LEAST;
    cache->room = room < cache->limit ? room : cache->limit;
    make_room(cache, 0);
}

// Gives the frame memory, if need be the memory of the frames that have not been used for longest. False when `strict`
// and the limit does not permit it.
static bool buffer_get(FrameCache *cache, CachedFrame *frame, bool strict) {
    frame->bytes = round_up(frame->place.file->frame_tokens * id_bytes(frame->place.file->vocab_size), PAGE);
    make_room(cache, frame->bytes);
    if (strict && cache->held + frame->bytes > cache->room) return false;
    frame->buffer = slab_take(&cache->slabs, frame->bytes, &frame->slab);
    cache->held += frame->bytes;
    return true;
}

static CachedFrame *queue_frame(FrameCache *cache, CachedFrame *frame, bool prefetch) {
    frame->state = FRAME_QUEUED, frame->decoding = false, frame->prefetched = prefetch;
    if (frame->error) frame->error->code = 0;
    cache->pending++;
    pthread_mutex_lock(&cache->mutex);
    queue_add(prefetch ? &cache->prefetch : &cache->needed, frame);
    pthread_cond_signal(&cache->work);
    pthread_mutex_unlock(&cache->mutex);
    return frame;
}

static CachedFrame *new_frame(FrameCache *cache, ShardStream *stream, uint64_t number, bool strict) {
    CachedFrame *frame = allocate_zeroed(1, sizeof *frame);
    frame->stream = stream, frame->number = number, frame->place = shard_stream_place(stream, number);
    frame->state = FRAME_QUEUED;
    if (!buffer_get(cache, frame, strict)) {
        free(frame);
        return NULL;
    }
    stream->cached[number] = frame;
    return frame;
}

// Moves a frame from the queue for prefetching to the queue of needed frames.
static void queue_promote(FrameCache *cache, CachedFrame *frame) {
    pthread_mutex_lock(&cache->mutex);
    if (!frame->decoding) {
        queue_remove(&cache->prefetch, frame);
        queue_add(&cache->needed, frame);
    }
    pthread_mutex_unlock(&cache->mutex);
    frame->prefetched = false;
}

CachedFrame *frame_cache_get(FrameCache *cache, ShardStream *stream, uint64_t number) {
    CachedFrame *frame = stream->cached[number];
    if (frame && frame->state == FRAME_READY) {
        cache->stats.hits++;
        if (frame != cache->newest) use_remove(cache, frame), use_add(cache, frame);
        return frame;
    }
    cache->stats.misses++;
    if (!frame) return queue_frame(cache, new_frame(cache, stream, number, false), false);
    if (frame->state == FRAME_FAILED && clock_ns() - frame->failed_ns >= RETRY_MS * MS) {
        buffer_get(cache, frame, false);
        return queue_frame(cache, frame, false);
    }
    if (frame->state == FRAME_QUEUED && frame->prefetched) queue_promote(cache, frame);
    return frame;
}

bool frame_cache_prefetch(FrameCache *cache, ShardStream *stream, uint64_t number) {
    if (stream->cached[number]) return true;
    CachedFrame *frame = new_frame(cache, stream, number, true);
    if (frame) queue_frame(cache, frame, true);
    return frame;
}

// --- finished frames

int frame_cache_event(const FrameCache *cache) { return cache->event; }
bool frame_cache_idle(const FrameCache *cache) { return !cache->pending; }
unsigned frame_cache_queued(const FrameCache *cache) {
    return cache->pending > cache->stuck ? cache->pending - cache->stuck : 0;
}

static void frame_finish(FrameCache *cache, CachedFrame *frame) {
    cache->pending--;
    if (!frame->error || !frame->error->code) {
        frame->state = FRAME_READY, frame->ids = frame->buffer;
        cache->stats.decoded++;
        use_add(cache, frame);
        return;
    }
    frame->state = FRAME_FAILED, frame->failed_ns = clock_ns();
    uint64_t *logged_ns = &frame->stream->failure_logged_ns[frame->place.shard];
    if (!*logged_ns || frame->failed_ns - *logged_ns >= LOG_MS * MS) {
        log_warn("%s", frame->error->text); // with the path, which trainers must not see
        *logged_ns = frame->failed_ns;
    }
    buffer_drop(cache, frame);
}

void frame_cache_collect(FrameCache *cache) {
    uint64_t count;
    if (read(cache->event, &count, sizeof count) < 0) return;
    pthread_mutex_lock(&cache->mutex);
    CachedFrame *frame = cache->done.first;
    cache->done = (Queue){0};
    pthread_mutex_unlock(&cache->mutex);
    for (CachedFrame *next; frame; frame = next) {
        next = frame->next;
        frame_finish(cache, frame);
    }
}

int frame_fail(const CachedFrame *frame) {
    const FramePlace *place = &frame->place;
    bool readable = frame->error->code == EX_DATA;
    return fail(readable ? EX_DATA : EX_IO, "%s shard %llu, frame %llu %s", split_names[frame->stream->split],
                (unsigned long long)place->shard, (unsigned long long)place->index,
                readable ? "is damaged: `millrace verify` the dataset" : "cannot be read: see the loader's log");
}

// --- files that do not answer

// The mutex is held.
static void watch_decoder(FrameCache *cache, DecodeThread *decoder, uint64_t now) {
    if (now < decoder->began_ns + STALLED_MS * MS) return;
    uint64_t waited_ns = now - decoder->began_ns;
    if (!decoder->stalled) {
        decoder->stalled = true, decoder->logged_ns = decoder->began_ns;
        cache->stalled++;
    }
    if (now - decoder->logged_ns < LOG_MS * MS) return;
    decoder->logged_ns = now;
    for (DecodeThread *other = cache->decoders; other < decoder; other++) // one line for each file
        if (other->stalled && other->frame->place.file == decoder->frame->place.file) return;
    log_warn("'%s' has not been readable for %llu s: requests for it wait", decoder->frame->place.file->path,
             (unsigned long long)(waited_ns / (1000 * MS)));
}

void frame_cache_watch(FrameCache *cache, uint64_t now_ns) {
    cache->stuck = 0;
    if (!cache->pending) return;
    pthread_mutex_lock(&cache->mutex);
    for (unsigned i = 0; i < cache->decoder_count; i++)
        if (cache->decoders[i].frame) watch_decoder(cache, &cache->decoders[i], now_ns);
    while (cache->decoder_count - cache->stalled < cache->threads && start_decoder(cache)) {
    }
    cache->stuck = cache->stalled;
    for (const CachedFrame *frame = cache->needed.first; cache->stalled && frame; frame = frame->next)
        cache->stuck += file_is_stalled(cache, frame->place.file);
    for (const CachedFrame *frame = cache->prefetch.first; cache->stalled && frame; frame = frame->next)
        cache->stuck += file_is_stalled(cache, frame->place.file);
    pthread_mutex_unlock(&cache->mutex);
}

// --- the end of a dataset

static void take_over_shard(ShardStream *stream, uint64_t shard, ShardStream *from, uint64_t match) {
    for (uint64_t i = 0; i < stream->shards[shard].frame_count; i++) {
        uint64_t number = stream->first_frame[shard] + i;
        CachedFrame **old = &from->cached[from->first_frame[match] + i], *frame = *old;
        if (!frame || frame->state != FRAME_READY || frame->pins) continue;
        *old = NULL;
        stream->cached[number] = frame;
        frame->stream = stream, frame->number = number, frame->place = shard_stream_place(stream, number);
    }
}

void frame_cache_take_over(ShardStream *stream, ShardStream *from) {
    for (uint64_t shard = 0; shard < stream->count; shard++)
        if (stream->matches[shard] != SHARD_NO_MATCH) take_over_shard(stream, shard, from, stream->matches[shard]);
}

bool frame_cache_forget(FrameCache *cache, ShardStream *stream) {
    bool gone = true;
    if (!stream->cached) return true;
    for (uint64_t i = 0; i < stream->frames; i++) {
        CachedFrame *frame = stream->cached[i];
        if (!frame) continue;
        if (frame->state == FRAME_QUEUED) {
            pthread_mutex_lock(&cache->mutex);
            bool waits = !frame->decoding;
            if (waits) queue_remove(frame->prefetched ? &cache->prefetch : &cache->needed, frame);
            pthread_mutex_unlock(&cache->mutex);
            if (!waits) {
                gone = false;
                continue;
            }
            cache->pending--;
        }
        drop_frame(cache, frame);
    }
    return gone;
}

FrameCacheStats frame_cache_stats(const FrameCache *cache) {
    FrameCacheStats stats = cache->stats;
    stats.bytes = cache->held, stats.limit = cache->limit, stats.room = cache->room;
    return stats;
}
