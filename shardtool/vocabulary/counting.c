// Fills batches with the text of documents, and writes the journal between documents.
#include "shardtool/vocabulary/counting.h"
#include "common/err.h"
#include "common/sizes.h"
#include "common/utf8.h"
#include "shardtool/vocabulary/count_sample.h"
#include "tokenizer/merge/pretokenize.h"

enum { FULL_BYTES = 256 << 10 }; // with as much text of whole documents a batch is submitted
#define SAVE_BYTES (4ull << 30)  // of text at most between two lines of the journal

typedef struct {
    const CountingOptions *options;
    const Inputs *inputs;
    Source *source;
    CountState *state;
    CountWorkers *workers;
    CountBatch *batch;  // being filled
    CountText document; // that is being added; its offset: of its first byte in the batch
    size_t begin;       // of that byte in the batch
    size_t limit;       // of the text in the batch
    size_t searched;    // up to here, the open document cannot be cut
    enum { UNKNOWN, COUNTED, LEFT_OUT } choice;
    uint64_t unsaved_bytes;
} Counting;

static int next_batch(Counting *counting) {
    counting->batch = count_workers_batch(counting->workers);
    counting->begin = counting->searched = 0;
    counting->limit = COUNT_BATCH_BYTES;
    return counting->batch ? 0 : -1;
}

// Submits the texts in the batch. The open document moves to the next one.
static int submit_batch(Counting *counting) {
    const CountBatch *batch = counting->batch;
    if (!batch->count) return 0;
    const Bytes rest = {batch->text.data + counting->begin, batch->text.size - counting->begin};
    count_workers_submit(counting->workers);
    if (next_batch(counting) < 0) return -1;
    buffer_add(&counting->batch->text, rest.data, rest.size); // the old batch keeps its text until it is reused
    return 0;
}

// Adds the first bytes of the open document that are in the batch as a text.
static void add_text(Counting *counting, size_t bytes) {
    CountBatch *batch = counting->batch;
    counting->document.bytes = bytes;
    batch->texts[batch->count++] = counting->document;
    counting->document.offset += bytes;
    counting->begin += bytes;
    counting->unsaved_bytes += bytes, counting->state->bytes += bytes;
}

// Whether the open document is in the sample, before the first of its texts is added.
static void choose(Counting *counting) {
    const Buffer *text = &counting->batch->text;
    if (counting->choice != UNKNOWN) return;
    const Bytes first = {text->data + counting->begin, text->size - counting->begin};
    counting->choice = sample_has(counting->state->sample_from, first) ? COUNTED : LEFT_OUT;
}

static int fail_long_word(const Counting *counting) {
    const CountText *document = &counting->document;
    fail(EX_DATA, "a word of more than %llu bytes at byte %llu (--max-word)",
         (unsigned long long)counting->options->workers.max_word, (unsigned long long)document->offset);
    return input_fail_in(counting->inputs, document->file, document->document);
}

// The batch is full within a document. The documents before it are submitted, or its text up to the last place where it
// can be cut; without such a place, the batch grows.
static int make_room(Counting *counting) {
    if (counting->batch->count) return submit_batch(counting);
    Buffer *text = &counting->batch->text;
    choose(counting);
    if (counting->choice == LEFT_OUT) return text->size = 0, 0;
    const size_t cut =
        pretokenize_cut((Bytes){text->data, text->size}, counting->searched, counting->options->workers.pattern);
    if (cut) {
        add_text(counting, cut);
        return submit_batch(counting);
    }
    if (text->size > counting->options->workers.max_word) return fail_long_word(counting);
    counting->searched = text->size - UTF8_BYTES_MAX;
    counting->limit *= 2;
    buffer_reserve(text, counting->limit - text->size + PIECE_PADDING);
    return 0;
}

static int add_part(Counting *counting, Bytes part) {
    while (part.size && counting->choice != LEFT_OUT) {
        Buffer *text = &counting->batch->text;
        const size_t take = size_smaller(counting->limit - text->size, part.size);
        if (!take && make_room(counting) < 0) return -1;
        if (!take) continue;
        buffer_add(text, part.data, take);
        part.data += take, part.size -= take;
    }
    return 0;
}

static int add_document(Counting *counting, Part *part) {
    int status = 1;
    counting->document = (CountText){.file = part->file, .document = part->document};
    counting->choice = UNKNOWN;
    for (;;) {
        if (add_part(counting, part->text) < 0) return -1;
        progress_update(counting->options->progress, source_bytes_read(counting->source));
        if (part->last) break;
        status = source_next(counting->source, part);
        if (status <= 0) return status < 0 ? -1 : fail(EX_BUG, "the source ended within a document");
    }
    choose(counting);
    Buffer *text = &counting->batch->text;
    if (counting->choice == LEFT_OUT) return text->size = counting->begin, 0;
    add_text(counting, text->size - counting->begin);
    counting->state->documents++;
    counting->options->progress->counts[0].count = counting->state->documents;
    return counting->batch->count == COUNT_BATCH_TEXTS || text->size >= FULL_BYTES ? submit_batch(counting) : 0;
}

// Brings everything that was read to run files, and describes them in the journal.
static int save(Counting *counting) {
    CountState *state = counting->state;
    if (submit_batch(counting) < 0 || count_workers_flush(counting->workers) < 0 ||
        count_workers_merge(counting->workers, state->complete ? 1 : COUNT_RUNS_MAX) < 0)
        return -1;
    counting->unsaved_bytes = 0;
    count_workers_state(counting->workers, state);
    // The journal does not list the inputs that were skipped, so a run that continues reads them again.
    if (counting->options->skips->count && !state->complete) return next_batch(counting);
    if (count_journal_add(counting->options->journal, state) < 0) return -1;
    return next_batch(counting);
}

static int save_sometimes(Counting *counting) {
    const size_t runs = count_workers_runs(counting->workers);
    return counting->unsaved_bytes >= SAVE_BYTES || runs > COUNT_RUNS_MAX ? save(counting) : 0;
}

static int read_documents(Counting *counting) {
    const InputPosition start = counting->state->position;
    Part part;
    int status;
    while ((status = source_next(counting->source, &part)) > 0) {
        const InputPosition next = {
            .file = part.file, .document = part.document + 1, .place = part.place, .preceding = part.preceding + 1};
        if (position_is_before((InputPosition){.file = part.file, .document = part.document}, start)) continue;
        if (add_document(counting, &part) < 0) return -1;
        counting->state->position = next;
        if (save_sometimes(counting) < 0) return -1;
    }
    return status;
}

int counting_run(const CountingOptions *options, const Inputs *inputs, Source *source, CountState *state) {
    Counting counting = {.options = options, .inputs = inputs, .source = source, .state = state};
    counting.workers = count_workers_open(&options->workers, inputs, state);
    int status = counting.workers ? next_batch(&counting) : -1;
    if (status == 0) status = read_documents(&counting);
    if (status == 0) status = skips_finish(options->skips);
    if (status == 0) {
        state->complete = true;
        status = save(&counting);
    }
    count_workers_close(counting.workers);
    return status;
}
