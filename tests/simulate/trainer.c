// A simulated trainer: requests batches as trainers do, and checks each id, twice: when the batch arrives and when it
// is given back, as the device may read it until then.
#include "loader/client/batch_stream.h"
#include "loader/client/feed_internal.h"
#include "loader/server/server_internal.h"
#include "tests/simulate/scenario.h"
#include <stdlib.h>
#include <string.h>

enum { LENT_MAX = 3, MODES = 7 };

typedef struct {
    FeedBatch batch;
    FeedRequest request;
    LawDataset dataset;
} Lent;

typedef struct {
    Trainer *trainer;
    Feed *feed;
    LawDataset dataset; // that the trainer knows
    FeedRequest asked[WIRE_WINDOW_MAX];
    unsigned asked_count, lent_count;
    bool settled; // it has received a batch, or FEED_CHANGED
    Lent lent[LENT_MAX];
    BatchSource source;
    BatchStream stream;
} Run;

static const uint8_t modes[MODES] = {SAMPLING_EPOCH,    SAMPLING_SHIFTED,    SAMPLING_DOCUMENTS, SAMPLING_CROP,
                                     SAMPLING_PERMUTED, SAMPLING_SEQUENTIAL, SAMPLING_REST};

// --- the dataset

static const LawSource *source_named(const char *name, const uint8_t fingerprint[32]) {
    for (int i = 0; i < BASES; i++)
        if (fingerprint ? !memcmp(sim_world.bases[i].fingerprint, fingerprint, 32)
                        : !strcmp(sim_world.bases[i].name, name))
            return &sim_world.bases[i];
    return NULL;
}

// Whether the entry is one that the operator asked for.
static bool was_asked(const LawDataset *dataset, unsigned entry) {
    for (unsigned i = 0; i < sim_world.change_count; i++) {
        const Change *change = &sim_world.changes[i];
        uint32_t weights[LAW_SOURCES];
        if (!change->reweight || change->outcome == REFUSED ||
            (change->from && change->from != dataset->entries[entry].from))
            continue;
        law_scale(change->weights, dataset->source_count, weights);
        if (!memcmp(weights, dataset->entries[entry].weights, dataset->source_count * sizeof *weights)) return true;
    }
    return false;
}

static bool is_spec(const LawDataset *dataset, const Spec *spec) {
    uint32_t weights[LAW_SOURCES] = {65536};
    if (spec->count != (int)dataset->source_count) return false;
    for (int i = 0; i < spec->count; i++)
        if (dataset->sources[i] != &sim_world.bases[spec->bases[i]] && spec != &specs[SPEC_LINK]) return false;
    if (spec->count > 1) law_scale(spec->weights, dataset->source_count, weights);
    return !memcmp(weights, dataset->entries[0].weights, dataset->source_count * sizeof *weights);
}

// The number of the specification that the dataset comes from; -1: of none that may be served.
static int spec_of(const LawDataset *dataset) {
    for (unsigned i = 0; i < sim_world.loader_count; i++)
        if (is_spec(dataset, &specs[sim_world.loaders[i].spec])) return sim_world.loaders[i].spec;
    for (unsigned i = 0; i < sim_world.change_count; i++)
        if (!sim_world.changes[i].reweight && sim_world.changes[i].outcome != REFUSED &&
            sim_world.changes[i].spec >= 0 && is_spec(dataset, &specs[sim_world.changes[i].spec]))
            return sim_world.changes[i].spec;
    return -1;
}

int describe_dataset(const Feed *feed, LawDataset *dataset) {
    const FeedDataset *told = feed_dataset(feed);
    uint8_t fingerprint[32];
    *dataset = (LawDataset){.source_count = told->source_count, .entry_count = feed->weight_count};
    if (told->source_count > LAW_SOURCES || feed->weight_count > LAW_ENTRIES) sim_fail("an unknown dataset");
    for (unsigned i = 0; i < told->source_count; i++) {
        dataset->sources[i] = source_named(told->sources[i].name, told->source_count == 1 ? told->fingerprint : NULL);
        if (!dataset->sources[i] || memcmp(dataset->sources[i]->tokens, told->sources[i].tokens, 16))
            sim_fail("the loader describes source %u wrongly", i);
    }
    for (unsigned k = 0; k < feed->weight_count; k++) {
        dataset->entries[k].from = feed->weights[k].from;
        memcpy(dataset->entries[k].weights, feed->weights[k].weights, sizeof dataset->entries[k].weights);
        if (k && !was_asked(dataset, k)) sim_fail("weights that nobody asked for, or that were refused");
        law_fingerprint(dataset, k + 1, fingerprint);
        if (memcmp(fingerprint, feed_fingerprint(feed, dataset->entries[k].from), 32))
            sim_fail("the fingerprint is not that of the sources and weights");
    }
    if (memcmp(fingerprint, told->fingerprint, 32)) sim_fail("the fingerprint is not that of the last weights");
    const int spec = spec_of(dataset);
    if (spec < 0) sim_fail("a dataset that nobody asked for, or that was refused");
    law_prepare(dataset);
    return spec;
}

// FEED_CHANGED, or a new connection of a trainer that has used `before`.
static void learn_dataset(Run *run, bool again) {
    const LawDataset before = run->dataset;
    uint8_t old[32];
    describe_dataset(run->feed, &run->dataset);
    if (again) law_fingerprint(&before, before.entry_count, old);
    const uint64_t same = again ? feed_same_samples(run->feed, old) : 0;
    sim_event("dataset", get_u32(feed_dataset(run->feed)->fingerprint), same);
    if (!again) return;
    if (sim_world.differ) sim_fail("another loader's dataset replaces that of the trainer");
    const uint64_t law = law_same_samples(&before, &run->dataset);
    if (same != law)
        sim_fail("%llx samples are said to be the same, %llx are", (unsigned long long)same, (unsigned long long)law);
    run->settled = true;
}

// --- requests

// The end of the request's samples, if it is one of training.
static void raise_to(uint64_t *highest, const FeedRequest *request) {
    const uint64_t end = request->first_sample + request->rows;
    if (!request->split && !request->source && !sampling_ends(request->mode) && end > *highest) *highest = end;
}

static FeedRequest some_request(Run *run) {
    const Trainer *trainer = run->trainer;
    FeedRequest request = {.seed = trainer->seed, .mode = (uint8_t)trainer->mode, .rows = trainer->rows};
    const uint32_t T = trainer->config.sequence_tokens;
    request.first_sample = run->trainer->next;
    if (sim_chance(run->settled ? 150 : 400)) { // an evaluation, or another place
        request.mode = modes[sim_below(MODES)], request.split = (uint8_t)sim_below(2);
        request.rows = 1 + (uint32_t)sim_below(trainer->rows);
        request.source = sim_chance(500) ? (uint16_t)sim_below(run->dataset.source_count + 1) : 0;
        if (sim_chance(300)) request.sequence_tokens = 1 + (uint32_t)sim_below(T);
        const bool trains = !request.split && !request.source && !sampling_ends(request.mode); // weights come after it
        request.first_sample = sim_below(!trains && sim_chance(300) ? 1ull << 40 : 400);
        if (request.mode == SAMPLING_REST) request.first_sample = sim_below(2);
    } else if (sim_chance(100)) { // about where weights change
        const uint64_t from = run->dataset.entries[sim_below(run->dataset.entry_count)].from;
        request.first_sample = from + sim_below(40) - (from ? sim_below(20) : 0);
    } else {
        run->trainer->next += trainer->rows + trainer->skip;
    }
    raise_to(&sim_world.highest, &request);
    return request;
}

static void check_batch(const Run *run, const Lent *lent) {
    static uint16_t ids[1 << 20];
    const FeedRequest *asked = &lent->request;
    const FeedBatch *batch = &lent->batch;
    const uint32_t T = asked->sequence_tokens ? asked->sequence_tokens : run->trainer->config.sequence_tokens;
    const LawRequest law = {asked->mode, asked->split, asked->source, asked->seed, T};
    const uint64_t samples = law_samples(&lent->dataset, &law);
    const uint64_t left = samples > asked->first_sample ? samples - asked->first_sample : 0;
    const uint32_t rows = left < asked->rows ? (uint32_t)left : asked->rows;
    if (batch->first_sample != asked->first_sample || batch->rows != rows)
        sim_fail("%u rows from sample %llu, not %u from %llu", batch->rows, (unsigned long long)batch->first_sample,
                 rows, (unsigned long long)asked->first_sample);
    if (rows && batch->epoch != law_epoch(&lent->dataset, &law, asked->first_sample)) sim_fail("a wrong epoch");
    for (uint32_t row = 0; row < rows; row++) {
        law_row(&lent->dataset, &law, asked->first_sample + row, ids);
        if (memcmp(ids, (const uint16_t *)batch->ids + (size_t)row * (T + 1), (T + 1) * sizeof *ids))
            sim_fail("wrong ids in row %u of %u, sample %llu, mode %u, split %u, source %u, T %u", row, rows,
                     (unsigned long long)asked->first_sample, asked->mode, asked->split, asked->source, T);
    }
}

static void give_back(Run *run) {
    check_batch(run, &run->lent[0]);
    feed_release(run->feed, &run->lent[0].batch);
    memmove(run->lent, run->lent + 1, --run->lent_count * sizeof *run->lent);
}

static void on_batch(Run *run, const FeedBatch *batch, const FeedRequest *request) {
    Trainer *trainer = run->trainer;
    Lent *lent = &run->lent[run->lent_count++];
    *lent = (Lent){*batch, *request, run->dataset};
    check_batch(run, lent);
    run->settled = true;
    raise_to(&sim_world.received, request);
    sim_event("batch", request->first_sample, batch->rows ? *(const uint16_t *)batch->ids : 0);
    sim_summary->batches++;
    if (trainer->left && sim_world.healed && !sim_world.operates && sim_now > sim_world.calm_ns) trainer->left--;
    task_sleep(sim_spread(trainer->work_ns));
    if (trainer->computes_until > sim_now) task_sleep(trainer->computes_until - sim_now);
    while (run->lent_count == LENT_MAX || (run->lent_count && sim_chance(600))) give_back(run);
}

// --- a run: from opening to closing, or to an error

static void check_error(const char *where) {
    const bool disk = err_code() == EX_IO && sim_world.errors_allowed;
    if (!disk) sim_fail("%s fails: %s (%d)", where, err_text(), err_code());
    err_clear();
}

static FeedResult next_of_stream(Run *run) {
    FeedBatch batch;
    FeedRequest request = run->stream.form;
    request.first_sample = run->trainer->next;
    FeedResult result = batch_stream_next(&run->stream, &batch);
    const bool received = result == FEED_BATCH;
    if (run->stream.requested > sim_world.highest) sim_world.highest = run->stream.requested;
    if (result == FEED_ERROR) check_error("batch_stream_next");
    if (run->trainer->ranks) result = ranks_step(run->trainer, result, feed_dataset(run->feed));
    if (received && result != FEED_BATCH) feed_release(run->feed, &batch);
    if (result == FEED_BATCH) run->trainer->next += request.rows + run->trainer->skip, on_batch(run, &batch, &request);
    return result;
}

static FeedResult next_of_requests(Run *run) {
    while (feed_capacity(run->feed) && (!run->asked_count || sim_chance(800))) {
        run->asked[run->asked_count] = some_request(run);
        if (feed_request(run->feed, &run->asked[run->asked_count++]) < 0)
            sim_fail("feed_request fails: %s", err_text());
    }
    if (sim_chance(30)) {
        feed_cancel(run->feed);
        run->asked_count = 0;
        return next_of_requests(run);
    }
    if (sim_chance(run->settled ? 50 : 500)) // answers arrive before it waits for them
        task_sleep(sim_spread(run->trainer->work_ns));
    FeedBatch batch;
    const FeedResult result = feed_next(run->feed, &batch);
    if (result == FEED_ERROR) check_error("feed_next");
    if (result == FEED_CHANGED) run->asked_count = 0;
    if (result != FEED_BATCH) return result;
    const FeedRequest request = run->asked[0];
    memmove(run->asked, run->asked + 1, --run->asked_count * sizeof *run->asked);
    on_batch(run, &batch, &request);
    return result;
}

static void run_batches(Run *run) {
    Trainer *trainer = run->trainer;
    const FeedRequest form = {.seed = trainer->seed, .mode = (uint8_t)trainer->mode, .rows = trainer->rows};
    run->source = source_of_feed(run->feed);
    run->stream.turns = (BatchTurns){.skip = trainer->skip};
    if (trainer->ranks)
        run->stream.turns.first = (uint64_t)trainer->number * trainer->rows,
        run->stream.turns.step = trainer->rows + trainer->skip;
    if (trainer->stream)
        batch_stream_start(&run->stream, &run->source, &form, trainer->next - run->stream.turns.first, UINT64_MAX);
    FeedResult result = FEED_BATCH;
    while (result == FEED_BATCH && (trainer->ranks || (trainer->left && !sim_chance(20)))) {
        result = trainer->stream ? next_of_stream(run) : next_of_requests(run);
        if (result != FEED_CHANGED) continue;
        sim_summary->changes++;
        if (trainer->ranks) break; // all open their feeds again
        learn_dataset(run, true);
        result = FEED_BATCH;
    }
    while (run->lent_count) give_back(run);
    const Server *server = sim_world.loaders[0].server;
    if (!trainer->left && !trainer->ranks && server && sim_world.loader_count == 1 &&
        memcmp(server->current->dataset.fingerprint, feed_dataset(run->feed)->fingerprint, 32))
        sim_fail("a trainer does not learn of another dataset");
}

void trainer_main(void *self) {
    Trainer *trainer = self;
    while (trainer->left) {
        Run *run = calloc(1, sizeof *run);
        run->trainer = trainer;
        run->feed = feed_open(&trainer->config);
        if (run->feed) learn_dataset(run, false), task_sleep(sim_spread(trainer->work_ns)); // as it loads a model
        if (!run->feed || feed_attach(run->feed) < 0)
            check_error("feed_open");
        else if (!trainer->ranks || ranks_begin(trainer, feed_dataset(run->feed)))
            run_batches(run);
        const FeedStats stats = run->feed ? feed_stats(run->feed) : (FeedStats){0};
        sim_summary->resends += stats.resends, sim_summary->reconnects += stats.reconnects;
        feed_close(run->feed);
        free(run);
        task_sleep(sim_spread(MS));
    }
    trainer->ended = true;
}
