// A pool of workers whose jobs are members: the compressed bytes, and the first part of their content. The
// reader decodes the rest of a large member itself.
#include "shardtool/ingest/member_queue.h"
#include "common/machine/pool.h"
#include "shardtool/ingest/decoder.h"
#include <stdlib.h>

enum { AHEAD_BYTES = 8 << 20 }; // decoded ahead of the reader, per member

typedef struct {
    Stream stream; // over `bytes`
    SourceOptions *options;
    Buffer bytes;
    size_t at;
    bool failed; // `error` follows `bytes`
    Error error;
    Buffer ahead; // decoded
} Member;

struct MemberQueue {
    Pool *pool;
    Member *members;
    unsigned count, queued;
};

static ssize_t read_bytes(Stream *stream, void *data, size_t size) {
    Member *member = (Member *)stream;
    size_t left = member->bytes.size - member->at, take = left < size ? left : size;
    if (take < size && member->failed) {
        err_give(&member->error);
        return -1;
    }
    if (take) memcpy(data, member->bytes.data + member->at, take);
    member->at += take;
    return (ssize_t)take;
}

static int decode_ahead(void *job, unsigned worker) {
    (void)worker;
    Member *member = job;
    Bytes head;
    if (stream_peek(&member->stream, &head) < 0) {
        err_clear(); // reader_open will report the same error
        return 0;
    }
    member->stream.decoder = decoder_open(&member->stream, codec_find(head), member->options);
    decoder_run_ahead(member->stream.decoder, &member->ahead, AHEAD_BYTES);
    return 0;
}

MemberQueue *member_queue_open(SourceOptions *options) {
    unsigned threads = options->threads ? options->threads : pool_cores();
    MemberQueue *queue = allocate_zeroed(1, sizeof *queue);
    queue->count = threads + 2; // one that is read, one per worker, and one that waits
    queue->members = allocate_zeroed(queue->count, sizeof *queue->members);
    for (unsigned i = 0; i < queue->count; i++) queue->members[i].options = options;
    queue->pool = pool_open(threads, decode_ahead, queue->members, sizeof *queue->members, queue->count);
    if (queue->pool) return queue;
    member_queue_close(queue);
    return NULL;
}

bool member_queue_is_empty(const MemberQueue *queue) { return !queue || !queue->queued; }

bool member_queue_has_space(const MemberQueue *queue) { return queue->queued + 1 < queue->count; }

int member_queue_add(MemberQueue *queue, Stream *from) {
    enum { STEP_BYTES = 1 << 16 };
    Member *member = pool_acquire(queue->pool);
    decoder_close(member->stream.decoder); // of a member that no reader opened
    member->stream = *from;
    member->stream.read = read_bytes;
    member->stream.head_at = member->stream.head_size = 0;
    member->bytes.size = member->at = 0;
    ssize_t got;
    do {
        buffer_reserve(&member->bytes, STEP_BYTES);
        got = stream_read(from, member->bytes.data + member->bytes.size, STEP_BYTES);
        if (got > 0) member->bytes.size += (size_t)got;
    } while (got == STEP_BYTES);
    member->failed = got < 0;
    if (member->failed) err_take(&member->error);
    pool_submit(queue->pool);
    queue->queued++;
    return member->failed ? -1 : 0;
}

Stream *member_queue_next(MemberQueue *queue) {
    void *job = NULL;
    if (member_queue_is_empty(queue)) return NULL;
    pool_collect(queue->pool, &job);
    queue->queued--;
    return &((Member *)job)->stream;
}

void member_queue_close(MemberQueue *queue) {
    if (!queue) return;
    pool_close(queue->pool);
    for (unsigned i = 0; i < queue->count; i++) {
        decoder_close(queue->members[i].stream.decoder);
        buffer_close(&queue->members[i].bytes);
        buffer_close(&queue->members[i].ahead);
    }
    free(queue->members);
    free(queue);
}
