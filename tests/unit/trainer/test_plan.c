// The memory plan: sizes against formulas, the plan against the allocation, auto settings, and suggestions.
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/plan/plan_check.h"
#include "trainer/plan/plan_choices.h"
#include "trainer/plan/step_cost.h"
#include <math.h>

static Config gpt2_124m(void) {
    Config config = default_config();
    config.batch_size.value = 4, config.bias = true, config.recompute = RECOMPUTE_NONE;
    return config;
}

static const Backend *opened(Device device, Dtype dtype, OptimizerState optimizer_state) {
    char why[256];
    const BackendChoice choice = {.device = device,
                                  .dtype = dtype,
                                  .threads = 2,
                                  .deterministic = true,
                                  .optimizer_state = optimizer_state,
                                  .planned = &(GpuProperties){0}};
    const Backend *backend = backend_open(&choice, why);
    CHECK(backend);
    return backend;
}
static const Backend *cpu(Dtype dtype) { return opened(DEVICE_CPU, dtype, STATE_FP32); }

// The last configuration that was planned.
static Model model;
static MemoryPlan plan;

static void make(const Config *config, const Backend *backend) {
    model_close(&model);
    plan_network(&model, &plan, config, backend, GPT2_VOCAB, OPTIMIZER_ADAMW);
}

// P = Vp*C + T*C + L(12C^2 + 13C) + 2C, counted by hand: 124,475,904 and 1,557,686,400
TEST(model_has_the_known_number_of_elements) {
    Config config = gpt2_124m();
    const Backend *backend = cpu(DTYPE_FP32);
    make(&config, backend);
    CHECK_EQUAL(model.elements, 124475904);
    CHECK_EQUAL(model.parameters, 124439808); // without the rows that pad the vocabulary
    CHECK_EQUAL(model.decay_elements, 50304 * 768 + 1024 * 768 + 12 * 12 * 768 * 768);
    for (int i = 1; i < model.count; i++)
        CHECK(model.tensors[i].offset == model.tensors[i - 1].offset + tensor_elements(&model.tensors[i - 1]));
    config.n_layer = 48, config.n_head = 25, config.n_embd = 1600;
    make(&config, backend);
    CHECK_EQUAL(model.elements, 1557686400);
    backend->close();
}

// 124M, B=4, T=1024, bf16 activations: 32C + 4(H+4) bytes a token and layer with the residual stream in bf16, 24C
// without the output of GELU, 20C without those of the norms (and their 16 bytes of statistics), 12C without the input
// of GELU, 6C without queries, keys and values, 2C without anything but the input. The CPU keeps the residual stream in
// fp32: 2C more for each of the two. Buffers that are not kept have one instance for all layers, except the output of
// GELU.
static size_t table_bytes(const char *name) {
    for (int row = 0; row < plan.table.count; row++)
        if (!strcmp(plan.table.rows[row].name, name)) return plan.table.rows[row].bytes;
    return 0;
}

TEST(plan_of_activations_matches_the_formula) {
    Config config = gpt2_124m();
    const Backend *backend = cpu(DTYPE_BF16);
    const size_t N = 4 * 1024, C = 768, H = 12, L = 12;
    const size_t saved[] = {(32 + 4) * C + 4 * (H + 4), (24 + 4) * C + 4 * (H + 4), (20 + 4) * C + 4 * H,
                            (12 + 4) * C + 4 * H,       (6 + 4) * C + 4 * H,        (2 + 2) * C};
    for (size_t i = 0; i < 6 * L; i++) { // all levels, and mixes of one and the next
        const size_t level = i / L, more = i % L;
        config.recompute = (Recompute)level + (more > 0), config.recompute_layers = (int64_t)more;
        if (config.recompute == RECOMPUTE_AUTO) break;
        make(&config, backend);
        const size_t kept = (L - more) * saved[level] + more * saved[level + (more > 0)];
        CHECK_EQUAL(table_bytes("saved activations"), N * (kept + 6 * C + 8));
        CHECK_EQUAL(table_bytes("activations of a block"), N * (level ? saved[1] - saved[level + (more > 0)] : 0));
        CHECK_EQUAL(table_bytes("gradients of activations"), N * C * (2 + 4 + 2));
        CHECK(plan.eval.end < plan.train.end);
        size_t sum = 0;
        for (int row = 0; row < plan.table.count; row++)
            sum += plan.table.rows[row].overlaid ? 0 : plan.table.rows[row].bytes;
        CHECK_EQUAL(sum, plan.bytes);
    }
    backend->close();
}

static size_t allocated;
static int allocations;
static void *(*real_alloc)(size_t bytes);
static void *counting_alloc(size_t bytes) {
    allocated += bytes, allocations++;
    return real_alloc(bytes);
}

// fault 60
TEST(plan_equals_the_allocation) {
    Config config = gpt2_124m();
    config.n_layer = 2, config.n_embd = 96, config.n_head = 3, config.block_size = 64, config.batch_size.value = 2;
    Backend backend = *cpu(DTYPE_FP32);
    real_alloc = backend.alloc, backend.alloc = counting_alloc;
    Network network;
    make(&config, &backend);
    CHECK(network_open(&network, &backend, &model, &plan) == 0);
    CHECK_EQUAL(allocations, 1);
    CHECK_EQUAL(allocated, plan.bytes);
    char printed[64];
    Buffer text = {0};
    memory_plan_print(&plan, &config, &model, &backend, &text);
    snprintf(printed, sizeof printed, "arena %39zu", allocated);
    CHECK_TEXT((char *)text.data, printed);
    buffer_close(&text);
    network_close(&network);
    backend.close();
}

static size_t pinned;
static void counting_pin(void *host, size_t bytes) { (void)host, pinned += bytes; }

// In host memory: the moments, all gradients, and the inputs of all layers but the last three, N*C floats each. In the
// arena: slots for the gradients and inputs of three layers, and the gradients that are not of a layer's matrices.
TEST(plan_of_offload_matches_the_formula_and_the_allocation) {
    Config config = gpt2_124m();
    config.n_layer = 8, config.n_embd = 64, config.n_head = 2, config.block_size = 32, config.batch_size.value = 2;
    Backend backend = *cpu(DTYPE_FP32);
    backend.pin = counting_pin;
    const size_t N = 64, C = 64, L = 8, matrices = 12 * C * C, input = 4 * N * C;
    for (OffloadMode mode = OFFLOAD_NONE; mode <= OFFLOAD_ALL; mode++) {
        Network network;
        config.offload = mode;
        make(&config, &backend);
        const size_t grads = 4 * model.elements, P = model.elements;
        const bool away[] = {mode >= OFFLOAD_OPTIMIZER, mode == OFFLOAD_ALL, mode == OFFLOAD_ALL};
        CHECK_EQUAL(plan.host_bytes, away[0] * 8 * P + away[1] * grads + away[2] * (L - 3) * input);
        CHECK_EQUAL(plan.layer_gradients.bytes, away[1] * (grads - 4 * (L - 3) * matrices));
        CHECK_EQUAL(plan.train.ln1 - plan.train.res1, (away[2] ? 3 : L) * input);
        CHECK_EQUAL(plan.grads >= plan.bytes, away[1]);
        CHECK(plan.update.grads + grads <= plan.bytes && plan.train.end <= plan.bytes);
        size_t sum = 0, host = 0;
        for (int row = 0; row < plan.table.count; row++) {
            sum += plan.table.rows[row].overlaid ? 0 : plan.table.rows[row].bytes;
            host += plan.table.rows[row].copied ? plan.table.rows[row].bytes : 0;
        }
        CHECK(sum == plan.bytes && host == plan.host_bytes);
        pinned = 0;
        CHECK(network_open(&network, &backend, &model, &plan) == 0);
        CHECK_EQUAL(pinned, plan.host_bytes + 4096); // and the scalars
        network_close(&network);
    }
    backend.close();
}

typedef struct {
    size_t offset, bytes;
} Span;

static void check_disjoint(const Span *spans, int count, size_t arena_bytes) {
    for (int a = 0; a < count; a++) {
        const size_t end = spans[a].offset + spans[a].bytes;
        CHECK(spans[a].offset % 64 == 0 && end <= arena_bytes);
        for (int b = 0; b < a; b++)
            CHECK(end <= spans[b].offset || spans[b].offset + spans[b].bytes <= spans[a].offset || !spans[a].bytes ||
                  !spans[b].bytes);
    }
}

// Buffers in use at the same time must not share bytes.
static void check_buffers(Recompute recompute, int layers) {
    Config config = gpt2_124m();
    config.recompute = recompute, config.recompute_layers = layers;
    config.n_layer = 3, config.n_embd = 64, config.n_head = 2, config.block_size = 32, config.batch_size.value = 3;
    const Backend *backend = cpu(DTYPE_BF16);
    make(&config, backend);
    const PassLayout *p = &plan.train;
    size_t N = 96, C = 64, P = model.elements;
    Span spans[64] = {
        {plan.params, 4 * P},
        {plan.grads, 4 * P},
        {plan.states[0], 4 * P},
        {plan.states[1], 4 * P},
        {plan.scalars, sizeof(StepScalars)},
        {plan.scratch, plan.scratch_bytes},
        {p->res3, 4 * N * C},
        {p->ln3, 2 * N * C},
        {p->mean3, 4 * N},
        {p->rstd3, 4 * N},
        {p->tokens, 2 * 3 * 33},
        {p->losses, 4 * N},
        {p->branch, 2 * N * C},
        {p->dres, 4 * N * C},
        {p->dres_act, 2 * N * C},
        {p->logits, 2 * N * 50304},
    };
    int count = 16;
    CHECK(p->dnorm == p->branch && p->dfc == p->logits && p->dqkv == p->logits);
    // An instance that layers share counts once, and so does the memory of `gelu` and `logits`.
#define SPAN(group, name, bytes)                                                                                       \
    { p->name + pass_instance(p, group, l), bytes, l &&pass_instance(p, group, l) == pass_instance(p, group, l - 1) }
    for (int l = 0; l < 3; l++) {
        const struct {
            size_t offset, bytes;
            bool counted;
        } layer[] = {
            SPAN(GROUP_INPUT, res1, 4 * N * C),    SPAN(GROUP_NORM, ln1, 2 * N * C),
            SPAN(GROUP_NORM, mean1, 4 * N),        SPAN(GROUP_NORM, rstd1, 4 * N),
            SPAN(GROUP_QKV, qkv, 6 * N * C),       SPAN(GROUP_ATTENTION, lse, 4 * N * 2),
            SPAN(GROUP_ATTENTION, att, 2 * N * C), SPAN(GROUP_ATTENTION, res2, 4 * N * C),
            SPAN(GROUP_NORM, ln2, 2 * N * C),      SPAN(GROUP_NORM, mean2, 4 * N),
            SPAN(GROUP_NORM, rstd2, 4 * N),        SPAN(GROUP_MLP, fc, 8 * N * C),
            SPAN(GROUP_GELU, gelu, 8 * N * C),
        };
        for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
            if (layer[i].counted || layer[i].offset == p->logits) continue;
            spans[count].offset = layer[i].offset, spans[count++].bytes = layer[i].bytes;
        }
        CHECK_EQUAL(l >= p->kept[GROUP_GELU], p->gelu + pass_instance(p, GROUP_GELU, l) == p->logits);
    }
#undef SPAN
    check_disjoint(spans, count, plan.bytes);
    backend->close();
}

TEST(plan_gives_live_buffers_separate_memory) {
    for (Recompute recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_BLOCK; recompute++)
        for (int layers = 0; layers < 3; layers++) check_buffers(recompute, layers);
}

// fault 58
TEST(plan_that_does_not_fit_names_settings_that_do) {
    Config config = gpt2_124m();
    config.batch_size.value = 12, config.gradient_accumulation_steps = 40, config.mem_limit = 6ull << 30;
    const Backend *backend = cpu(DTYPE_BF16);
    make(&config, backend);
    CHECK(plan.bytes > config.mem_limit);
    CHECK_EQUAL(memory_plan_check(&plan, &config, backend, false), -1);
    CHECK_EQUAL(err_code(), EX_MEMORY);
    long long batch = 0, accumulation = 0;
    const char *at = strstr(err_text(), "--batch_size=");
    CHECK(at && sscanf(at, "--batch_size=%lld --gradient_accumulation_steps=%lld", &batch, &accumulation) == 2);
    CHECK_EQUAL(batch * accumulation, 480);
    err_clear();
    config.batch_size.value = batch, config.gradient_accumulation_steps = accumulation;
    make(&config, backend);
    CHECK_EQUAL(memory_plan_check(&plan, &config, backend, false), 0); // it fits
    config.mem_limit = 1 << 20;
    make(&config, backend);
    CHECK_EQUAL(memory_plan_check(&plan, &config, backend, false), -1);
    CHECK_TEXT(err_text(), "take a smaller model");
    backend->close();
}

// A memory model computed by hand for a GPU in bf16: peaks of 124M with B=16, T=1024 in GiB; with chunks of 4096 rows,
// the largest batch in 11.3 GiB. The model differs from the plan in known ways: it counts gradients in bf16 (the plan
// has fp32, 2 bytes per parameter more: 350M loses one sequence; 774M and 1558M, with the optimizer state in host
// memory, 9 and 11), separate memory for GELU and 16C of a block, which the plan shares with the logits, and the
// gradient of the residual stream twice. So the plan fits more when blocks are computed again.
TEST(plan_for_a_gpu_matches_the_memory_model) {
    static const struct {
        int64_t layers, heads, channels;
        Recompute recompute;
        int64_t modelled, fits;
        double peak;
    } rows[] = {
        {12, 12, 768, RECOMPUTE_NONE, 30, 30, 7.1},    {12, 12, 768, RECOMPUTE_GELU, 38, 40, 6.1},
        {12, 12, 768, RECOMPUTE_BLOCK, 157, 189, 3.5}, {24, 16, 1024, RECOMPUTE_NONE, 7, 6, 0},
        {24, 16, 1024, RECOMPUTE_GELU, 9, 8, 0},       {24, 16, 1024, RECOMPUTE_BLOCK, 56, 60, 0},
        {36, 20, 1280, RECOMPUTE_BLOCK, 42, 50, 0}, // 51 less 9
        {48, 25, 1600, RECOMPUTE_BLOCK, 10, 11, 0}  // 21 less 11
    };
    const Backend *backend = opened(DEVICE_CUDA, DTYPE_AUTO, STATE_FP32);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config config = gpt2_124m();
        config.n_layer = rows[i].layers, config.n_head = rows[i].heads, config.n_embd = rows[i].channels;
        config.recompute = rows[i].recompute, config.loss_chunk_rows = 4096;
        if (rows[i].layers > 24) config.offload = OFFLOAD_OPTIMIZER;
        const double limit = 11.3 * (1 << 30);
        for (int64_t more = 0; more < 2; more++) {
            config.batch_size.value = rows[i].fits + more;
            make(&config, backend);
            CHECK_EQUAL((double)plan.bytes <= limit, !more);
        }
        CHECK(fabs(log((double)rows[i].fits / (double)rows[i].modelled)) < 0.2);
        config.batch_size.value = 16, config.loss_chunk_rows = 1024; // the default
        make(&config, backend);
        if (rows[i].peak > 0) CHECK((double)plan.bytes <= rows[i].peak * (1 << 30));
    }
    backend->close();
}

// A GPU computes more logits at a time where that costs no memory, or fits mem_limit or a third of the card; the CPU
// does not.
TEST(plan_chooses_the_logits_chunk) {
    const struct {
        Device device;
        int rows;
        double limit, card; // GiB; 0: none, not known
        int64_t chunk, wanted;
    } rows[] = {
        {DEVICE_CUDA, 64, 0, 0, 0, 3968}, // 4N * C = 65536 * 3072 numbers are 4002 rows of 50304
        {DEVICE_CUDA, 16, 0, 0, 0, 1024},    {DEVICE_CUDA, 4, 11.3, 0, 0, 4096}, // all rows
        {DEVICE_CUDA, 32, 100, 0, 0, 16384}, {DEVICE_CUDA, 64, 0, 0, 1024, 1024}, {DEVICE_CPU, 64, 0, 0, 0, 1024},
        {DEVICE_CUDA, 64, 0, 140, 0, 16384}, {DEVICE_CUDA, 64, 0, 60, 0, 3968},   {DEVICE_CUDA, 64, 30, 60, 0, 16384},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Backend *found = opened(rows[i].device, DTYPE_AUTO, STATE_FP32);
        Backend backend = *found;
        Config config = gpt2_124m();
        backend.memory_bytes = (size_t)(rows[i].card * (1 << 30));
        config.batch_size.value = rows[i].rows, config.mem_limit = (uint64_t)(rows[i].limit * (1 << 30));
        config.loss_chunk_rows = rows[i].chunk, config.reduce_order = REDUCE_FAST;
        make(&config, &backend); // with 1024
        const MemoryPlan least = plan;
        plan_auto(&config, &backend, &(MemoryLimits){.arena = config.mem_limit});
        CHECK_EQUAL(config.loss_chunk_rows, rows[i].wanted);
        make(&config, &backend);
        CHECK_EQUAL(least.chunk_rows, 1024);
        CHECK_EQUAL(plan.chunk_rows, rows[i].wanted);
        if (rows[i].limit > 0)
            CHECK(plan.bytes <= config.mem_limit);
        else
            CHECK(plan.bytes <= (least.bytes > backend.memory_bytes / 3 ? least.bytes : backend.memory_bytes / 3));
        found->close();
    }
}

static void other_processes(char *text, size_t size) { snprintf(text, size, "pid 4711 holds 8.0 GiB"); }

// Without mem_limit, auto settings stay below the free memory of the device, and refusals name it.
TEST(plan_stays_below_the_free_memory_of_the_device) {
    const Backend *found = opened(DEVICE_CUDA, DTYPE_AUTO, STATE_FP32);
    Backend backend = *found;
    backend.free_bytes = 3ull << 30, backend.other_processes = other_processes, backend.is_planned = false;
    Config config = gpt2_124m();
    config.batch_size.value = 8, config.gradient_accumulation_steps = 8, config.recompute = RECOMPUTE_AUTO;
    const MemoryLimits limits = memory_limits(&config, &backend, true);
    plan_auto(&config, &backend, &limits);
    CHECK_EQUAL(config.recompute, RECOMPUTE_QKV);
    make(&config, &backend);
    CHECK_EQUAL(memory_plan_check(&plan, &config, &backend, true), 0);
    config.batch_size.value = 64, config.gradient_accumulation_steps = 1;
    make(&config, &backend);
    CHECK_EQUAL(memory_plan_check(&plan, &config, &backend, false), 0); // on another machine, without a limit
    CHECK_EQUAL(memory_plan_check(&plan, &config, &backend, true), -1);
    CHECK_ERROR(EX_VRAM, "the GPU's free memory is 3.0 GiB (pid 4711 holds 8.0 GiB); these fit: --batch_size=");
    backend.is_planned = true; // a card that is named has what it leaves, wherever it is
    CHECK_EQUAL(memory_plan_check(&plan, &config, &backend, false), -1);
    CHECK_ERROR(EX_VRAM, "the card's memory for it is 3.0 GiB; these fit: --batch_size=");
    config.mem_limit = 2867ull << 20; // the smaller of the two
    CHECK_EQUAL(memory_plan_check(&plan, &config, &backend, true), -1);
    CHECK_TEXT(err_text(), "the limit is 2.8 GiB; these fit");
    found->close();
}

// 1558M in 11.3 GiB: 12 bytes per parameter of master and moments in host memory, chosen only if nothing else fits.
TEST(plan_offloads_the_optimizer_if_nothing_else_fits_the_gpu) {
    const Backend *found = opened(DEVICE_CUDA, DTYPE_AUTO, STATE_FP32);
    Backend backend = *found;
    backend.other_processes = other_processes;
    Config config = gpt2_124m(), large = config;
    config.mem_limit = large.mem_limit = 12133282611; // 11.3 GiB
    config.recompute = large.recompute = RECOMPUTE_AUTO;
    plan_auto(&config, &backend, &(MemoryLimits){.arena = config.mem_limit});
    CHECK(config.offload == OFFLOAD_NONE);
    large.n_layer = 48, large.n_head = 25, large.n_embd = 1600;
    large.batch_size.value = 12, large.gradient_accumulation_steps = 40;
    plan_auto(&large, &backend, &(MemoryLimits){.arena = large.mem_limit});
    CHECK(large.offload == OFFLOAD_OPTIMIZER && large.recompute == RECOMPUTE_BLOCK);
    make(&large, &backend);
    CHECK_EQUAL(plan.host_bytes, 12 * model.elements);
    CHECK_EQUAL(plan.scalars - plan.params, 6 * model.elements); // bf16 and fp32 gradients
    CHECK(plan.master >= plan.bytes && plan.states[1] + 4 * model.elements == plan.bytes + plan.host_bytes);
    CHECK(plan.update.slots >= plan.passes && plan.update.slots + 3 * plan.update.slot_bytes <= plan.bytes);
    CHECK_EQUAL(plan.update.slot_bytes, 12 * plan.update.slice);
    CHECK_EQUAL(memory_plan_check(&plan, &large, &backend, false), 0);
    Buffer text = {0};
    memory_plan_print(&plan, &large, &model, &backend, &text);
    CHECK_TEXT((char *)text.data, "optimizer state in host memory    18692236800    17.4 GiB");
    buffer_close(&text);
    large.offload = OFFLOAD_NONE;
    make(&large, &backend);
    CHECK_EQUAL(memory_plan_check(&plan, &large, &backend, false), -1);
    CHECK_ERROR(EX_VRAM, "the limit is 11.3 GiB; these fit: --offload=optimizer (11.3 GiB)");
    large.offload = OFFLOAD_OPTIMIZER, large.mem_limit = 0, large.n_embd = 25600,
    large.n_head = 400; // 377 billion parameters
    make(&large, &backend);
    CHECK_EQUAL(memory_plan_check(&plan, &large, &backend, true), -1);
    CHECK_ERROR(EX_MEMORY, "4.1 TiB of it for offloaded tensors, and ");
    found->close();
}

// A step of 64 sequences of 124M, whose logits alone are 6 GiB, in 11.3 GiB: at most 12 % longer, by prediction, where
// whole blocks would make it 17 % longer.
TEST(plan_of_64_sequences_in_a_card_of_12_gb_needs_at_most_12_percent_more_time) {
    const Backend *backend = opened(DEVICE_CUDA, DTYPE_BF16, STATE_FP32);
    Config config = gpt2_124m();
    config.batch_size.value = 64, config.recompute = RECOMPUTE_AUTO, config.mem_limit = 12133282611; // 11.3 GiB
    plan_auto(&config, backend, &(MemoryLimits){.arena = config.mem_limit});
    make(&config, backend);
    CHECK_EQUAL(config.batch_size.value, 64);
    CHECK(plan.bytes <= config.mem_limit && config.offload == OFFLOAD_NONE);
    CHECK(step_cost_recompute(&model.shape, backend, config.recompute, (int)config.recompute_layers) <= 0.12);
    CHECK(step_cost_recompute(&model.shape, backend, RECOMPUTE_BLOCK, 0) > 0.15);
    backend->close();
}

// The rates of a GPU against the list of its operations, in ms of a step of 64 sequences.
TEST(step_cost_of_a_gpu_agrees_with_the_measured_time) {
    const Backend *backend = opened(DEVICE_CUDA, DTYPE_BF16, STATE_FP32);
    const Config config = gpt2_124m();
    const ModelShape shape = model_shape(&config);
    const double ms = step_cost_passes(&shape, backend) * 64 * 1024 * 1e3;
    CHECK(fabs(ms / 100.4 - 1) < 0.1); // an H200, B = 64, T = 1024: docs/gpu-results.md
    backend->close();
}

// The levels are tried in the order of the time that a saved byte costs. It is that order on desktop cards, too, where
// a byte costs more beside a product, but not on an L4, of 403 FLOP a byte. A micro-batch of a slow card needs fewer
// tokens to hide its launches.
TEST(step_cost_follows_the_rates_of_the_card) {
    static const char *const cards[] = {
        "NVIDIA H200, compute capability 9.0", "NVIDIA GeForce RTX 4070, compute capability 8.9",
        "NVIDIA GeForce RTX 3060, compute 8.6", "NVIDIA GeForce RTX 5090, compute capability 12.0",
        "NVIDIA A100-SXM4-40GB, compute 8.0"};
    const Backend *found = opened(DEVICE_CUDA, DTYPE_BF16, STATE_FP32);
    Backend backend = *found;
    Config config = gpt2_124m();
    double norm[2] = {0}, fixed[2] = {0};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        double before = 0, cost = 0;
        size_t bytes = 0;
        backend.card = cards[i];
        for (Recompute level = RECOMPUTE_NONE; level <= RECOMPUTE_BLOCK; level++) {
            config.recompute = level;
            make(&config, &backend);
            const double more = step_cost_recompute(&model.shape, &backend, level, 0) - cost;
            const double price = level ? more / (double)(bytes - plan.bytes) : 0;
            CHECK(price >= before * 0.97);
            if (i < 2 && level == RECOMPUTE_NORM) norm[i] = more;
            before = price, cost += more, bytes = plan.bytes;
        }
        CHECK_TEXT(step_cost_source(&backend), "data sheet");
        if (i < 2) fixed[i] = step_cost_fixed(&backend);
    }
    CHECK(norm[1] < norm[0]); // 115 FLOP a byte against 206: products are the larger part of a step
    CHECK(fixed[0] == 4096 && fixed[1] > 200 && fixed[1] < 300);
    backend.card = "NVIDIA of this test, compute capability 9.0";
    CHECK_TEXT(step_cost_source(&backend), "rates of an H200");
    found->close();
}

// Bytes per parameter of parameters, gradients (fp32), master and moments: 18; 14 with moments in bf16; 10 without a
// master.
TEST(plan_of_optimizer_states_matches_the_formula) {
    static const struct {
        Device device;
        OptimizerState state;
        size_t bytes;
    } rows[] = {{DEVICE_CUDA, STATE_FP32, 18}, {DEVICE_CUDA, STATE_BF16, 14},  {DEVICE_CUDA, STATE_BF16_SR, 10},
                {DEVICE_CPU, STATE_FP32, 16}, // parameters are their own master, and stay in fp32
                {DEVICE_CPU, STATE_BF16, 12},  {DEVICE_CPU, STATE_BF16_SR, 12}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Backend *backend = opened(rows[i].device, DTYPE_BF16, rows[i].state);
        Config config = gpt2_124m();
        make(&config, backend);
        size_t packed = plan.grads - plan.packed;
        CHECK_EQUAL(plan.scalars - plan.params - packed, rows[i].bytes * model.elements);
        backend->close();
    }
}

// The levels are in the order of the time that a saved byte costs, so that no mix but those of neighbours is faster;
// and of those, auto takes the fastest that fits.
TEST(plan_chooses_the_fastest_mix_of_recompute) {
    const Backend *backend = cpu(DTYPE_BF16);
    Config config = gpt2_124m();
    double before = 0, cost = 0;
    size_t bytes = 0;
    for (Recompute level = RECOMPUTE_NONE; level <= RECOMPUTE_BLOCK; level++) {
        config.recompute = level;
        make(&config, backend);
        const double more = step_cost_recompute(&model.shape, backend, level, 0) - cost;
        const double price = level ? more / (double)(bytes - plan.bytes) : 0;
        CHECK(price >= before * 0.999);
        before = price, cost += more, bytes = plan.bytes;
    }
    for (int gib = 4; gib <= 9; gib++) {
        Config chosen = config;
        double best = INFINITY;
        chosen.recompute = RECOMPUTE_AUTO, chosen.batch_size.value = 16, chosen.mem_limit = (uint64_t)gib << 30;
        plan_auto(&chosen, backend, &(MemoryLimits){.arena = chosen.mem_limit});
        for (int run = 0; run < 6 * 12; run++) {
            Config other = chosen;
            other.recompute = (Recompute)(run / 12), other.recompute_layers = run % 12;
            make(&other, backend);
            const double time = step_cost_recompute(&model.shape, backend, other.recompute, run % 12);
            if (plan.bytes <= chosen.mem_limit && time < best) best = time;
        }
        make(&chosen, backend);
        CHECK(best < INFINITY && plan.bytes <= chosen.mem_limit);
        CHECK(step_cost_recompute(&model.shape, backend, chosen.recompute, (int)chosen.recompute_layers) <= best);
    }
    backend->close();
}

// Keys that are auto get the fastest plan that fits; the effective batch and the evaluated tokens stay the same.
TEST(plan_chooses_the_fastest_settings_for_auto_keys) {
    const Backend *backend = cpu(DTYPE_BF16);
    int64_t rows = 0;
    for (int step = 0; step < 4; step++) {
        static const double limits[] = {4, 6, 20, 100};
        Config config = gpt2_124m();
        config.batch_size = (AutoInt){true, 12}, config.recompute = RECOMPUTE_AUTO,
        config.mem_limit = (uint64_t)(limits[step] * (1 << 30));
        plan_auto(&config, backend, &(MemoryLimits){.arena = config.mem_limit});
        CHECK_EQUAL(config.batch_size.value * config.gradient_accumulation_steps, 480);
        CHECK_EQUAL(config.eval_tokens, 200 * 12 * 1024);
        make(&config, backend);
        CHECK(plan.bytes <= config.mem_limit);
        CHECK(step < 3 || config.recompute == RECOMPUTE_NONE); // nothing is computed again if it fits
        CHECK(config.batch_size.value >= rows);
        rows = config.batch_size.value;
    }
    Config config = gpt2_124m();
    config.batch_size = (AutoInt){true, 12}, config.recompute = RECOMPUTE_AUTO; // without a limit: the default
    plan_auto(&config, backend, &(MemoryLimits){.arena = config.mem_limit});
    CHECK(config.batch_size.value == 12 && config.recompute == RECOMPUTE_NONE);
    config.batch_size.value = 32, config.recompute = RECOMPUTE_AUTO,
    config.mem_limit = 6ull << 30; // keys that are not auto stay
    plan_auto(&config, backend, &(MemoryLimits){.arena = config.mem_limit});
    CHECK(config.batch_size.value == 32 && config.gradient_accumulation_steps == 40 &&
          config.recompute == RECOMPUTE_BLOCK);
    backend->close();
}
