// Documents to ids: collects documents into batches, tokenizes the batches in workers, and delivers the ids in the
// order of the documents.
//
// A document larger than a batch is split into windows of one batch each. The windows share one encoder, so workers
// tokenize them one after the other.
#include "shardtool/pipeline/pipeline.h"
#include "common/err.h"
#include "shardtool/pipeline/append.h"
#include "shardtool/pipeline/shard_sink.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

enum {
    BATCH_BYTES = 1 << 20,        // a longer document is split
    BATCH_BYTES_FULL = 256 << 10, // with whole documents of so many bytes a batch is submitted
    BATCH_DOCUMENTS = 1 << 14,
    SPLIT_HASH_BYTES = 65536 // leading bytes of a document whose hash selects its split
};
_Static_assert(BATCH_BYTES >= SPLIT_HASH_BYTES, "the first window must hold the hashed bytes");

typedef struct Pipeline Pipeline;

typedef struct {
    InputPosition position;
    size_t bytes; // of text in this batch
    size_t ids;
    bool val;
} BatchDocument;

typedef struct {
    Pipeline *pipeline;
    uint8_t *text;
    size_t text_bytes;
    BatchDocument *documents;
    unsigned count;
    Buffer ids; // u16, an end-of-text after each document

    bool window, first, last; // a window of a long document; its first window, its last
    uint64_t number;          // sequence number of the window
    uint64_t ids_max;         // at most so many ids come of it
} Batch;

struct Pipeline {
    const PipelineOptions *options;
    const Inputs *inputs;
    Pool *pool;
    Batch *batches;
    unsigned batch_count;
    Encoder **encoders; // one per worker
    unsigned encoder_count;
    ShardSink *sink;
    uint64_t val_below; // documents with a smaller hash are validation
    bool val_all;

    Batch *batch;           // being filled
    BatchDocument document; // being added to `batch`
    bool checks;            // documents with characters that are not in the vocabulary are skipped
    Buffer held;            // of a document that is checked

    // The encoder of the windows, and the number of windows submitted and done.
    Encoder *long_encoder;
    pthread_mutex_t lock;
    pthread_cond_t window_done;
    uint64_t windows_submitted, windows_done;
    // The long document whose windows are being collected: its split, and its bytes so far.
    bool long_val;
    uint64_t long_bytes;
    bool window_val;                   // the split of the windows being tokenized
    InputPosition resume[SPLIT_COUNT]; // documents of a split before it are in finished shards, or were pending
    uint64_t drop[SPLIT_COUNT];        // ids of the document at `resume` that are in a finished shard

    uint64_t tokens;    // in finished shards or delivered
    uint64_t ids_left;  // at most so many come of the batches in flight
    uint64_t long_read; // bytes of the open long document in windows so far
    uint64_t documents; // delivered
    InputPosition last; // of the last document read
};

static bool is_validation(const Pipeline *pipeline, Bytes text) {
    size_t size = text.size < SPLIT_HASH_BYTES ? text.size : SPLIT_HASH_BYTES;
    return pipeline->val_all ||
           XXH3_64bits_withSeed(text.data, size, pipeline->options->val_seed) < pipeline->val_below;
}

// Whether a document is in a finished shard of a run that continues.
static bool is_finished(const Pipeline *pipeline, InputPosition position, bool val) {
    const InputPosition *resume = &pipeline->resume[val ? SPLIT_VAL : SPLIT_TRAIN];
    return position.file < resume->file || (position.file == resume->file && position.document < resume->document);
}

static uint16_t *batch_ids(const Batch *batch) { return (uint16_t *)(void *)batch->ids.data; }

static int fail_document(const Pipeline *pipeline, InputPosition position) {
    char path[PATH_MAX_BYTES];
    return fail_in("'%s' document %llu", input_path(pipeline->inputs, &pipeline->inputs->files[position.file], path),
                   (unsigned long long)position.document);
}

static int tokenize_window(Pipeline *pipeline, Batch *batch) {
    pthread_mutex_lock(&pipeline->lock);
    while (pipeline->windows_done != batch->number) pthread_cond_wait(&pipeline->window_done, &pipeline->lock);
    pthread_mutex_unlock(&pipeline->lock);

    Bytes text = {batch->text, batch->text_bytes};
    BatchDocument *document = &batch->documents[0];
    if (batch->first) pipeline->window_val = document->val = is_validation(pipeline, text);
    ssize_t got = 0;
    document->ids = 0;
    if (!is_finished(pipeline, document->position, pipeline->window_val)) {
        buffer_reserve(&batch->ids, (encoder_ids_max(text.size + encoder_held_bytes(pipeline->long_encoder)) + 1) *
                                        sizeof(uint16_t));
        got = encoder_encode_part(pipeline->long_encoder, text, batch->last, batch_ids(batch));
        document->ids = got < 0 ? 0 : (size_t)got;
        if (batch->last) batch_ids(batch)[document->ids++] = (uint16_t)pipeline->options->shards.params.eot_id;
    }

    pthread_mutex_lock(&pipeline->lock);
    pipeline->windows_done++;
    pthread_cond_broadcast(&pipeline->window_done);
    pthread_mutex_unlock(&pipeline->lock);
    return got < 0 ? fail_document(pipeline, document->position) : 0;
}

static int tokenize_batch(void *job, unsigned worker) {
    Batch *batch = job;
    Pipeline *pipeline = batch->pipeline;
    if (batch->window) return tokenize_window(pipeline, batch);

    buffer_reserve(&batch->ids, (encoder_ids_max(batch->text_bytes) + batch->count) * sizeof(uint16_t));
    uint16_t *ids = batch_ids(batch);
    const uint8_t *at = batch->text;
    for (unsigned i = 0; i < batch->count; i++) {
        BatchDocument *document = &batch->documents[i];
        Bytes text = {at, document->bytes};
        document->val = is_validation(pipeline, text);
        document->ids = 0;
        at += document->bytes;
        if (is_finished(pipeline, document->position, document->val)) continue;
        ssize_t got = encoder_encode(pipeline->encoders[worker], text, ids);
        if (got < 0) return fail_document(pipeline, document->position);
        ids[got] = (uint16_t)pipeline->options->shards.params.eot_id;
        document->ids = (size_t)got + 1;
        ids += document->ids;
    }
    return 0;
}

// Collects the oldest batch from the workers and adds its ids to the shards. 1 when no batch is in flight.
static int deliver_batch(Pipeline *pipeline) {
    void *done;
    if (pool_collect(pipeline->pool, &done) < 0) return -1;
    if (!done) return 1;
    const Batch *batch = done;
    const uint16_t *ids = batch_ids(batch);
    for (unsigned i = 0; i < batch->count; i++) {
        const BatchDocument *document = &batch->documents[i];
        uint64_t bytes = document->bytes;
        bool val = document->val;
        if (batch->window) {
            if (batch->first) pipeline->long_val = val, pipeline->long_bytes = 0;
            val = pipeline->long_val;
            pipeline->long_bytes += bytes;
            bytes = batch->last ? pipeline->long_bytes : 0;
        }
        int split = val ? SPLIT_VAL : SPLIT_TRAIN;
        uint64_t *drop = &pipeline->drop[split];
        size_t dropped = *drop < document->ids ? (size_t)*drop : document->ids;
        *drop -= dropped;
        Journal *journal = pipeline->options->shards.journal;
        if (journal && split == journal->pending_split && document->ids > dropped)
            journal_keep(journal, document->position, ids + dropped, document->ids - dropped, bytes);
        if (shard_sink_add(pipeline->sink, split, ids + dropped, document->ids - dropped, document->position, bytes) <
            0)
            return -1;
        pipeline->tokens += document->ids - dropped;
        pipeline->documents += !batch->window || batch->last;
        ids += document->ids;
    }
    pipeline->ids_left -= batch->ids_max;
    return 0;
}

static int next_batch(Pipeline *pipeline) {
    while (!(pipeline->batch = pool_acquire(pipeline->pool)))
        if (deliver_batch(pipeline) < 0) return -1;
    Batch *batch = pipeline->batch;
    batch->pipeline = pipeline;
    batch->text_bytes = batch->count = 0;
    batch->window = batch->first = batch->last = false;
    return 0;
}

// The encoder of the windows may hold back ids from one window to the next.
static void set_ids_max(Pipeline *pipeline) {
    Batch *batch = pipeline->batch;
    if (batch->first) pipeline->long_read = 0;
    if (batch->window) pipeline->long_read += batch->text_bytes;
    batch->ids_max = encoder_ids_max(batch->window ? pipeline->long_read : batch->text_bytes) + batch->count;
}

static int submit_batch(Pipeline *pipeline) {
    if (pipeline->batch->count) {
        set_ids_max(pipeline);
        pipeline->ids_left += pipeline->batch->ids_max;
        pool_submit(pipeline->pool);
        return next_batch(pipeline);
    }
    return 0;
}

// Submits the part of the open document that is in the batch as a window.
static int submit_window(Pipeline *pipeline, bool first, bool last) {
    Batch *batch = pipeline->batch;
    batch->documents[batch->count++] = pipeline->document;
    batch->window = true, batch->first = first, batch->last = last;
    batch->number = pipeline->windows_submitted++;
    pipeline->document.bytes = 0;
    return submit_batch(pipeline);
}

// The batch is full in the middle of a document. Complete documents are submitted and the open one moves to the next
// batch; if the batch holds nothing else, the document continues in windows.
static int handle_full_batch(Pipeline *pipeline, bool *is_long) {
    if (*is_long || pipeline->batch->count == 0) {
        bool first = !*is_long;
        *is_long = true;
        if (!pipeline->long_encoder) {
            pipeline->long_encoder = encoder_open(pipeline->options->vocab, pipeline->options->invalid);
            encoder_set_max_word(pipeline->long_encoder, pipeline->options->max_word);
        }
        return submit_window(pipeline, first, false);
    }
    const uint8_t *begun = pipeline->batch->text + pipeline->batch->text_bytes - pipeline->document.bytes;
    if (submit_batch(pipeline) < 0) return -1; // the old batch keeps its text: it is reused only after this one
    memcpy(pipeline->batch->text, begun, pipeline->document.bytes);
    pipeline->batch->text_bytes = pipeline->document.bytes;
    return 0;
}

static void show_progress(const Pipeline *pipeline, const Source *source) {
    Progress *progress = pipeline->options->progress;
    progress->counts[0].count = pipeline->documents, progress->counts[1].count = pipeline->tokens;
    progress_update(progress, source_bytes_read(source));
}

// Adds text of the open document to the batch.
static int add_text(Pipeline *pipeline, Bytes left, bool *is_long) {
    while (left.size) {
        size_t space = BATCH_BYTES - pipeline->batch->text_bytes, take = left.size < space ? left.size : space;
        if (!space) {
            if (handle_full_batch(pipeline, is_long) < 0) return -1;
            continue;
        }
        memcpy(pipeline->batch->text + pipeline->batch->text_bytes, left.data, take);
        pipeline->batch->text_bytes += take, pipeline->document.bytes += take;
        left.data += take, left.size -= take;
    }
    return 0;
}

static int next_part(Source *source, Part *part) {
    int status = source_next(source, part);
    return status > 0 ? 0 : status < 0 ? -1 : fail(EX_BUG, "the source ended within a document");
}

// Skips the open document after fail(): all of it, or where windows of it were submitted, the rest.
static int skip_document(Pipeline *pipeline, Source *source, Part *part, bool is_long) {
    const InputPosition *position = &pipeline->document.position;
    Skips *skips = pipeline->options->skips;
    fail_document(pipeline, *position);
    char path[PATH_MAX_BYTES];
    input_path(pipeline->inputs, &pipeline->inputs->files[position->file], path);
    if (skips_add(skips, path, "document", position->document) < 0) return -1;
    while (!part->last)
        if (next_part(source, part) < 0) return -1;
    if (is_long) return submit_window(pipeline, false, true);
    pipeline->batch->text_bytes -= pipeline->document.bytes;
    skips->documents--;
    return 0;
}

static int add_document(Pipeline *pipeline, Source *source, Part *part) {
    const Vocab *vocab = pipeline->options->vocab;
    Buffer *held = &pipeline->held; // with `checks`: text whose characters are checked, and one that a part cut
    uint64_t offset = 0;
    bool is_long = false;
    held->size = 0;
    pipeline->document = (BatchDocument){
        .position = {
            .file = part->file, .document = part->document, .place = part->place, .preceding = part->preceding}};
    for (;;) {
        Bytes text = part->text;
        int status = 0;
        if (pipeline->checks) {
            buffer_add(held, text.data, text.size);
            text = (Bytes){held->data, held->size};
            status = vocab_check(vocab, &text, part->last, offset);
        }
        if (add_text(pipeline, text, &is_long) < 0) return -1;
        if (status < 0) return skip_document(pipeline, source, part, is_long);
        if (pipeline->checks) memmove(held->data, held->data + text.size, held->size -= text.size), offset += text.size;
        show_progress(pipeline, source);
        if (part->last) break;
        if (next_part(source, part) < 0) return -1;
    }
    if (is_long) return submit_window(pipeline, false, true);
    pipeline->batch->documents[pipeline->batch->count++] = pipeline->document;
    bool is_full = pipeline->batch->count == BATCH_DOCUMENTS || pipeline->batch->text_bytes >= BATCH_BYTES_FULL;
    return is_full ? submit_batch(pipeline) : 0;
}

// Whether all documents before `resume` were read.
static bool has_passed(InputPosition last, InputPosition resume) {
    if (last.file != resume.file) return last.file > resume.file;
    return last.document + (resume.token == 0) >= resume.document;
}

// 1 when the documents read so far reach max_tokens. While the batches in flight may reach it, they are delivered
// before the next document is read, so nothing behind the last document is ever looked at.
static int check_full(Pipeline *pipeline) {
    const PipelineOptions *options = pipeline->options;
    uint64_t max = options->max_tokens;
    if (!max) return 0;
    set_ids_max(pipeline);
    if (pipeline->tokens + pipeline->ids_left + pipeline->batch->ids_max < max) return 0;
    for (int split = 0; split < SPLIT_COUNT; split++)
        if (!has_passed(pipeline->last, pipeline->resume[split])) return 0;
    int status = submit_batch(pipeline);
    while (status == 0) status = deliver_batch(pipeline);
    return status < 0 ? -1 : pipeline->tokens >= max;
}

// Adds the pending ids of the documents before the start, which are not read again.
static int add_pending(Pipeline *pipeline) {
    const JournalResume *resume = pipeline->options->shards.resume;
    int split = pipeline->options->shards.journal->pending_split;
    InputPosition *after = &pipeline->resume[split];
    PendingIds head;
    for (size_t at = 0; at < resume->pending.size; at += head.count * sizeof(uint16_t)) {
        memcpy(&head, resume->pending.data + at, sizeof head);
        at += sizeof head;
        InputPosition position = {.file = head.file, .document = head.document};
        if (is_finished(pipeline, position, split == SPLIT_VAL)) continue;
        uint64_t *drop = &pipeline->drop[split];
        size_t dropped = *drop < head.count ? (size_t)*drop : head.count;
        *drop -= dropped;
        const uint16_t *ids = (const uint16_t *)(const void *)(resume->pending.data + at);
        if (shard_sink_add(pipeline->sink, split, ids + dropped, head.count - dropped, position, head.source_bytes) < 0)
            return -1;
        pipeline->tokens += head.count - dropped;
    }
    if (after->file > resume->start.file ||
        (after->file == resume->start.file && after->document >= resume->start.document))
        return 0;
    *after = resume->start, after->token = 0;
    pipeline->drop[split] = 0;
    return 0;
}

static int pipeline_open(Pipeline *pipeline, Dataset *dataset) {
    const PipelineOptions *options = pipeline->options;
    unsigned threads = options->shards.threads ? options->shards.threads : pool_cores();
    pthread_mutex_init(&pipeline->lock, NULL);
    pthread_cond_init(&pipeline->window_done, NULL);
    pipeline->val_all = options->val >= 1;
    pipeline->val_below = pipeline->val_all ? 0 : (uint64_t)ldexp(options->val, 64);

    for (int i = 0; options->shards.resume && i < SPLIT_COUNT; i++) {
        pipeline->resume[i] = options->shards.resume->positions[i];
        pipeline->drop[i] = pipeline->resume[i].token;
    }
    pipeline->checks = vocab_is_characters(options->vocab) && options->skips && skips_any_allowed(options->skips);
    pipeline->encoder_count = threads;
    pipeline->encoders = allocate_zeroed(threads, sizeof(Encoder *));
    for (unsigned i = 0; i < threads; i++) {
        pipeline->encoders[i] = encoder_open(options->vocab, options->invalid);
        encoder_keep_small(pipeline->encoders[i]); // a thread may take 16 MiB
        encoder_set_max_word(pipeline->encoders[i], options->max_word);
    }
    pipeline->batch_count = threads + threads / 2 + 2;
    pipeline->batches = allocate_zeroed(pipeline->batch_count, sizeof *pipeline->batches);
    for (unsigned i = 0; i < pipeline->batch_count; i++) {
        pipeline->batches[i].text = allocate_zeroed(BATCH_BYTES, 1);
        pipeline->batches[i].documents = allocate_zeroed(BATCH_DOCUMENTS, sizeof(BatchDocument));
    }
    pipeline->sink = shard_sink_open(&options->shards, pipeline->inputs, dataset);
    if (!pipeline->sink) return -1;
    for (int split = 0; split < SPLIT_COUNT; split++) pipeline->tokens += dataset->tokens[split];
    if (options->base && append_last(pipeline->sink, dataset, options->base, pipeline->inputs,
                                     options->shards.shard_tokens, &pipeline->tokens) < 0)
        return -1;
    if (options->shards.resume && options->shards.resume->has_start && add_pending(pipeline) < 0) return -1;
    pipeline->pool =
        pool_open(threads, tokenize_batch, pipeline->batches, sizeof *pipeline->batches, pipeline->batch_count);
    return pipeline->pool ? next_batch(pipeline) : -1;
}

static void pipeline_close(Pipeline *pipeline) {
    pool_close(pipeline->pool);
    shard_sink_close(pipeline->sink);
    for (unsigned i = 0; i < pipeline->batch_count; i++) {
        free(pipeline->batches[i].text);
        free(pipeline->batches[i].documents);
        buffer_close(&pipeline->batches[i].ids);
    }
    for (unsigned i = 0; i < pipeline->encoder_count; i++) encoder_close(pipeline->encoders[i]);
    encoder_close(pipeline->long_encoder);
    buffer_close(&pipeline->held);
    free(pipeline->batches);
    free(pipeline->encoders);
    pthread_cond_destroy(&pipeline->window_done);
    pthread_mutex_destroy(&pipeline->lock);
}

int pipeline_run(const PipelineOptions *options, const Inputs *inputs, Source *source, Dataset *dataset,
                 PipelineResult *result) {
    Pipeline pipeline = {.options = options, .inputs = inputs};
    Part part;
    int status = pipeline_open(&pipeline, dataset);
    *result = (PipelineResult){0};
    while (status == 0) {
        status = check_full(&pipeline);
        result->is_full = status > 0;
        if (status == 0) status = source_next(source, &part);
        if (status <= 0 || result->is_full) break;
        pipeline.last = (InputPosition){.file = part.file, .document = part.document};
        status = add_document(&pipeline, source, &part);
    }
    if (status >= 0) status = submit_batch(&pipeline);
    while (status == 0) status = deliver_batch(&pipeline);
    if (status > 0) status = shard_sink_finish(pipeline.sink);

    if (status == 0) {
        for (unsigned i = 0; i < pipeline.encoder_count; i++)
            result->replaced += encoder_replaced(pipeline.encoders[i]);
        if (pipeline.long_encoder) result->replaced += encoder_replaced(pipeline.long_encoder);
    }
    pipeline_close(&pipeline);
    return status;
}
