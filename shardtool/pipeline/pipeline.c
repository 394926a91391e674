// Documents to ids: collects documents into batches, and adds the ids of each batch to the shards in the order of the
// documents.
#include "shardtool/pipeline/pipeline.h"
#include "common/err.h"
#include "common/turns.h"
#include "common/utf8.h"
#include "shardtool/pipeline/append.h"
#include <inttypes.h>

enum { BATCH_BYTES_FULL = 256 << 10 }; // with whole documents of so many bytes a batch is submitted

// The batch being filled, and the document that is added to it.
typedef struct {
    TextBatch *batch;
    BatchDocument document; // its bytes so far
    Buffer kept;            // its kept values, and the name of its member
    bool is_long;           // windows of it were submitted
    Buffer unchecked;       // text whose characters are to be checked
    uint64_t checked_bytes;
} Filling;

// Counts ids, so that nothing is read after the document that reaches max_tokens.
typedef struct {
    uint64_t delivered; // in finished shards or delivered to the sink
    uint64_t in_flight; // upper bound of the ids of the batches in flight
    InputPosition last; // of the last document read
} TokenCount;

typedef struct {
    const PipelineOptions *options;
    const Inputs *inputs;
    Source *source;
    ShardSink *sink;
    TextBatches *batches;
    bool checks; // documents with characters that the vocabulary lacks, or with bytes that are not UTF-8, are skipped
    Resume resume;
    Filling filling;
    TokenCount tokens;
    uint64_t documents; // delivered
    PipelineResult *result;
    uint64_t replaced_file; // the last of result->replaced_inputs
} Pipeline;

static void count_replaced(Pipeline *pipeline, const BatchDocument *document, Bytes member) {
    PipelineResult *result = pipeline->result;
    const uint64_t file = document->position.file;
    if (!document->replaced) return;
    result->replaced += document->replaced;
    if (!result->replaced_inputs || pipeline->replaced_file != file) result->replaced_inputs++;
    pipeline->replaced_file = file;
    if (result->replaced_inputs > REPLACED_INPUTS_MAX) return;
    ReplacedInput *input = &result->replaced_in[result->replaced_inputs - 1];
    if (!input->places) {
        input->file = file, input->record = document->position.record;
        input->member_record = document->member_record;
        memcpy(input->member, member.data, member.size); // the result is zeroed
    }
    input->places += document->replaced;
}

static int deliver_document(Pipeline *pipeline, const BatchDocument *document, Bytes kept, const uint8_t *ids,
                            unsigned id_bytes) {
    size_t count = document->ids, bytes = document->bytes - document->markers;
    kept.size -= document->member;
    count_replaced(pipeline, document, (Bytes){kept.data + kept.size, document->member});
    Journal *journal = pipeline->options->shards.journal;
    if (journal && document->split == journal->pending_split && count)
        journal_keep(journal, document->position, (Bytes){ids, count * id_bytes}, kept, bytes);
    const size_t dropped = resume_drop(&pipeline->resume, document->split, count);
    ids += dropped * id_bytes, count -= dropped;
    pipeline->tokens.delivered += count;
    if (count) shard_sink_place(pipeline->sink, document->split, document->position, kept);
    return shard_sink_add(pipeline->sink, document->split, ids, count, document->position, bytes);
}

// Collects the oldest batch from the workers and adds its ids to the shards. 1 when no batch is in flight.
static int deliver_batch(Pipeline *pipeline) {
    const TextBatch *batch;
    if (text_batches_collect(pipeline->batches, &batch) < 0) return -1;
    if (!batch) return 1;
    const unsigned bytes = vocab_id_bytes(pipeline->options->text.vocab);
    const uint8_t *ids = batch->ids.data;
    Bytes kept = {batch->kept.data, 0};
    for (unsigned i = 0; i < batch->count; i++, kept.data += kept.size) {
        kept.size = batch->documents[i].kept;
        if (deliver_document(pipeline, &batch->documents[i], kept, ids, bytes) < 0) return -1;
        pipeline->documents += !batch->is_window || batch->is_last;
        ids += batch->documents[i].ids * bytes;
    }
    pipeline->tokens.in_flight -= batch->ids_max;
    return 0;
}

static int next_batch(Pipeline *pipeline) {
    while (!(pipeline->filling.batch = text_batches_acquire(pipeline->batches)))
        if (deliver_batch(pipeline) < 0) return -1;
    return 0;
}

static int submit_batch(Pipeline *pipeline) {
    TextBatch *batch = pipeline->filling.batch;
    if (!batch->count) return 0;
    // The encoder of the windows may hold back ids from one window to the next.
    size_t bytes = batch->is_window ? pipeline->filling.document.bytes : batch->text_bytes;
    batch->ids_max = encoder_ids_max(bytes) + batch->count;
    pipeline->tokens.in_flight += batch->ids_max;
    text_batches_submit(pipeline->batches, batch);
    return next_batch(pipeline);
}

static void add_filled(Filling *filling) {
    TextBatch *batch = filling->batch;
    filling->document.kept = filling->kept.size;
    batch->documents[batch->count++] = filling->document;
    buffer_add(&batch->kept, filling->kept.data, filling->kept.size);
}

// Submits the part of the open document that is in the batch as a window.
static int submit_window(Pipeline *pipeline, bool is_last) {
    Filling *filling = &pipeline->filling;
    TextBatch *batch = filling->batch;
    add_filled(filling);
    if (!is_last) batch->documents[0].bytes = batch->documents[0].markers = batch->documents[0].replaced = 0;
    batch->is_window = true, batch->is_first = !filling->is_long, batch->is_last = is_last;
    filling->is_long = true;
    return submit_batch(pipeline);
}

// The batch is full in the middle of a document. Complete documents are submitted and the open one moves to the next
// batch; if the batch holds nothing else, the document continues in windows.
static int handle_full_batch(Pipeline *pipeline) {
    Filling *filling = &pipeline->filling;
    if (filling->batch->count == 0) return submit_window(pipeline, false);
    const size_t bytes = filling->document.bytes;
    const uint8_t *begun = filling->batch->text + filling->batch->text_bytes - bytes;
    if (submit_batch(pipeline) < 0) return -1; // the old batch keeps its text: it is reused only after this one
    memcpy(filling->batch->text, begun, bytes);
    filling->batch->text_bytes = bytes;
    return 0;
}

// Adds text of the open document to the batch.
static int add_text(Pipeline *pipeline, Bytes left) {
    Filling *filling = &pipeline->filling;
    while (left.size) {
        TextBatch *batch = filling->batch;
        size_t space = BATCH_BYTES - batch->text_bytes, take = left.size < space ? left.size : space;
        if (!space) {
            if (handle_full_batch(pipeline) < 0) return -1;
            continue;
        }
        memcpy(batch->text + batch->text_bytes, left.data, take);
        batch->text_bytes += take, filling->document.bytes += take;
        for (size_t i = 0; pipeline->options->text.turns && i < take; i++)
            filling->document.markers += is_turn_byte(left.data[i]);
        left.data += take, left.size -= take;
    }
    return 0;
}

// Cuts the text before the first bytes that are not a character, or not one of the vocabulary: -1 after fail().
// `last`: without it the end may be a part of one, and is cut off too.
static int check_text(const TextOptions *options, Bytes *text, bool last, uint64_t offset) {
    if (vocab_is_characters(options->vocab)) return vocab_check(options->vocab, text, last, offset);
    const size_t valid = utf8_valid(*text), left = text->size - valid;
    uint32_t point;
    if (!left) return 0;
    utf8_decode(text->data + valid, text->data + text->size, &point);
    text->size = valid;
    if (!last && left < UTF8_BYTES_MAX && point == UTF8_CUT) return 0;
    return fail(EX_DATA, "invalid UTF-8 at byte %" PRIu64, offset + valid);
}

// Adds the text of a part. With `checks`, only up to the first place that check_text refuses: then *is_bad is set, and
// the result is -1 after fail().
static int add_part(Pipeline *pipeline, const Part *part, bool *is_bad) {
    if (!pipeline->checks) return add_text(pipeline, part->text);
    Filling *filling = &pipeline->filling;
    Buffer *unchecked = &filling->unchecked;
    buffer_add(unchecked, part->text.data, part->text.size);
    Bytes text = {unchecked->data, unchecked->size};
    int status = check_text(&pipeline->options->text, &text, part->last, filling->checked_bytes);
    if (add_text(pipeline, text) < 0) return -1;
    *is_bad = status < 0;
    if (*is_bad) return -1;
    memmove(unchecked->data, unchecked->data + text.size, unchecked->size -= text.size);
    filling->checked_bytes += text.size;
    return 0;
}

static int next_part(Pipeline *pipeline, Part *part) {
    int status = source_next(pipeline->source, part);
    return status > 0 ? 0 : status < 0 ? -1 : fail(EX_BUG, "the source ended within a document");
}

// Skips the open document after fail(): all of it, or if windows of it were submitted, the rest.
static int skip_document(Pipeline *pipeline, Part *part) {
    Filling *filling = &pipeline->filling;
    Skips *skips = pipeline->options->skips;
    char path[PATH_MAX_BYTES];
    const InputPosition *position = &filling->document.position;
    input_fail_in(pipeline->inputs, position->file, position->document);
    input_path(pipeline->inputs, &pipeline->inputs->files[position->file], path);
    if (skips_add(skips, path, "document", position->document) < 0) return -1;
    while (!part->last)
        if (next_part(pipeline, part) < 0) return -1;
    if (filling->is_long) return submit_window(pipeline, true);
    filling->batch->text_bytes -= filling->document.bytes;
    skips->documents--;
    return 0;
}

static void show_progress(const Pipeline *pipeline) {
    Progress *progress = pipeline->options->progress;
    progress->counts[0].count = pipeline->documents, progress->counts[1].count = pipeline->tokens.delivered;
    progress_update(progress, source_bytes_read(pipeline->source));
}

static int add_document(Pipeline *pipeline, Part *part) {
    Filling *filling = &pipeline->filling;
    bool is_bad = false;
    filling->is_long = false;
    filling->unchecked.size = 0, filling->checked_bytes = 0;
    InputPosition position = {.file = part->file,
                              .document = part->document,
                              .record = part->record,
                              .place = part->place,
                              .preceding = part->preceding};
    filling->kept.size = 0;
    buffer_add(&filling->kept, part->kept.data, part->kept.size);
    filling->document = (BatchDocument){.position = position, .member_record = part->member_record};
    if (part->member) buffer_add(&filling->kept, part->member, filling->document.member = strlen(part->member));
    for (;;) {
        filling->document.replaced += part->replaced;
        if (add_part(pipeline, part, &is_bad) < 0) return is_bad ? skip_document(pipeline, part) : -1;
        show_progress(pipeline);
        if (part->last) break;
        if (next_part(pipeline, part) < 0) return -1;
    }
    if (filling->is_long) return submit_window(pipeline, true);
    const TextBatch *batch = filling->batch;
    add_filled(filling);
    bool is_full = batch->count == BATCH_DOCUMENTS || batch->text_bytes >= BATCH_BYTES_FULL;
    return is_full ? submit_batch(pipeline) : 0;
}

// 1 when the documents read so far reach max_tokens. While the batches in flight may reach it, they are delivered
// before the next document is read, so nothing after the last document is read.
static int check_full(Pipeline *pipeline) {
    const TokenCount *tokens = &pipeline->tokens;
    const TextBatch *batch = pipeline->filling.batch;
    uint64_t max = pipeline->options->max_tokens;
    if (!max) return 0;
    uint64_t filled = encoder_ids_max(batch->text_bytes) + batch->count;
    if (tokens->delivered + tokens->in_flight + filled < max) return 0;
    if (!resume_is_past(&pipeline->resume, tokens->last)) return 0;
    int status = submit_batch(pipeline);
    while (status == 0) status = deliver_batch(pipeline);
    return status < 0 ? -1 : tokens->delivered >= max;
}

static int pipeline_open(Pipeline *pipeline, Dataset *dataset) {
    const PipelineOptions *options = pipeline->options;
    const ShardSinkOptions *shards = &options->shards;
    uint64_t *tokens = &pipeline->tokens.delivered;
    resume_init(&pipeline->resume, shards->resume);
    pipeline->checks = (vocab_is_characters(options->text.vocab) || options->text.invalid == INVALID_FAIL) &&
                       !options->text.turns && options->skips && skips_any_allowed(options->skips);
    pipeline->sink = shard_sink_open(shards, pipeline->inputs, dataset);
    if (!pipeline->sink) return -1;
    for (int split = 0; split < SPLIT_COUNT; split++) *tokens += dataset->tokens[split];
    if (options->base &&
        append_last(pipeline->sink, dataset, options->base, pipeline->inputs, shards->shard_tokens, tokens) < 0)
        return -1;
    if (resume_add_pending(&pipeline->resume, shards, pipeline->sink, tokens) < 0) return -1;
    pipeline->batches = text_batches_open(&options->text, shards->threads, pipeline->inputs, &pipeline->resume);
    return pipeline->batches ? next_batch(pipeline) : -1;
}

int pipeline_run(const PipelineOptions *options, const Inputs *inputs, Source *source, Dataset *dataset,
                 PipelineResult *result) {
    Pipeline pipeline = {.options = options, .inputs = inputs, .source = source, .result = result};
    Part part;
    *result = (PipelineResult){0};
    int status = pipeline_open(&pipeline, dataset);
    while (status == 0) {
        status = check_full(&pipeline);
        result->is_full = status > 0;
        if (status == 0) status = source_next(source, &part);
        if (status <= 0 || result->is_full) break;
        pipeline.tokens.last = (InputPosition){.file = part.file, .document = part.document};
        status = add_document(&pipeline, &part);
    }
    if (result->is_full) status = source_check(source);
    if (status >= 0) status = submit_batch(&pipeline);
    while (status == 0) status = deliver_batch(&pipeline);
    if (status > 0) status = shard_sink_finish(pipeline.sink);

    text_batches_close(pipeline.batches);
    shard_sink_close(pipeline.sink);
    buffer_close(&pipeline.filling.unchecked);
    buffer_close(&pipeline.filling.kept);
    return status;
}
