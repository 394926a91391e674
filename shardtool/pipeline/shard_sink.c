// Ids to shards: cuts frames, compresses them in workers, appends them in order.
#include "shardtool/pipeline/shard_sink.h"
#include <stdlib.h>
#include <unistd.h>

// A frame to be compressed by a worker.
typedef struct {
    ShardSink *sink;
    int split;
    uint8_t *ids;
    size_t count;
    uint64_t source_bytes; // size of the documents that end in it
    InputPosition from, to;
    Buffer frame;
} SinkFrame;

typedef struct {
    uint8_t *ids; // the frame being filled
    size_t count;
    uint64_t source_bytes;
    InputPosition from, to; // of the frame; to.token counts the ids of the last document so far

    bool in_document; // the last id that was added is not an end-of-text id
    Buffer rows;      // of the documents whose ids are in `ids` or in flight: u32 bytes, and the row
    size_t row;       // offset of the first one that is not in `table`

    ShardWriter shard; // being written
    ProvenanceWriter table;
    bool open, continues;
    InputPosition shard_from, shard_to;
} SinkSplit;

struct ShardSink {
    const ShardSinkOptions *options;
    const Inputs *inputs;
    Dataset *dataset;
    Pool *pool;
    SinkFrame *jobs;
    unsigned job_count, id_bytes; // of an id
    ShardEncoder **encoders;      // one per worker, and one of the thread that adds
    unsigned encoder_count;
    SinkSplit splits[SPLIT_COUNT];
    Buffer row;
};

static int compress_frame(void *data, unsigned worker) {
    SinkFrame *job = data;
    return shard_encode(job->sink->encoders[worker], &job->sink->options->params, job->ids, job->count, &job->frame);
}

ShardSink *shard_sink_open(const ShardSinkOptions *options, const Inputs *inputs, Dataset *dataset) {
    ShardSink *sink = allocate_zeroed(1, sizeof *sink);
    sink->options = options, sink->inputs = inputs, sink->dataset = dataset;
    sink->id_bytes = id_bytes(options->params.vocab_size);
    size_t frame_tokens = (size_t)options->params.frame_tokens;
    for (int i = 0; i < SPLIT_COUNT; i++) {
        SinkSplit *split = &sink->splits[i];
        split->ids = allocate_zeroed(frame_tokens, sink->id_bytes);
        if (options->resume) split->to = options->resume->positions[i];
        split->continues = split->in_document = split->to.token > 0;
    }

    unsigned threads = options->threads ? options->threads : pool_cores();
    sink->encoder_count = threads + 1;
    sink->encoders = allocate_zeroed(sink->encoder_count, sizeof(ShardEncoder *));
    for (unsigned i = 0; i < sink->encoder_count; i++) sink->encoders[i] = shard_encoder_open();
    sink->job_count = 3 * threads + 4; // one batch of text fills several frames
    sink->jobs = allocate_zeroed(sink->job_count, sizeof *sink->jobs);
    for (unsigned i = 0; i < sink->job_count; i++) {
        sink->jobs[i].sink = sink;
        sink->jobs[i].ids = allocate_zeroed(frame_tokens, sink->id_bytes);
    }
    sink->pool = pool_open(threads, compress_frame, sink->jobs, sizeof *sink->jobs, sink->job_count);
    if (sink->pool) return sink;
    shard_sink_close(sink);
    return NULL;
}

void shard_sink_close(ShardSink *sink) {
    if (!sink) return;
    pool_close(sink->pool);
    for (int i = 0; i < SPLIT_COUNT; i++) {
        if (sink->splits[i].open) shard_writer_abandon(&sink->splits[i].shard);
        provenance_writer_abandon(&sink->splits[i].table);
        buffer_close(&sink->splits[i].rows);
        free(sink->splits[i].ids);
    }
    for (unsigned i = 0; i < sink->job_count; i++) {
        free(sink->jobs[i].ids);
        buffer_close(&sink->jobs[i].frame);
    }
    for (unsigned i = 0; i < sink->encoder_count; i++) shard_encoder_close(sink->encoders[i]);
    buffer_close(&sink->row);
    free(sink->encoders);
    free(sink->jobs);
    free(sink);
}

static int open_shard(ShardSink *sink, int split, const SinkFrame *job) {
    SinkSplit *to = &sink->splits[split];
    const char *directory = sink->options->build ? sink->options->build->target : NULL;
    uint64_t number = sink->dataset->shard_count[split];
    char path[PATH_MAX_BYTES];
    if (directory) {
        dataset_shard_path(path, directory, split, number);
        if (number % 1000 == 0 && dataset_make_folder(directory, split, number) < 0) return -1;
    }
    to->shard_from = job->from;
    if (shard_writer_open(&to->shard, directory ? path : NULL, STDOUT_FILENO, &sink->options->params, to->continues) <
        0)
        return -1;
    if (directory) dataset_docs_path(to->table.path, directory, split, number);
    to->open = true;
    return 0;
}

void shard_sink_row(ShardSink *sink, int number, Bytes row) {
    SinkSplit *split = &sink->splits[number];
    if (!sink->options->build) return;
    const uint32_t bytes = (uint32_t)row.size;
    buffer_add(&split->rows, &bytes, sizeof bytes);
    buffer_add(&split->rows, row.data, row.size);
}

void shard_sink_place(ShardSink *sink, int number, InputPosition position, Bytes kept) {
    Buffer *row = &sink->row;
    char name[PATH_MAX_BYTES];
    if (sink->splits[number].in_document) return;
    provenance_begin(row, input_name(sink->inputs, &sink->inputs->files[position.file], name), position.record);
    buffer_add(row, kept.data, kept.size);
    shard_sink_row(sink, number, (Bytes){row->data, row->size});
}

// Adds the rows of the next documents of the shard to its table, up to `documents` of them. Without a row, nothing is
// known of a document.
static int add_rows(SinkSplit *split, uint64_t documents) {
    Buffer *rows = &split->rows;
    while (split->table.rows < documents) {
        Bytes row = {0};
        if (split->row < rows->size) {
            row = (Bytes){rows->data + split->row + sizeof(uint32_t), get_u32(rows->data + split->row)};
            split->row += sizeof(uint32_t) + row.size;
        }
        if (provenance_writer_add(&split->table, row) < 0) return -1;
    }
    if (!split->row || split->row < rows->size / 2) return 0;
    memmove(rows->data, rows->data + split->row, rows->size -= split->row);
    split->row = 0;
    return 0;
}

static DatasetPosition dataset_position(const ShardSink *sink, InputPosition position,
                                        char path[static PATH_MAX_BYTES]) {
    return (DatasetPosition){input_path(sink->inputs, &sink->inputs->files[position.file], path), position.document};
}

static int finish_shard(ShardSink *sink, int split) {
    SinkSplit *from = &sink->splits[split];
    ShardWriter *shard = &from->shard;
    if (sink->options->build && dataset_build_check(sink->options->build) < 0) return -1;
    from->open = false; // finish closes it in any case
    if (shard_writer_finish(shard) < 0) return -1;
    if (sink->options->build && add_rows(from, shard->documents) < 0) return -1;
    char first[PATH_MAX_BYTES], last[PATH_MAX_BYTES];
    DatasetShard added = {.tokens = shard->tokens,
                          .documents = shard->documents,
                          .bytes = shard->offset,
                          .source_bytes = shard->source_bytes,
                          .from = dataset_position(sink, from->shard_from, first),
                          .to = dataset_position(sink, from->shard_to, last)};
    memcpy(added.content_hash, shard->content_hash, sizeof added.content_hash);
    memcpy(added.stored_hash, shard->stored_hash, sizeof added.stored_hash);
    if (provenance_writer_finish(&from->table, &added.docs) < 0) return -1;
    dataset_add(sink->dataset, split, &added);
    if (!sink->options->journal) return 0;
    InputPosition end = from->shard_to;
    if (!from->continues) end.document++, end.token = 0, end.preceding++;
    return journal_add(sink->options->journal, split, sink->dataset->shard_count[split] - 1, &added, end);
}

// Collects the oldest frame from the workers and appends it. 1 when no frame is in flight.
static int append_frame(ShardSink *sink) {
    void *done;
    pool_help(sink->pool);
    if (pool_collect(sink->pool, &done) < 0) return -1;
    if (!done) return 1;
    SinkFrame *job = done;
    SinkSplit *split = &sink->splits[job->split];
    if (!split->open && open_shard(sink, job->split, job) < 0) return -1;
    Bytes frame = {job->frame.data, job->frame.size};
    if (shard_writer_append(&split->shard, job->ids, job->count, frame, job->source_bytes) < 0) return -1;
    // The ended documents; if the first one began in another shard, only those after it are sure to begin here.
    const uint64_t begun = split->shard.documents - (split->shard.continues_before && split->shard.documents);
    if (sink->options->build && add_rows(split, begun) < 0) return -1;
    split->shard_to = job->to;
    split->continues = id_at(job->ids, job->count - 1, sink->id_bytes) != sink->options->params.eot_id;
    uint64_t full = sink->options->shard_tokens;
    return full && split->shard.tokens == full ? finish_shard(sink, job->split) : 0;
}

static int submit_frame(ShardSink *sink, int number) {
    SinkSplit *split = &sink->splits[number];
    SinkFrame *job;
    while (!(job = pool_acquire(sink->pool)))
        if (append_frame(sink) < 0) return -1;
    uint8_t *ids = job->ids;
    job->ids = split->ids, job->count = split->count, job->split = number;
    job->source_bytes = split->source_bytes, job->from = split->from, job->to = split->to;
    split->ids = ids, split->count = 0, split->source_bytes = 0;
    pool_submit(sink->pool);
    return 0;
}

void shard_sink_continue(ShardSink *sink, int split) {
    sink->splits[split].continues = sink->splits[split].in_document = true;
}

int shard_sink_add(ShardSink *sink, int number, const void *ids, size_t count, InputPosition position,
                   uint64_t source_bytes) {
    SinkSplit *split = &sink->splits[number];
    const uint8_t *from = ids;
    size_t frame_tokens = (size_t)sink->options->params.frame_tokens;
    while (count) {
        size_t space = frame_tokens - split->count, take = count < space ? count : space;
        if (split->count == 0) split->from = position;
        memcpy(split->ids + split->count * sink->id_bytes, from, take * sink->id_bytes);
        bool same = split->to.file == position.file && split->to.document == position.document;
        position.token = (same ? split->to.token : 0) + take;
        split->to = position;
        split->count += take;
        split->in_document = id_at(from, take - 1, sink->id_bytes) != sink->options->params.eot_id;
        from += take * sink->id_bytes, count -= take;
        if (count == 0) split->source_bytes += source_bytes;
        if (split->count == frame_tokens && submit_frame(sink, number) < 0) return -1;
    }
    return 0;
}

int shard_sink_finish(ShardSink *sink) {
    int status = 0;
    for (int i = 0; i < SPLIT_COUNT; i++)
        if (sink->splits[i].count && submit_frame(sink, i) < 0) return -1;
    while (status == 0) status = append_frame(sink);
    for (int i = 0; status >= 0 && i < SPLIT_COUNT; i++)
        if (sink->splits[i].open) status = finish_shard(sink, i);
    return status < 0 ? -1 : 0;
}
