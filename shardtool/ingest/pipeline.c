// Documents to ids: gathers batches, has them tokenized in workers, and hands the ids on in the order of the documents.
//
// A document that does not fit a batch goes through in windows, one a batch. They are tokenized one after the other by
// an encoder of their own, in whichever worker holds the next one.
#include "shardtool/ingest/pipeline.h"
#include "common/err.h"
#include "shardtool/ingest/shard_sink.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

enum {
    BATCH_BYTES = 1 << 20,
    BATCH_DOCUMENTS = 1 << 14,
    SPLIT_HASH_BYTES = 65536 // of a document decide where it goes; a first window holds as many
};
_Static_assert(BATCH_BYTES >= SPLIT_HASH_BYTES, "the first window decides");

typedef struct Pack Pack;

typedef struct {
    InputPosition place;
    size_t bytes; // of text in this batch
    size_t ids;
    bool val;
} BatchDocument;

typedef struct {
    Pack *pack;
    uint8_t *text;
    size_t text_bytes;
    BatchDocument *documents;
    unsigned count;
    Buffer ids; // u16, an end-of-text after each document

    bool window, first, last; // one window of a long document; its first, its last
    uint64_t turn;            // of all windows
} Batch;

struct Pack {
    const PipelineOptions *options;
    const Inputs *inputs;
    Pool *pool;
    Batch *batches;
    unsigned batch_count;
    Encoder **encoders; // one a worker
    unsigned encoder_count;
    ShardSink *writer;
    uint64_t val_below; // hashes below it mean validation
    bool val_all;

    Batch *batch;           // the one being gathered
    BatchDocument document; // the one being added to it

    // Long documents: windows take turns with one encoder.
    Encoder *long_encoder;
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t turns_given, turns_taken;
    // Of the one whose windows come back: which split its first window chose, its bytes so far.
    bool long_val;
    uint64_t long_bytes;
};

static bool goes_to_val(const Pack *pack, Bytes text) {
    size_t size = text.size < SPLIT_HASH_BYTES ? text.size : SPLIT_HASH_BYTES;
    return pack->val_all || XXH3_64bits_withSeed(text.data, size, pack->options->val_seed) < pack->val_below;
}

static uint16_t *ids_of(const Batch *batch) { return (uint16_t *)(void *)batch->ids.data; }

static int fail_document(const Pack *pack, InputPosition place) {
    return fail_in("'%s' document %llu", pack->inputs->files[place.file].path, (unsigned long long)place.document);
}

static int tokenize_window(Pack *pack, Batch *batch) {
    pthread_mutex_lock(&pack->lock);
    while (pack->turns_taken != batch->turn) pthread_cond_wait(&pack->turned, &pack->lock);
    pthread_mutex_unlock(&pack->lock);

    Bytes text = {batch->text, batch->text_bytes};
    BatchDocument *document = &batch->documents[0];
    if (batch->first) document->val = goes_to_val(pack, text);
    buffer_reserve(&batch->ids,
                   (encoder_ids_max(text.size + encoder_held_bytes(pack->long_encoder)) + 1) * sizeof(uint16_t));
    ssize_t got = encoder_encode_part(pack->long_encoder, text, batch->last, ids_of(batch));
    document->ids = got < 0 ? 0 : (size_t)got;
    if (batch->last) ids_of(batch)[document->ids++] = TOKEN_END_OF_TEXT;

    pthread_mutex_lock(&pack->lock);
    pack->turns_taken++;
    pthread_cond_broadcast(&pack->turned);
    pthread_mutex_unlock(&pack->lock);
    return got < 0 ? fail_document(pack, document->place) : 0;
}

static int tokenize_batch(void *job, unsigned worker) {
    Batch *batch = job;
    Pack *pack = batch->pack;
    if (batch->window) return tokenize_window(pack, batch);

    buffer_reserve(&batch->ids, (encoder_ids_max(batch->text_bytes) + batch->count) * sizeof(uint16_t));
    uint16_t *ids = ids_of(batch);
    const uint8_t *at = batch->text;
    for (unsigned i = 0; i < batch->count; i++) {
        BatchDocument *document = &batch->documents[i];
        Bytes text = {at, document->bytes};
        document->val = goes_to_val(pack, text);
        ssize_t got = encoder_encode(pack->encoders[worker], text, ids);
        if (got < 0) return fail_document(pack, document->place);
        ids[got] = TOKEN_END_OF_TEXT;
        document->ids = (size_t)got + 1;
        ids += document->ids, at += document->bytes;
    }
    return 0;
}

// Takes the oldest batch from the workers and passes its ids on. 1 when there is none.
static int place_batch(Pack *pack) {
    void *done;
    if (pool_collect(pack->pool, &done) < 0) return -1;
    if (!done) return 1;
    const Batch *batch = done;
    const uint16_t *ids = ids_of(batch);
    for (unsigned i = 0; i < batch->count; i++) {
        const BatchDocument *document = &batch->documents[i];
        uint64_t bytes = document->bytes;
        bool val = document->val;
        if (batch->window) {
            if (batch->first) pack->long_val = val, pack->long_bytes = 0;
            val = pack->long_val;
            pack->long_bytes += bytes;
            bytes = batch->last ? pack->long_bytes : 0;
        }
        if (shard_sink_add(pack->writer, val ? SPLIT_VAL : SPLIT_TRAIN, ids, document->ids, document->place, bytes) < 0)
            return -1;
        ids += document->ids;
    }
    return 0;
}

static int next_batch(Pack *pack) {
    while (!(pack->batch = pool_acquire(pack->pool)))
        if (place_batch(pack) < 0) return -1;
    Batch *batch = pack->batch;
    batch->pack = pack;
    batch->text_bytes = batch->count = 0;
    batch->window = batch->first = batch->last = false;
    return 0;
}

static int submit_batch(Pack *pack) {
    if (pack->batch->count) {
        pool_submit(pack->pool);
        return next_batch(pack);
    }
    return 0;
}

// Sends what the batch holds of the open document as a window.
static int submit_window(Pack *pack, bool first, bool last) {
    Batch *batch = pack->batch;
    batch->documents[batch->count++] = pack->document;
    batch->window = true, batch->first = first, batch->last = last;
    batch->turn = pack->turns_given++;
    pack->document.bytes = 0;
    return submit_batch(pack);
}

// The batch is full and a document open: what is complete goes off and the open one moves to a batch of its own, or
// becomes one in windows.
static int make_room(Pack *pack, bool *is_long) {
    if (*is_long || pack->batch->count == 0) {
        bool first = !*is_long;
        *is_long = true;
        if (!pack->long_encoder)
            pack->long_encoder =
                encoder_open(pack->options->vocab, pack->options->invalid, pack->options->shared_cache);
        return submit_window(pack, first, false);
    }
    const uint8_t *begun = pack->batch->text + pack->batch->text_bytes - pack->document.bytes;
    if (submit_batch(pack) < 0) return -1; // the text stays where it is: its batch is not filled again before this one
    memcpy(pack->batch->text, begun, pack->document.bytes);
    pack->batch->text_bytes = pack->document.bytes;
    return 0;
}

static int add_document(Pack *pack, Source *source, Part *part) {
    bool is_long = false;
    pack->document = (BatchDocument){
        .place = {part->file, part->document}
    };
    for (;;) {
        Bytes left = part->text;
        while (left.size) {
            size_t room = BATCH_BYTES - pack->batch->text_bytes, take = left.size < room ? left.size : room;
            if (!room) {
                if (make_room(pack, &is_long) < 0) return -1;
                continue;
            }
            memcpy(pack->batch->text + pack->batch->text_bytes, left.data, take);
            pack->batch->text_bytes += take, pack->document.bytes += take;
            left.data += take, left.size -= take;
        }
        progress_update(pack->options->progress, source_bytes_read(source));
        if (part->last) break;
        int status = source_next(source, part);
        if (status <= 0) return status < 0 ? -1 : fail(EX_BUG, "a document without an end");
    }
    if (is_long) return submit_window(pack, false, true);
    pack->batch->documents[pack->batch->count++] = pack->document;
    return pack->batch->count == BATCH_DOCUMENTS ? submit_batch(pack) : 0;
}

static void *zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) die(EX_MEMORY, "no memory for %zu times %zu bytes", count, size);
    return memory;
}

static int pack_open(Pack *pack, Dataset *dataset) {
    const PipelineOptions *options = pack->options;
    unsigned threads = options->threads ? options->threads : pool_cores();
    pthread_mutex_init(&pack->lock, NULL);
    pthread_cond_init(&pack->turned, NULL);
    pack->val_all = options->val >= 1;
    pack->val_below = pack->val_all ? 0 : (uint64_t)ldexp(options->val, 64);

    pack->encoder_count = threads;
    pack->encoders = zeroed(threads, sizeof(Encoder *));
    for (unsigned i = 0; i < threads; i++)
        pack->encoders[i] = encoder_open(options->vocab, options->invalid, options->shared_cache);
    pack->batch_count = 2 * threads + 2;
    pack->batches = zeroed(pack->batch_count, sizeof *pack->batches);
    for (unsigned i = 0; i < pack->batch_count; i++) {
        pack->batches[i].text = zeroed(BATCH_BYTES, 1);
        pack->batches[i].documents = zeroed(BATCH_DOCUMENTS, sizeof(BatchDocument));
    }
    pack->writer = shard_sink_open(options, pack->inputs, dataset);
    if (!pack->writer) return -1;
    pack->pool = pool_open(threads, tokenize_batch, pack->batches, sizeof *pack->batches, pack->batch_count);
    return pack->pool ? next_batch(pack) : -1;
}

static void pack_close(Pack *pack) {
    pool_close(pack->pool);
    shard_sink_close(pack->writer);
    for (unsigned i = 0; i < pack->batch_count; i++) {
        free(pack->batches[i].text);
        free(pack->batches[i].documents);
        buffer_close(&pack->batches[i].ids);
    }
    for (unsigned i = 0; i < pack->encoder_count; i++) encoder_close(pack->encoders[i]);
    encoder_close(pack->long_encoder);
    free(pack->batches);
    free(pack->encoders);
    pthread_cond_destroy(&pack->turned);
    pthread_mutex_destroy(&pack->lock);
}

int pipeline_run(const PipelineOptions *options, const Inputs *inputs, Source *source, Dataset *dataset,
                 uint64_t *replaced) {
    Pack pack = {.options = options, .inputs = inputs};
    Part part;
    int status = pack_open(&pack, dataset);
    while (status == 0) {
        status = source_next(source, &part);
        if (status <= 0) break;
        status = add_document(&pack, source, &part);
    }
    if (status == 0) status = submit_batch(&pack);
    while (status == 0) status = place_batch(&pack);
    if (status > 0) status = shard_sink_finish(pack.writer);

    *replaced = 0;
    if (status == 0) {
        for (unsigned i = 0; i < pack.encoder_count; i++) *replaced += encoder_replaced(pack.encoders[i]);
        if (pack.long_encoder) *replaced += encoder_replaced(pack.long_encoder);
    }
    pack_close(&pack);
    return status;
}
