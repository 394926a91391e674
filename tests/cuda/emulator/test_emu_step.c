// What a training step asks of a device: the same from its second time on, nothing new after the first step, and no
// wait but the one for the step's numbers.
#include "tests/cuda/emulator/device.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include <math.h>
#include <sys/mman.h>

enum { MICROS = 2, ROWS = 2, BLOCK = 16, STEPS = 5 };

// Batches from one pinned slot, as the loader's ring gives them.
typedef struct {
    uint16_t *slot;
    uint32_t out;
    uint64_t next;
} Slot;

static int slot_ask(void *self, const FeedRequest *ask) { return ((Slot *)self)->out += ask != NULL, 0; }
static uint32_t slot_room(void *self) { return 4 - ((Slot *)self)->out; }
static FeedResult slot_next(void *self, FeedBatch *batch) {
    Slot *slot = self;
    *batch = (FeedBatch){.ids = slot->slot, .rows = ROWS, .first_sample = slot->next};
    for (int i = 0; i < ROWS * (BLOCK + 1); i++) slot->slot[i] = (uint16_t)((slot->next * 7 + (uint64_t)i * 3) % 60);
    slot->next += ROWS, slot->out--;
    return FEED_BATCH;
}
static void slot_done(void *self, const FeedBatch *batch) { (void)self, (void)batch; }
static void slot_forget(void *self) { (void)self; }

static int lines_with(const char *text, const char *words) {
    int count = 0;
    for (; (text = strstr(text, words)); text++) count++;
    return count;
}

// Kernels and products, recorded or not; malloc'ed.
static char *operations_of(const char *text) {
    static const char *const others[] = {"graph", "copy", "event", "wait", "stream waits"};
    char *rest = calloc(1, strlen(text) + 1), *end = rest;
    CHECK(rest);
    for (const char *next; *text; text = next) {
        bool other = false;
        next = strchr(text, '\n') + 1;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            other = other || !strncmp(text, others[i], strlen(others[i]));
        if (!other) memcpy(end, text, (size_t)(next - text)), end += next - text;
    }
    return rest;
}

static void check_same(const char *want, const char *got) {
    if (!strcmp(want, got)) return;
    size_t same = 0;
    while (want[same] == got[same]) same++;
    while (same && want[same - 1] != '\n') same--;
    print_error("first: %.200s\nthen: %.200s\n", want + same, got + same);
    test_failed("the same calls", __FILE__, __LINE__);
}

static void run_steps(bool deterministic, Recompute recompute, bool document_mask) {
    TinyShape shape = {.device = DEVICE_CUDA, .type = DTYPE_BF16, .threads = 1, .layers = 2, .heads = 2};
    shape.channels = 32, shape.block = BLOCK, shape.vocab = 60, shape.batch = ROWS, shape.accumulation = MICROS;
    shape.chunk_rows = 24, shape.recompute = recompute, shape.end_of_text = document_mask ? 5 : 0;
    shape.options = deterministic ? "gelu=tanh" : "gelu=tanh,deterministic=False";
    Tiny tiny;
    tiny_open(&tiny, &shape);
    Slot slot = {.slot = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
    tiny.backend->pin(slot.slot, 4096);
    const BatchSource source = {&slot, slot_ask, slot_room, slot_next, slot_done, slot_forget};
    BatchStream stream = {0};
    batch_stream_start(&stream, &source, &(FeedRequest){.rows = ROWS}, 0, STEPS * MICROS * ROWS);

    char *calls[STEPS];
    uint64_t heuristics = 0, timings = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        StepResult result;
        emu_record();
        CHECK(step_gradients(&tiny.network, &tiny.config, &stream, AFTER_STEPS(step)) == FEED_BATCH);
        CHECK(step_apply(&tiny.network, &tiny.config, AFTER_STEPS(step), &result) == 0);
        CHECK(result.finite);
        CHECK(calls[step] = strdup(emu_recorded()));
        CHECK_EQUAL(lines_with(calls[step], "wait for a stream"), 1);
        if (step) CHECK(emu_counts.heuristics == heuristics && emu_counts.timings == timings);
        heuristics = emu_counts.heuristics, timings = emu_counts.timings;
    }
    CHECK(lines_with(calls[0], "product") > 20);
    CHECK(lines_with(calls[1], "graph begins") >= MICROS);
    char *plain = operations_of(calls[0]), *recorded = operations_of(calls[1]);
    if (deterministic) check_same(plain, recorded);
    for (int step = 2; step < STEPS; step++) {
        CHECK_EQUAL(lines_with(calls[step], "product"), 0);
        CHECK(lines_with(calls[step], "graph ") >= MICROS);
        CHECK_EQUAL(lines_with(calls[step], "wait for an event"), 1 + MICROS * (1 + document_mask)); // of uploads alone
        if (step >= 4) check_same(calls[step - 2], calls[step]); // uploads alternate between two places
    }
    for (int step = 0; step < STEPS; step++) free(calls[step]);
    free(plain), free(recorded);
    tiny_close(&tiny);
    munmap(slot.slot, 4096);
    CHECK_EQUAL(emu_counts.live, 0);
}

TEST(cuda_steps_repeat_the_same_calls) {
    run_steps(true, RECOMPUTE_NONE, false);
    run_steps(true, RECOMPUTE_BLOCK, true);
    run_steps(false, RECOMPUTE_GELU, false);
}

// The calls of a step of two micro-batches with four layers; malloc'ed.
static char *calls_of_step(OffloadMode offload, const char *options, const SpikeWindow *spikes) {
    TinyShape shape = {.device = DEVICE_CUDA, .type = DTYPE_BF16, .threads = 1, .layers = 4, .heads = 2};
    shape.channels = 32, shape.block = BLOCK, shape.vocab = 60, shape.batch = ROWS, shape.accumulation = MICROS;
    shape.offload = offload, shape.options = options;
    Tiny tiny;
    tiny_open(&tiny, &shape);
    emu_record();
    tiny_step(&tiny, 0, &(StepPosition){.loss_scale = 1, .spikes = spikes});
    char *calls = strdup(emu_recorded());
    CHECK(calls);
    tiny_close(&tiny);
    return calls;
}

static int copies_from_device(OffloadMode offload) {
    char *calls = calls_of_step(offload, NULL, NULL);
    int copies = 0, kind;
    for (const char *line = calls; (line = strstr(line, "copy ")); line++)
        copies += sscanf(line, "copy %*s %*s %*s %d", &kind) == 1 && kind == 2;
    free(calls);
    return copies;
}

// The gradients of the embeddings lie where the update reads them and are not copied. Those behind the layers'
// gradients lie elsewhere, and are copied out.
TEST(cuda_step_copies_no_gradient_that_is_in_its_place) {
    const int gradients = MICROS * 4 + 1,
              inputs = MICROS * (4 - BACKEND_SLOTS); // of layers and behind them; of the first layer
    CHECK_EQUAL(copies_from_device(OFFLOAD_ALL) - copies_from_device(OFFLOAD_OPTIMIZER), gradients + inputs);
}

TEST(cuda_step_sums_the_norm_once_where_spikes_are_skipped) {
    const SpikeWindow none = {0};
    char *calls = calls_of_step(OFFLOAD_NONE, "spike_action=skip", &none);
    CHECK_EQUAL(lines_with(calls, "square_sums_kernel"), 1);
    CHECK_EQUAL(lines_with(calls, "adamw"), 1);
    free(calls);
}

// A rank of two whose exchanges do nothing.
static int exchanges;
static int no_gather(void *values, size_t bytes, size_t share, char why[COLLECTIVE_WHY]) {
    memset((char *)values + share, 0, bytes - share);
    return (void)why, 0;
}
static int no_reduction(const Collective *ranks, float *values, size_t count, size_t share) {
    return (void)ranks, (void)values, (void)count, (void)share, exchanges++, 0;
}
static int no_sum(const Collective *ranks, float *values, size_t count, size_t share, const OrderedSum *sum) {
    return (void)sum, no_reduction(ranks, values, count, share);
}
static int no_device_gather(const Collective *ranks, void *values, size_t bytes, size_t share) {
    return (void)ranks, (void)values, (void)bytes, (void)share, 0;
}
static void no_finish(void) {}
static void no_place(int place) { (void)place; }
static int no_wait(const Collective *ranks) { return (void)ranks, 0; }
static const CollectiveRow no_row = {.name = "none", .all_gather = no_gather};
static const DeviceCollectiveRow no_device_row = {.name = "none",
                                                  .reduce_scatter = no_reduction,
                                                  .ordered_sum = no_sum,
                                                  .all_gather = no_device_gather,
                                                  .finish = no_finish,
                                                  .mark = no_place,
                                                  .await = no_place,
                                                  .defer = no_finish,
                                                  .wait = no_wait};

// After the warm-up no operation of a micro-batch is launched by itself, also where parameters and gradients are
// exchanged between its parts. in_parts: of the three micro-batches of this rank; reducing: of these.
static void run_rank(const char *options, int in_parts, int reducing) {
    enum { LAYERS = 3, ROUNDS = 3 };
    TinyShape shape = {.device = DEVICE_CUDA, .type = DTYPE_BF16, .threads = 1, .layers = LAYERS, .heads = 2};
    shape.channels = 64, shape.block = BLOCK, shape.vocab = 60, shape.batch = ROWS, shape.accumulation = 2 * ROUNDS;
    shape.world = 2, shape.dropout = 0.1, shape.options = options;
    Tiny tiny;
    tiny_open(&tiny, &shape);
    Collective ranks = {.row = &no_row, .device = &no_device_row, .world = 2};
    tiny.network.collective = &ranks;
    step_warm_up(&tiny.network, &tiny.config);
    for (uint64_t step = 0; step < 2; step++) {
        exchanges = 0;
        emu_record();
        tiny_step(&tiny, step * ROUNDS * ROWS, AFTER_STEPS(step));
        char *calls = strdup(emu_recorded());
        CHECK(calls);
        CHECK_EQUAL(lines_with(calls, "product"), 0);
        CHECK_EQUAL(lines_with(calls, "graph begins"), 0);
        CHECK_EQUAL(lines_with(calls, "graph "), (ROUNDS - in_parts) + in_parts * (2 * LAYERS + 3));
        CHECK_EQUAL(exchanges, reducing * (LAYERS + 2));
        free(calls);
    }
    tiny_close(&tiny);
}

TEST(cuda_replays_micro_batches_whose_gradients_are_exchanged) {
    run_rank("reduce_order=fast", 2, 1);
    run_rank("reduce_order=fixed", 3, 3);
}

// The losses and norms of the CPU in float32; a step without a target that counts leaves all parameters.
TEST(cuda_steps_on_answers_are_those_of_the_cpu) {
    static const TurnIds turns = {true, {1, 2, 3, 4}}, of_no_row = {true, {90, 91, 92, 93}};
    StepResult found[2][STEPS];
    for (int cuda = 0; cuda < 2; cuda++) {
        TinyShape shape = {.device = cuda ? DEVICE_CUDA : DEVICE_CPU, .type = cuda ? DTYPE_BF16 : DTYPE_FP32};
        shape.threads = 1, shape.layers = 2, shape.heads = 2, shape.channels = 32, shape.block = BLOCK;
        shape.vocab = 29, shape.batch = ROWS, shape.accumulation = MICROS, shape.chunk_rows = 24;
        shape.options = "loss_tokens=answers,z_loss=1e-3";
        Tiny tiny;
        tiny_open(&tiny, &shape);
        tiny.model.shape.turns = turns, tiny.model.shape.end_of_text = 5;
        for (uint64_t step = 0; step < STEPS; step++)
            found[cuda][step] = tiny_step(&tiny, step * ROWS * MICROS, AFTER_STEPS(step));
        float *before = tiny_read(&tiny, tiny.plan.params);
        tiny.model.shape.turns = of_no_row, tiny.model.shape.end_of_text = 94;
        const StepResult none = tiny_step(&tiny, 0, AFTER_STEPS(STEPS));
        float *after = tiny_read(&tiny, tiny.plan.params);
        CHECK(!none.targets && none.finite && !none.applied);
        CHECK(!memcmp(before, after, tiny.model.elements * sizeof *before));
        free(before), free(after);
        tiny_close(&tiny);
    }
    for (int step = 0; step < STEPS; step++) {
        const StepResult *want = &found[0][step], *got = &found[1][step];
        CHECK(want->targets && want->targets < MICROS * ROWS * BLOCK);
        CHECK_EQUAL(got->targets, want->targets);
        CHECK(fabs(got->loss - want->loss) < 0.004 * want->loss);
        CHECK(fabs((double)got->norm - (double)want->norm) < 0.02 * (double)want->norm);
    }
}
