// reduce_order = fixed: the gradients of a step's micro-batches are added one after another, wherever they are kept.
// The same for several processes: tests/cli/trainer/trainer_ranks_order.bats.
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/model/layer_offload.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/plan/plan_check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MICROS = 5 };
static const float scale = 1 / 64.0f;

static TinyShape shape_of(Dtype type, OffloadMode offload, const char *options) {
    return *TINY_SHAPE(.layers = 4, .batch = 2, .accumulation = MICROS, .type = type, .offload = offload,
                       .chunk_rows = 20, .options = options, .threads = 1);
}

static void put_tokens(Tiny *tiny, int micro) {
    const PassLayout *pass = &tiny->plan.train;
    uint16_t ids[1024];
    const int T = tiny->model.shape.block;
    CHECK((size_t)(pass->rows * (T + 1)) <= sizeof ids / sizeof *ids);
    for (int row = 0; row < pass->rows; row++)
        for (int t = 0; t <= T; t++)
            ids[row * (T + 1) + t] =
                test_row_id(SPLIT_TRAIN, (uint64_t)(micro * pass->rows + row), t, T, tiny->model.shape.vocab);
    network_tokens(&tiny->network, pass, ids, pass->rows, T);
}

// The gradients after micro-batches of a step, and its loss so far.
typedef struct {
    float *values;
    size_t count;
    double loss;
} Gradients;

// Micro-batches first .. first + count - 1 of the samples, as the first ones of a step.
static Gradients gradients_of(const TinyShape *shape, int first, int count) {
    Tiny tiny;
    tiny_open(&tiny, shape);
    step_begin(&tiny.network, &tiny.config, AFTER_STEPS(0));
    for (int micro = 0; micro < count; micro++) {
        put_tokens(&tiny, first + micro);
        step_micro_batch(&tiny.network, scale, micro);
    }
    layer_offload_store_kept(&tiny.network);
    const Gradients found = {tiny_read(&tiny, tiny.plan.grads), tiny.model.elements, *network_loss(&tiny.network)};
    tiny_close(&tiny);
    return found;
}

// To eight bits of fraction, by the definition.
static float nearest_bf16(float value) {
    int exponent;
    frexpf(value, &exponent);
    return (float)ldexp(nearbyint(ldexp((double)value, 8 - exponent)), exponent - 8);
}

// Each micro-batch alone, in a step of its own, then rounded and added here.
static Gradients added_one_by_one(const TinyShape *shape, bool rounded) {
    TinyShape alone = *shape;
    alone.accumulation = 1;
    Gradients sums = gradients_of(&alone, 0, 1);
    for (size_t i = 0; i < sums.count && rounded; i++) sums.values[i] = nearest_bf16(sums.values[i]);
    for (int micro = 1; micro < MICROS; micro++) {
        const Gradients more = gradients_of(&alone, micro, 1);
        for (size_t i = 0; i < sums.count; i++)
            sums.values[i] += rounded ? nearest_bf16(more.values[i]) : more.values[i];
        sums.loss += more.loss;
        free(more.values);
    }
    return sums;
}

static bool same_bits(const Gradients *a, const Gradients *b) {
    CHECK_EQUAL(a->count, b->count);
    return !memcmp(a->values, b->values, a->count * sizeof *a->values);
}

TEST(gradients_of_micro_batches_are_added_one_after_another) {
    static const char *const options[][2] = {
        {"reduce_order=fixed", "reduce_order=fast"},
        {"reduce_order=fixed,reduce_dtype=bfloat16", "reduce_order=fixed"},
        {"reduce_order=fixed,tie_embeddings=False,mlp=swiglu,norm=rmsnorm,position=rope",
         "reduce_order=fast,tie_embeddings=False,mlp=swiglu,norm=rmsnorm,position=rope"}};
    for (int i = 0; i < 3; i++) { // each type, sums of rounded operands, and another model
        const char *const *both = options[i];
        const TinyShape shape = shape_of((Dtype)i, OFFLOAD_NONE, both[0]),
                        unlike = shape_of((Dtype)i, OFFLOAD_NONE, both[1]);
        const Gradients want = added_one_by_one(&shape, i == 1);
        for (OffloadMode offload = OFFLOAD_NONE; offload <= OFFLOAD_ALL; offload++) {
            const TinyShape away = shape_of(shape.type, offload, both[0]);
            const Gradients found = gradients_of(&away, 0, MICROS);
            CHECK(same_bits(&want, &found));
            CHECK(found.loss == want.loss);
            free(found.values);
        }
        const Gradients other = gradients_of(&unlike, 0, MICROS); // else the test would show nothing
        CHECK(!same_bits(&want, &other));
        free(other.values), free(want.values);
    }
}

TEST(steps_in_a_fixed_order_are_bit_identical_however_they_are_computed) {
    TinyShape shape = shape_of(DTYPE_FP32, OFFLOAD_NONE, "reduce_order=fixed,recheck_interval=1");
    shape.dropout = 0.2, shape.threads = 1;
    double losses[2][3];
    float *want = NULL;
    for (int run = 0; run < 10; run++) {
        TinyShape other = shape;
        Tiny tiny;
        if (run) {
            other.offload = (OffloadMode)(run % (OFFLOAD_ALL + 1)), other.threads = 1 + run % 3;
            other.recompute = (Recompute)(run % 6), other.warm_up = run % 2;
        }
        tiny_open(&tiny, &other);
        tiny_train(&tiny, 0, 3, losses[run > 0]);
        float *params = tiny_read(&tiny, tiny.plan.params);
        if (run) {
            CHECK(!memcmp(want, params, tiny.model.elements * sizeof *params));
            CHECK(!memcmp(losses[0], losses[1], sizeof losses[0]));
            free(params);
        } else
            want = params;
        tiny_close(&tiny);
    }
    free(want);
}

// ---- the plan

static size_t table_bytes(const MemoryPlan *plan, const char *name) {
    for (int row = 0; row < plan->table.count; row++)
        if (!strcmp(plan->table.rows[row].name, name)) return plan->table.rows[row].bytes;
    return 0;
}

static Config config_124m(void) {
    Config config = default_config();
    config.batch_size.value = 4, config.offload = OFFLOAD_NONE, config.recompute = RECOMPUTE_NONE;
    config.bias = true, config.reduce_order = REDUCE_FIXED;
    return config;
}

static const Backend *cpu(Dtype type) {
    char why[256];
    const BackendChoice choice = {.device = DEVICE_CPU, .dtype = type, .threads = 1};
    const Backend *backend = backend_open(&choice, why);
    CHECK(backend);
    return backend;
}

// One process: the gradients of one layer's matrices (12 C^2 floats) and of all that is not a layer's matrix. Several:
// the sums of a rank's shards. One micro-batch for each process: nothing. In float32 no matrix is packed.
TEST(plan_of_a_fixed_order_matches_the_formula) {
    static const int64_t micros[] = {1, 2, 8, 10};
    static const Dtype types[] = {DTYPE_FP32, DTYPE_BF16};
    const size_t C = 768, L = 12;
    for (int run = 0; run < 8; run++) {
        const Backend *backend = cpu(types[run % 2]);
        const unsigned world = 1u << run / 2;
        for (int i = 0; i < 4; i++) {
            Config config = config_124m();
            Model model;
            MemoryPlan plan, fast;
            config.world = world, config.gradient_accumulation_steps = micros[i];
            plan_network(&model, &plan, &config, backend, GPT2_VOCAB, OPTIMIZER_ADAMW);
            const size_t apart = 4 * (model.elements - (L - 1) * 12 * C * C);
            const size_t shards = 4 * shard_elements(&model, world);
            const bool adds = micros[i] > (int64_t)world;
            CHECK_EQUAL(table_bytes(&plan, "gradients of a micro-batch"), world == 1 && adds ? apart : 0);
            CHECK_EQUAL(table_bytes(&plan, "sums of gradients"), world > 1 && adds ? shards : 0);
            model_close(&model);
            config.reduce_order = REDUCE_FAST;
            plan_network(&model, &fast, &config, backend, GPT2_VOCAB, OPTIMIZER_ADAMW);
            const size_t losses = world == 1 ? 0 : 256; // a few numbers more, rounded up
            const size_t packed = table_bytes(&fast, "packed matrices") - table_bytes(&plan, "packed matrices");
            CHECK(table_bytes(&plan, "packed matrices") == 0 || types[run % 2] != DTYPE_FP32);
            CHECK(packed == 0 || types[run % 2] == DTYPE_FP32);
            CHECK(plan.bytes + packed - fast.bytes <= adds * (world == 1 ? apart : shards) + losses);
            CHECK(plan.bytes + packed - fast.bytes >= adds * (world == 1 ? apart : shards));
            model_close(&model);
        }
        backend->close();
    }
}

// Fixed unless it costs more than 2 % of the time, in which micro-batches are small; the same for every world.
TEST(plan_chooses_the_order_by_its_cost) {
    const Backend *backend = cpu(DTYPE_BF16);
    ReduceOrder last = REDUCE_FAST;
    int changes = 0;
    for (int64_t block = 8; block <= 1024; block *= 2) {
        ReduceOrder first = REDUCE_AUTO;
        for (unsigned world = 1; world <= 8; world *= 2) {
            Config config = config_124m();
            config.block_size = block, config.world = world, config.reduce_order = REDUCE_AUTO;
            plan_auto(&config, backend, &(MemoryLimits){.arena = config.mem_limit});
            CHECK(config.reduce_order == REDUCE_FIXED || config.reduce_order == REDUCE_FAST);
            if (world == 1) first = config.reduce_order;
            CHECK_EQUAL(config.reduce_order, first);
        }
        changes += first != last, last = first;
    }
    CHECK_EQUAL(last, REDUCE_FIXED);
    CHECK_EQUAL(changes, 1);
    for (unsigned machines = 1; machines <= 2; machines++) { // a network would carry the gradients of every micro-batch
        Config config = config_124m();
        config.world = 8, config.local_world = 8 / machines, config.reduce_order = REDUCE_AUTO;
        plan_auto(&config, backend, &(MemoryLimits){.arena = config.mem_limit});
        CHECK_EQUAL(config.reduce_order, machines == 1 ? REDUCE_FIXED : REDUCE_FAST);
    }
    // beyond mem_limit it needs more recomputation
    Config config = config_124m();
    Model model;
    MemoryPlan plan;
    config.reduce_order = REDUCE_FAST;
    plan_network(&model, &plan, &config, backend, GPT2_VOCAB, OPTIMIZER_ADAMW);
    config.reduce_order = REDUCE_AUTO, config.recompute = RECOMPUTE_AUTO, config.mem_limit = plan.bytes;
    plan_auto(&config, backend, &(MemoryLimits){.arena = config.mem_limit});
    CHECK(config.recompute != RECOMPUTE_NONE || config.reduce_order == REDUCE_FAST);
    // where there is no room at all, fast is named
    config.reduce_order = REDUCE_FIXED, config.recompute = RECOMPUTE_NONE, config.recompute_layers = 0;
    model_close(&model);
    plan_network(&model, &plan, &config, backend, GPT2_VOCAB, OPTIMIZER_ADAMW);
    CHECK(memory_plan_check(&plan, &config, backend, false) < 0);
    CHECK_ERROR(EX_MEMORY, "these fit: --reduce_order=fast (");
    model_close(&model);
    backend->close();
}

// ---- the samples of a rank

typedef struct {
    uint64_t first[64];
    int count, served;
    bool cancelled;
} Requests;

static int request(void *self, const FeedRequest *form) {
    Requests *requests = self;
    CHECK(requests->count < 64);
    requests->first[requests->count++] = form->first_sample;
    return 0;
}
static uint32_t capacity(void *self) {
    const Requests *requests = self;
    return requests->count - requests->served < 3;
}
static FeedResult next(void *self, FeedBatch *batch) {
    Requests *requests = self;
    *batch = (FeedBatch){.rows = 2, .first_sample = requests->first[requests->served++]};
    return FEED_BATCH;
}
static void release(void *self, const FeedBatch *batch) { (void)self, (void)batch; }
static void cancel(void *self) { ((Requests *)self)->cancelled = true; }

// Whatever the number of ranks, micro-batch g of a step has the same samples and belongs to rank g modulo that number.
TEST(ranks_take_the_batches_of_a_step_in_turn_also_if_they_do_not_divide_it) {
    enum { STEPS = 3, ROWS = 2, BATCHES = 5, FROM = 100 };
    for (unsigned world = 1; world <= BATCHES; world++)
        for (unsigned rank = 0; rank < world; rank++) {
            Requests requests = {0};
            const BatchSource source = {&requests, request, capacity, next, release, cancel};
            const FeedRequest form = {.rows = ROWS};
            BatchStream stream = {0};
            stream.turns = (BatchTurns){rank * ROWS, (world - 1) * ROWS, ROWS * BATCHES};
            for (int step = 0; step < STEPS; step++) {
                const uint64_t start = FROM + (uint64_t)step * ROWS * BATCHES;
                batch_stream_start(&stream, &source, &form, start, FROM + STEPS * ROWS * BATCHES);
                for (unsigned micro = rank; micro < BATCHES; micro += world) {
                    FeedBatch batch;
                    CHECK(batch_stream_next(&stream, &batch) == FEED_BATCH);
                    CHECK_EQUAL(batch.first_sample, start + micro * ROWS);
                }
            }
            CHECK_EQUAL(requests.count, requests.served);
            CHECK(!requests.cancelled);
        }
}
