// A pool of workers, and the list of their run files.
#include "shardtool/vocabulary/count_workers.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/pool.h"
#include "common/sizes.h"
#include <pthread.h>
#include <stdlib.h>

enum { READ_BYTES = 256 << 10 }; // of a run file that is merged, see piece_runs_merge

struct CountWorkers {
    const CountWorkersOptions *options;
    const Inputs *inputs;
    PieceCounterOptions counting;
    PieceCounter **counters; // one per worker
    Pool *pool;
    CountBatch *batches;
    unsigned batch_count;
    uint64_t pieces_before, replaced_before; // of the state from which the run continues
    pthread_mutex_t lock;                    // of:
    Buffer runs;                             // PieceRun
    uint64_t next_run;
};

static unsigned batches_for(unsigned threads) { return threads + threads / 2 + 2; }

static uint64_t fixed_memory(unsigned threads) {
    const uint64_t batch = COUNT_BATCH_BYTES + PIECE_PADDING + COUNT_BATCH_TEXTS * sizeof(CountText);
    return batches_for(threads) * batch + (COUNT_RUNS_MAX + 1) * (uint64_t)READ_BYTES;
}

int count_workers_check(const CountWorkersOptions *options) {
    const uint64_t need = fixed_memory(options->threads) + options->threads * (uint64_t)PIECE_COUNTER_MEMORY;
    char need_text[16], memory_text[16];
    if (options->memory >= need) return 0;
    return fail(EX_USAGE, "--memory %s is too small for %u worker%s: at least %s",
                human_bytes(memory_text, (double)options->memory), options->threads, PLURAL(options->threads),
                human_bytes(need_text, (double)need));
}

static uint64_t new_run(CountWorkers *workers) {
    pthread_mutex_lock(&workers->lock);
    const uint64_t number = workers->next_run++;
    pthread_mutex_unlock(&workers->lock);
    return number;
}

static void add_run(CountWorkers *workers, const PieceRun *run) {
    pthread_mutex_lock(&workers->lock);
    buffer_add(&workers->runs, run, sizeof *run);
    pthread_mutex_unlock(&workers->lock);
}

static int flush_table(void *context, PieceCounts *counts) {
    CountWorkers *workers = context;
    PieceRun run;
    if (piece_run_write(counts, workers->options->folder, new_run(workers), &run) < 0) return -1;
    add_run(workers, &run);
    return 0;
}

static int count_batch(void *job, unsigned worker) {
    CountBatch *batch = job;
    CountWorkers *workers = batch->workers;
    if (batch->flushed) return piece_counter_flush(workers->counters[batch->flushed - 1]);
    const uint8_t *at = batch->text.data;
    for (unsigned i = 0; i < batch->count; i++) {
        const CountText *text = &batch->texts[i];
        if (piece_counter_add(workers->counters[worker], (Bytes){at, text->bytes}, text->offset) < 0)
            return input_fail_in(workers->inputs, text->file, text->document);
        at += text->bytes;
    }
    return 0;
}

CountWorkers *count_workers_open(const CountWorkersOptions *options, const Inputs *inputs, const CountState *state) {
    CountWorkers *workers = allocate_zeroed(1, sizeof *workers);
    const unsigned threads = options->threads;
    workers->options = options, workers->inputs = inputs;
    workers->pieces_before = state->pieces, workers->replaced_before = state->replaced;
    workers->next_run = state->next_run;
    buffer_add(&workers->runs, state->runs, state->run_count * sizeof *state->runs);
    pthread_mutex_init(&workers->lock, NULL);
    workers->counting = (PieceCounterOptions){.pattern = options->pattern,
                                              .invalid = options->invalid,
                                              .max_word = options->max_word,
                                              .memory = (options->memory - fixed_memory(threads)) / threads,
                                              .flush = flush_table,
                                              .context = workers};
    workers->counters = allocate_zeroed(threads, sizeof(PieceCounter *));
    for (unsigned i = 0; i < threads; i++) workers->counters[i] = piece_counter_open(&workers->counting);
    workers->batch_count = batches_for(threads);
    workers->batches = allocate_zeroed(workers->batch_count, sizeof *workers->batches);
    for (unsigned i = 0; i < workers->batch_count; i++) {
        workers->batches[i].workers = workers;
        workers->batches[i].texts = allocate_zeroed(COUNT_BATCH_TEXTS, sizeof(CountText));
    }
    workers->pool = pool_open(threads, count_batch, workers->batches, sizeof *workers->batches, workers->batch_count);
    if (workers->pool) return workers;
    count_workers_close(workers);
    return NULL;
}

void count_workers_close(CountWorkers *workers) {
    if (!workers) return;
    pool_close(workers->pool);
    for (unsigned i = 0; i < workers->options->threads; i++) piece_counter_close(workers->counters[i]);
    for (unsigned i = 0; i < workers->batch_count; i++) {
        buffer_close(&workers->batches[i].text);
        free(workers->batches[i].texts);
    }
    pthread_mutex_destroy(&workers->lock);
    buffer_close(&workers->runs);
    free(workers->batches);
    free(workers->counters);
    free(workers);
}

CountBatch *count_workers_batch(CountWorkers *workers) {
    CountBatch *batch;
    void *done;
    while (!(batch = pool_acquire(workers->pool)))
        if (pool_collect(workers->pool, &done) < 0) return NULL;
    batch->count = batch->flushed = 0;
    batch->text.size = 0;
    if (batch->text.capacity > 2 * COUNT_BATCH_BYTES) buffer_close(&batch->text); // it held a very long word
    buffer_reserve(&batch->text, COUNT_BATCH_BYTES + PIECE_PADDING);
    return batch;
}

void count_workers_submit(CountWorkers *workers) { pool_submit(workers->pool); }

static int wait_for_workers(CountWorkers *workers) {
    for (void *done = workers; done;)
        if (pool_collect(workers->pool, &done) < 0) return -1;
    return 0;
}

int count_workers_flush(CountWorkers *workers) {
    if (wait_for_workers(workers) < 0) return -1;
    for (unsigned i = 1; i <= workers->options->threads; i++) {
        CountBatch *batch = count_workers_batch(workers);
        if (!batch) return -1;
        batch->flushed = i;
        count_workers_submit(workers);
    }
    return wait_for_workers(workers);
}

size_t count_workers_runs(CountWorkers *workers) {
    pthread_mutex_lock(&workers->lock);
    const size_t count = workers->runs.size / sizeof(PieceRun);
    pthread_mutex_unlock(&workers->lock);
    return count;
}

static int take_piece(void *writer, Bytes piece, uint64_t count) { return piece_run_add(writer, piece, count); }

// Merges the first runs into a new one. Their files stay: the last line of the journal may list them.
static int merge_first(CountWorkers *workers, size_t count) {
    const char *folder = workers->options->folder;
    Buffer *runs = &workers->runs;
    PieceRunWriter writer;
    PieceRun run;
    int status = piece_run_create(&writer, folder, new_run(workers));
    if (status == 0)
        status = piece_runs_merge(folder, (const PieceRun *)(const void *)runs->data, count, take_piece, &writer);
    if (status == 0) status = piece_run_finish(&writer, &run);
    piece_run_abandon(&writer);
    if (status < 0) return -1;
    runs->size -= count * sizeof run;
    memmove(runs->data, runs->data + count * sizeof run, runs->size);
    add_run(workers, &run);
    return 0;
}

int count_workers_merge(CountWorkers *workers, size_t most) {
    if (wait_for_workers(workers) < 0) return -1;
    for (size_t count; (count = count_workers_runs(workers)) > most;)
        if (merge_first(workers, size_smaller(count, COUNT_RUNS_MAX)) < 0) return -1;
    return 0;
}

void count_workers_state(CountWorkers *workers, CountState *state) {
    state->pieces = workers->pieces_before, state->replaced = workers->replaced_before;
    for (unsigned i = 0; i < workers->options->threads; i++) {
        state->pieces += piece_counter_pieces(workers->counters[i]);
        state->replaced += piece_counter_replaced(workers->counters[i]);
    }
    state->next_run = workers->next_run;
    state->run_count = count_workers_runs(workers);
    if (state->run_count) memcpy(state->runs, workers->runs.data, workers->runs.size);
}
