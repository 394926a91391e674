// A tiny model, and a source of batches without a loader, for the trainer's tests.
#include "tests/unit/trainer/fixture_trainer.h"
#include "common/rng.h"
#include "trainer/model/evaluate.h"
#include "trainer/model/sample.h"

const TinyShape tiny_shape = {TINY_MEMBERS};

static void set_options(Config *config, const char *options) {
    char text[256];
    snprintf(text, sizeof text, "%s", options);
    for (char *save, *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        char *value = strchr(word, '=');
        int key = 0;
        CHECK(value);
        *value++ = 0;
        while (key < KEY_COUNT && strcmp(config_key(key), word)) key++;
        CHECK(key < KEY_COUNT && config_parse(config, key, value));
    }
}

uint16_t test_row_id(int split, uint64_t sample, int t, int T, int vocab) {
    return (uint16_t)(rng_u64(99, (uint64_t)split, sample * (uint64_t)T + (uint64_t)t) % (uint64_t)vocab);
}

static int source_request(void *self, const FeedRequest *request) {
    TestSource *source = self;
    CHECK(source->count < source->window);
    source->requests[source->count++] = *request;
    if (source->count > source->most) source->most = source->count;
    return 0;
}

static uint32_t source_capacity(void *self) {
    TestSource *source = self;
    return source->window - source->count;
}

static FeedResult source_next(void *self, FeedBatch *batch) {
    TestSource *source = self;
    if (source->event != FEED_BATCH && source->served == source->event_at) {
        FeedResult event = source->event;
        source->event = FEED_BATCH;
        if (event == FEED_CHANGED) source->count = 0;
        return event;
    }
    CHECK(source->count);
    FeedRequest request = source->requests[0];
    memmove(source->requests, source->requests + 1, --source->count * sizeof request);
    source->served++;
    free(source->ids);
    source->ids = malloc(request.rows * (size_t)(source->T + 1) * sizeof *source->ids);
    CHECK(source->ids);
    for (uint32_t row = 0; row < request.rows; row++)
        for (int t = 0; t <= source->T; t++)
            source->ids[row * (uint32_t)(source->T + 1) + (uint32_t)t] =
                test_row_id(request.split, request.first_sample + row, t, source->T, source->vocab);
    *batch = (FeedBatch){.ids = source->ids, .rows = request.rows, .first_sample = request.first_sample};
    return FEED_BATCH;
}

// The loader may overwrite the slot from here on: a late read must show.
static void source_done(void *self, const FeedBatch *batch) {
    TestSource *source = self;
    memset(source->ids, 0, batch->rows * (size_t)(source->T + 1) * sizeof *source->ids);
}

static void source_cancel(void *self) {
    TestSource *source = self;
    source->count = 0;
}

void tiny_open(Tiny *tiny, const TinyShape *shape) {
    *tiny = (Tiny){.config = default_config()};
    Config *config = &tiny->config;
    config->n_layer = shape->layers, config->n_head = shape->heads, config->n_embd = shape->channels;
    config->block_size = shape->block, config->batch_size.value = shape->batch;
    config->gradient_accumulation_steps = shape->accumulation, config->eval_batch_size = shape->eval_batch;
    config->loss_chunk_rows = shape->chunk_rows ? shape->chunk_rows : 1024;
    config->bias = shape->bias, config->recompute = shape->recompute,
    config->recompute_layers = shape->recompute_layers;
    config->offload = shape->offload, config->world = shape->world;
    config->dropout = shape->dropout, config->document_mask = shape->end_of_text;
    config->learning_rate = 1e-3, config->min_lr = 1e-4, config->warmup_iters = 2, config->lr_decay_iters = 10;
    if (shape->options) set_options(config, shape->options);
    char why[256];
    const BackendChoice choice = {.device = shape->device ? shape->device : DEVICE_CPU,
                                  .dtype = shape->type,
                                  .threads = shape->threads ? shape->threads : 2,
                                  .deterministic = config->deterministic,
                                  .optimizer_state = shape->optimizer_state,
                                  .cache_dir = shape->cache_dir};
    tiny->backend = backend_open(&choice, why);
    CHECK(tiny->backend);
    ModelShape model = model_shape(config);
    model.vocab = shape->vocab, model.padded_vocab = padded_vocab(shape->vocab), model.end_of_text = shape->end_of_text;
    model_open(&tiny->model, &model);
    memory_plan_init(&tiny->plan, config, &tiny->model, tiny->backend,
                     shape->optimizer ? shape->optimizer : optimizer_of(OPTIMIZER_ADAMW));
    CHECK(network_open(&tiny->network, tiny->backend, &tiny->model, &tiny->plan) == 0);
    CHECK(network_init(&tiny->network, 1337) == 0);
    tiny->memory = (TestSource){.T = shape->block, .vocab = shape->vocab, .window = 4};
    tiny->source =
        (BatchSource){&tiny->memory, source_request, source_capacity, source_next, source_done, source_cancel};
    if (shape->warm_up) {
        sample_warm_up(&tiny->network, tiny->network.staging), evaluate_warm_up(&tiny->network, 5);
        step_warm_up(&tiny->network, config);
    }
}

void tiny_close(Tiny *tiny) {
    free(tiny->memory.ids);
    network_close(&tiny->network);
    model_close(&tiny->model);
    if (tiny->backend) tiny->backend->close();
}

void tiny_start(Tiny *tiny, uint64_t sample) {
    const FeedRequest form = {
        .split = SPLIT_TRAIN, .mode = SAMPLING_EPOCH, .rows = (uint32_t)tiny->config.batch_size.value, .seed = 1};
    batch_stream_start(&tiny->stream, &tiny->source, &form, sample, UINT64_MAX);
}

StepResult tiny_step(Tiny *tiny, uint64_t sample, const StepPosition *position) {
    StepResult result;
    tiny_start(tiny, sample);
    CHECK(step_gradients(&tiny->network, &tiny->config, &tiny->stream, position) == FEED_BATCH);
    CHECK(step_apply(&tiny->network, &tiny->config, position, &result) == 0);
    return result;
}

void tiny_train(Tiny *tiny, int first, int end, double losses[]) {
    const int samples = (int)(tiny->config.batch_size.value * tiny->config.gradient_accumulation_steps);
    for (int step = first; step < end; step++) {
        const StepResult result = tiny_step(tiny, (uint64_t)(step * samples), AFTER_STEPS(step));
        CHECK(result.finite);
        if (losses) losses[step] = result.loss;
    }
    batch_stream_cancel(&tiny->stream);
}

float *tiny_read(const Tiny *tiny, size_t range) {
    float *values = malloc(tiny->model.elements * sizeof *values);
    CHECK(values);
    tiny->backend->download(values, network_at(&tiny->network, range), tiny->model.elements * sizeof *values);
    return values;
}
