// Ids to shards.
#include "shardtool/ingest/shard_sink.h"
#include "common/err.h"
#include <stdlib.h>
#include <unistd.h>

// A frame on its way through a worker.
typedef struct {
    ShardSink *writer;
    int split;
    uint16_t *ids;
    size_t count;
    uint64_t source_bytes; // of the documents that end in it
    InputPosition from, to;
    Buffer frame;
} FrameJob;

typedef struct {
    uint16_t *ids; // the frame that is being filled
    size_t count;
    uint64_t source_bytes;
    InputPosition from, to;

    ShardWriter shard; // the one being written
    bool open, continues;
    InputPosition shard_from, shard_to;
} Split;

struct ShardSink {
    const PipelineOptions *options;
    const Inputs *inputs;
    Dataset *dataset;
    Pool *pool;
    FrameJob *jobs;
    unsigned job_count;
    ShardEncoder **encoders; // one a worker
    unsigned encoder_count;
    Split splits[SPLIT_COUNT];
};

static int compress_frame(void *data, unsigned worker) {
    FrameJob *job = data;
    return shard_encode(job->writer->encoders[worker], &job->writer->options->params, job->ids, job->count,
                        &job->frame);
}

static void *zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) die(EX_MEMORY, "no memory for %zu times %zu bytes", count, size);
    return memory;
}

ShardSink *shard_sink_open(const PipelineOptions *options, const Inputs *inputs, Dataset *dataset) {
    ShardSink *writer = zeroed(1, sizeof *writer);
    writer->options = options, writer->inputs = inputs, writer->dataset = dataset;
    size_t frame_tokens = (size_t)options->params.frame_tokens;
    for (int i = 0; i < SPLIT_COUNT; i++) writer->splits[i].ids = zeroed(frame_tokens, sizeof(uint16_t));

    unsigned threads = options->threads ? options->threads : pool_cores();
    writer->encoder_count = threads;
    writer->encoders = zeroed(threads, sizeof(ShardEncoder *));
    for (unsigned i = 0; i < threads; i++) writer->encoders[i] = shard_encoder_open();
    writer->job_count = 4 * threads + 4; // a batch of text fills several frames
    writer->jobs = zeroed(writer->job_count, sizeof *writer->jobs);
    for (unsigned i = 0; i < writer->job_count; i++) {
        writer->jobs[i].writer = writer;
        writer->jobs[i].ids = zeroed(frame_tokens, sizeof(uint16_t));
    }
    writer->pool = pool_open(threads, compress_frame, writer->jobs, sizeof *writer->jobs, writer->job_count);
    if (writer->pool) return writer;
    shard_sink_close(writer);
    return NULL;
}

void shard_sink_close(ShardSink *writer) {
    if (!writer) return;
    pool_close(writer->pool);
    for (int i = 0; i < SPLIT_COUNT; i++) {
        if (writer->splits[i].open) shard_writer_abandon(&writer->splits[i].shard);
        free(writer->splits[i].ids);
    }
    for (unsigned i = 0; i < writer->job_count; i++) {
        free(writer->jobs[i].ids);
        buffer_close(&writer->jobs[i].frame);
    }
    for (unsigned i = 0; i < writer->encoder_count; i++) shard_encoder_close(writer->encoders[i]);
    free(writer->encoders);
    free(writer->jobs);
    free(writer);
}

static int open_shard(ShardSink *writer, int split, const FrameJob *job) {
    Split *to = &writer->splits[split];
    const char *directory = writer->options->directory;
    uint64_t number = writer->dataset->shard_count[split];
    char path[PATH_MAX_BYTES];
    if (directory) {
        dataset_shard_path(path, directory, split, number);
        if (number % 1000 == 0 && dataset_make_folder(directory, split, number) < 0) return -1;
    }
    to->shard_from = job->from;
    if (shard_writer_open(&to->shard, directory ? path : NULL, STDOUT_FILENO, &writer->options->params, to->continues) <
        0)
        return -1;
    to->open = true;
    return 0;
}

static DatasetPosition named(const ShardSink *writer, InputPosition place) {
    return (DatasetPosition){writer->inputs->files[place.file].path, place.document};
}

static int finish_shard(ShardSink *writer, int split) {
    Split *from = &writer->splits[split];
    ShardWriter *shard = &from->shard;
    from->open = false; // whatever comes of it
    if (shard_writer_finish(shard) < 0) return -1;
    DatasetShard added = {.tokens = shard->tokens,
                          .documents = shard->documents,
                          .bytes = shard->offset,
                          .source_bytes = shard->source_bytes,
                          .from = named(writer, from->shard_from),
                          .to = named(writer, from->shard_to)};
    memcpy(added.content_hash, shard->content_hash, sizeof added.content_hash);
    memcpy(added.stored_hash, shard->stored_hash, sizeof added.stored_hash);
    dataset_add(writer->dataset, split, &added);
    return 0;
}

// Takes the oldest frame from the workers and appends it. 1 when there is none.
static int append_frame(ShardSink *writer) {
    void *done;
    if (pool_collect(writer->pool, &done) < 0) return -1;
    if (!done) return 1;
    FrameJob *job = done;
    Split *split = &writer->splits[job->split];
    if (!split->open && open_shard(writer, job->split, job) < 0) return -1;
    Bytes frame = {job->frame.data, job->frame.size};
    if (shard_writer_append(&split->shard, job->ids, job->count, frame, job->source_bytes) < 0) return -1;
    split->shard_to = job->to;
    split->continues = job->ids[job->count - 1] != writer->options->params.eot_id;
    uint64_t full = writer->options->shard_tokens;
    return full && split->shard.tokens == full ? finish_shard(writer, job->split) : 0;
}

static int submit_frame(ShardSink *writer, int number) {
    Split *split = &writer->splits[number];
    FrameJob *job;
    while (!(job = pool_acquire(writer->pool)))
        if (append_frame(writer) < 0) return -1;
    uint16_t *ids = job->ids;
    job->ids = split->ids, job->count = split->count, job->split = number;
    job->source_bytes = split->source_bytes, job->from = split->from, job->to = split->to;
    split->ids = ids, split->count = 0, split->source_bytes = 0;
    pool_submit(writer->pool);
    return 0;
}

int shard_sink_add(ShardSink *writer, int number, const uint16_t *ids, size_t count, InputPosition place,
                   uint64_t source_bytes) {
    Split *split = &writer->splits[number];
    size_t frame_tokens = (size_t)writer->options->params.frame_tokens;
    while (count) {
        size_t room = frame_tokens - split->count, take = count < room ? count : room;
        if (split->count == 0) split->from = place;
        memcpy(split->ids + split->count, ids, take * sizeof *ids);
        split->to = place;
        split->count += take;
        ids += take, count -= take;
        if (count == 0) split->source_bytes += source_bytes;
        if (split->count == frame_tokens && submit_frame(writer, number) < 0) return -1;
    }
    return 0;
}

int shard_sink_finish(ShardSink *writer) {
    int status = 0;
    for (int i = 0; i < SPLIT_COUNT; i++)
        if (writer->splits[i].count && submit_frame(writer, i) < 0) return -1;
    while (status == 0) status = append_frame(writer);
    for (int i = 0; status >= 0 && i < SPLIT_COUNT; i++)
        if (writer->splits[i].open) status = finish_shard(writer, i);
    return status < 0 ? -1 : 0;
}
