// The workers: each has an encoder for whole documents, and all share the encoder of the windows.
#include "shardtool/pipeline/text_batch.h"
#include "common/machine/pool.h"
#include "common/sizes.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

_Static_assert((int)BATCH_BYTES >= (int)DOCUMENT_HASH_BYTES, "the first window must hold the hashed bytes");

typedef struct {
    Encoder *encoder; // opened for the first window
    uint64_t submitted;
    pthread_mutex_t lock; // of `done`
    pthread_cond_t changed;
    uint64_t done;
    int split; // of the document whose windows are being tokenized
} Windows;

struct TextBatches {
    const TextOptions *options;
    const Inputs *inputs;
    const Resume *resume;
    uint32_t eot_id;
    TurnIds turns;
    unsigned id_bytes;  // of an id
    uint64_t val_below; // documents with a smaller hash are validation
    Pool *pool;
    TextBatch *batches;
    Encoder **encoders; // one per worker
    unsigned batch_count, encoder_count;
    Windows windows;
};

uint64_t document_hash(Bytes text, uint64_t seed) {
    return XXH3_64bits_withSeed(text.data, size_smaller(text.size, DOCUMENT_HASH_BYTES), seed);
}

static int choose_split(const TextOptions *options, uint64_t val_below, Bytes text) {
    bool val = options->val >= 1 || document_hash(text, options->val_seed) < val_below;
    return val ? SPLIT_VAL : SPLIT_TRAIN;
}

static int fail_in_document(const TextBatches *batches, InputPosition position) {
    return input_fail_in(batches->inputs, position.file, position.document);
}

// encoder_encode_part. Each text of a conversation is encoded apart, so that no token joins two of them.
static ssize_t encode_part(const TextBatches *batches, Encoder *encoder, Bytes text, bool last, uint8_t *ids) {
    size_t count = 0;
    ssize_t got;
    for (size_t i = 0; batches->options->turns && i < text.size; i++) {
        if (!is_turn_byte(text.data[i])) continue;
        const Turn marker = (Turn)(text.data[i] - TURN_BYTE);
        if ((got = encoder_encode_part(encoder, (Bytes){text.data, i}, true, ids + count * batches->id_bytes)) < 0)
            return -1;
        count += (size_t)got;
        id_put(ids, count++, batches->id_bytes, batches->turns.ids[marker]);
        text.data += i + 1, text.size -= i + 1, i = SIZE_MAX;
    }
    got = encoder_encode_part(encoder, text, last, ids + count * batches->id_bytes);
    return got < 0 ? -1 : (ssize_t)count + got;
}

static ssize_t encode_window(TextBatches *batches, TextBatch *batch) {
    Windows *windows = &batches->windows;
    Bytes text = {batch->text, batch->text_bytes};
    BatchDocument *document = &batch->documents[0];
    if (batch->is_first) windows->split = choose_split(batches->options, batches->val_below, text);
    document->split = windows->split, document->ids = 0;
    if (resume_is_finished(batches->resume, document->position, document->split)) return 0;
    size_t ids_max = encoder_ids_max(text.size + encoder_held_bytes(windows->encoder)) + 1;
    buffer_reserve(&batch->ids, ids_max * batches->id_bytes);
    const uint64_t replaced = encoder_replaced(windows->encoder);
    ssize_t got = encode_part(batches, windows->encoder, text, batch->is_last, batch->ids.data);
    document->ids = got < 0 ? 0 : (size_t)got;
    document->replaced += encoder_replaced(windows->encoder) - replaced;
    if (batch->is_last) id_put(batch->ids.data, document->ids++, batches->id_bytes, batches->eot_id);
    return got;
}

// Waits for the window before this one.
static int tokenize_window(TextBatches *batches, TextBatch *batch) {
    Windows *windows = &batches->windows;
    pthread_mutex_lock(&windows->lock);
    while (windows->done != batch->number) pthread_cond_wait(&windows->changed, &windows->lock);
    pthread_mutex_unlock(&windows->lock);

    ssize_t got = encode_window(batches, batch);

    pthread_mutex_lock(&windows->lock);
    windows->done++;
    pthread_cond_broadcast(&windows->changed);
    pthread_mutex_unlock(&windows->lock);
    return got < 0 ? fail_in_document(batches, batch->documents[0].position) : 0;
}

static int tokenize_batch(void *job, unsigned worker) {
    TextBatch *batch = job;
    TextBatches *batches = batch->batches;
    if (batch->is_window) return tokenize_window(batches, batch);

    buffer_reserve(&batch->ids, (encoder_ids_max(batch->text_bytes) + batch->count) * batches->id_bytes);
    uint8_t *ids = batch->ids.data;
    const uint8_t *at = batch->text;
    for (unsigned i = 0; i < batch->count; i++) {
        BatchDocument *document = &batch->documents[i];
        Bytes text = {at, document->bytes};
        document->split = choose_split(batches->options, batches->val_below, text);
        document->ids = 0;
        at += document->bytes;
        if (resume_is_finished(batches->resume, document->position, document->split)) continue;
        Encoder *encoder = batches->encoders[worker];
        const uint64_t replaced = encoder_replaced(encoder);
        ssize_t got = batches->options->turns ? encode_part(batches, encoder, text, true, ids)
                                              : encoder_encode(encoder, text, ids);
        if (got < 0) return fail_in_document(batches, document->position);
        id_put(ids, (size_t)got, batches->id_bytes, batches->eot_id);
        document->ids = (size_t)got + 1;
        document->replaced += encoder_replaced(encoder) - replaced;
        ids += document->ids * batches->id_bytes;
    }
    return 0;
}

static Encoder *open_encoder(const TextOptions *options) {
    Encoder *encoder = encoder_open(options->vocab, options->invalid);
    encoder_set_max_word(encoder, options->max_word);
    return encoder;
}

TextBatches *text_batches_open(const TextOptions *options, unsigned threads, const Inputs *inputs,
                               const Resume *resume) {
    TextBatches *batches = allocate_zeroed(1, sizeof *batches);
    if (!threads) threads = pool_cores();
    batches->options = options, batches->inputs = inputs, batches->resume = resume;
    batches->turns = vocab_turns(options->vocab);
    batches->eot_id = vocab_end_of_text(options->vocab), batches->id_bytes = vocab_id_bytes(options->vocab);
    batches->val_below = options->val >= 1 ? 0 : (uint64_t)ldexp(options->val, 64);
    pthread_mutex_init(&batches->windows.lock, NULL);
    pthread_cond_init(&batches->windows.changed, NULL);

    batches->encoder_count = threads;
    batches->encoders = allocate_zeroed(threads, sizeof(Encoder *));
    for (unsigned i = 0; i < threads; i++) {
        batches->encoders[i] = open_encoder(options);
        encoder_keep_small(batches->encoders[i]); // a thread may use 22 MiB
    }
    batches->batch_count = threads + threads / 2 + 2;
    batches->batches = allocate_zeroed(batches->batch_count, sizeof *batches->batches);
    for (unsigned i = 0; i < batches->batch_count; i++) {
        batches->batches[i].batches = batches;
        batches->batches[i].text = allocate_zeroed(BATCH_BYTES, 1);
        buffer_reserve(&batches->batches[i].kept, 1); // never NULL
        batches->batches[i].documents = allocate_zeroed(BATCH_DOCUMENTS, sizeof(BatchDocument));
    }
    batches->pool =
        pool_open(threads, tokenize_batch, batches->batches, sizeof *batches->batches, batches->batch_count);
    if (batches->pool) return batches;
    text_batches_close(batches);
    return NULL;
}

TextBatch *text_batches_acquire(TextBatches *batches) {
    TextBatch *batch = pool_acquire(batches->pool);
    if (!batch) return NULL;
    batch->text_bytes = batch->count = 0, batch->kept.size = 0;
    batch->is_window = batch->is_first = batch->is_last = false;
    return batch;
}

void text_batches_submit(TextBatches *batches, TextBatch *batch) {
    Windows *windows = &batches->windows;
    if (batch->is_window && !windows->encoder) windows->encoder = open_encoder(batches->options);
    if (batch->is_window) batch->number = windows->submitted++;
    pool_submit(batches->pool);
}

int text_batches_collect(TextBatches *batches, const TextBatch **batch) {
    void *job;
    int status = pool_collect(batches->pool, &job);
    *batch = job;
    return status;
}

void text_batches_close(TextBatches *batches) {
    if (!batches) return;
    pool_close(batches->pool);
    for (unsigned i = 0; i < batches->batch_count; i++) {
        free(batches->batches[i].text);
        free(batches->batches[i].documents);
        buffer_close(&batches->batches[i].ids);
        buffer_close(&batches->batches[i].kept);
    }
    for (unsigned i = 0; i < batches->encoder_count; i++) encoder_close(batches->encoders[i]);
    encoder_close(batches->windows.encoder);
    pthread_cond_destroy(&batches->windows.changed);
    pthread_mutex_destroy(&batches->windows.lock);
    free(batches->batches);
    free(batches->encoders);
    free(batches);
}
