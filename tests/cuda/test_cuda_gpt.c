// A whole GPT through the CUDA backend: steps with accumulation, and the losses of the CPU backend in fp32.
#include "common/rng.h"
#include "tests/small_network.h"
#include "tests/test.h"
#include <math.h>
#include <sys/mman.h>

extern int emu_order __attribute__((weak)); // of the emulator, where there is one

enum { STEPS = 3, MICROS = 2, ROWS = 2, BLOCK = 16, CHANNELS = 64, VOCAB = 200, END_OF_TEXT = 3 };

// Batches that repeat, so that there is something to learn in three steps.
static void fill(uint16_t *ids, int micro) {
    for (int i = 0; i < ROWS * (BLOCK + 1); i++) ids[i] = (uint16_t)(rng_u64(7, (uint64_t)micro, (uint64_t)i) % VOCAB);
    ids[BLOCK / 2] = END_OF_TEXT;
}

// On the CPU in fp32 unless `cuda`, in the type that $TEST_DTYPE names, or else the card chooses.
typedef struct {
    bool cuda, times; // times: deterministic=False
    const char *cache_dir;
    Gelu gelu;
    Recompute recompute;
    bool apart;       // the gradient of the residual stream as activations has a place of its own
    float loss_scale; // 0: 1
    bool offload;     // the optimizer's state is in host memory
    double dropout;
    OptimizerName optimizer;
    bool every_option; // of the model
    bool document_mask;
} Form;

static const Backend *open_backend(const Form *form) {
    char why[256];
    BackendChoice choice = {.dtype = DTYPE_FP32, .threads = 1, .deterministic = !form->times, .device = DEVICE_CPU};
    if (form->cuda) choice.device = DEVICE_CUDA, choice.dtype = DTYPE_AUTO, choice.cache_dir = form->cache_dir;
    if (form->cuda && getenv("TEST_DTYPE")) CHECK(dtype_parse(getenv("TEST_DTYPE"), &choice.dtype));
    const Backend *backend = backend_open(&choice, why);
    CHECK(backend);
    return backend;
}

static Dtype tested_type(void) {
    const Backend *backend = open_backend(&(Form){.cuda = true});
    const Dtype type = backend->act_type;
    backend->close();
    return type;
}
static bool is_fp16(void) { return tested_type() == DTYPE_FP16; }

static void set_options(Config *config) {
    config->tie_embeddings = false, config->logit_softcap = 0.5, config->z_loss = 0.01, config->mlp = MLP_SWIGLU;
    config->norm = NORM_RMS, config->qk_norm = true, config->position = POSITION_ROPE, config->n_kv_head = 1;
}

// Losses of the steps, the last one's norm; `bits` (malloc'ed) are all parameters afterwards.
static void train(Form form, double losses[STEPS], double *norm, Buffer *bits) {
    Config config = default_config();
    config.n_layer = 2, config.n_head = 2, config.n_embd = CHANNELS, config.block_size = BLOCK;
    config.batch_size.value = ROWS, config.gradient_accumulation_steps = MICROS, config.bias = true;
    config.recompute = form.recompute, config.gelu = form.gelu;
    config.loss_chunk_rows = 24; // the last chunk is shorter
    config.dropout = form.dropout;
    config.offload = form.offload ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE;
    if (form.every_option) set_options(&config);
    config.document_mask = form.document_mask;
    const Backend *backend = open_backend(&form);
    Model model;
    MemoryPlan plan;
    Network network;
    plan_network(&model, &plan, &config, backend, VOCAB, form.optimizer);
    CHECK_EQUAL(plan.train.dres_act, plan.train.dres);
    if (form.apart)
        plan.train.dres_act = plan.bytes, plan.bytes += (size_t)ROWS * BLOCK * CHANNELS * backend->act_bytes;
    model.shape.end_of_text = form.document_mask ? END_OF_TEXT : 0;
    CHECK(network_open(&network, backend, &model, &plan) == 0);
    network_init(&network, 1337);

    uint16_t *slot = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    backend->pin(slot, 4096);
    const PassLayout *pass = &plan.train;
    config.learning_rate = 3e-3, config.lr_schedule = LR_CONSTANT, config.warmup_iters = 0;
    const float scale = 1.0f / (ROWS * BLOCK * MICROS);
    for (int step = 0; step < STEPS; step++) {
        step_begin(
            &network, &config,
            &(StepPosition){(uint64_t)step, (uint64_t)step, form.loss_scale > 0 ? form.loss_scale : 1, NULL, NULL});
        for (int micro = 0; micro < MICROS; micro++) {
            fill(slot, micro);
            network_tokens(&network, pass, slot, ROWS, BLOCK);
            memset(slot, 0xff, sizeof(uint16_t) * ROWS * (BLOCK + 1)); // the slot is the loader's again
            step_micro_batch(&network, scale, micro);
        }
        step_end(&network);
        losses[step] = network.scalars->loss * (double)scale;
    }
    *norm = (double)network.scalars->norm;
    const size_t bytes = model.elements * backend->par_bytes;
    bits->size = 0;
    buffer_reserve(bits, bytes);
    bits->size = bytes;
    backend->download(bits->data, network_at(&network, plan.params), bytes);
    network_close(&network);
    model_close(&model);
    backend->close();
    munmap(slot, 4096);
}

static bool same_bits(const Buffer bits[2]) {
    return bits[0].size == bits[1].size && !memcmp(bits[0].data, bits[1].data, bits[0].size);
}

// A run on CUDA that has the bits of every other one.
typedef struct {
    Recompute recompute;
    bool offload;
    float loss_scale; // in bf16, where gradients times a power of two have the same bits
} Way;

// Trains as `form` says on the CPU and then on CUDA, in each of the ways: the losses are within `limit` of those of the
// CPU, an eighth of it in fp16 and a hundredth in fp32. difference: at least how many limits the losses are away from
// those of a plain Form.
static void check_like_cpu(Form form, const Way *ways, int count, double limit, double difference) {
    double want[STEPS], losses[STEPS], first[STEPS], plain[STEPS], norm, want_norm;
    Buffer bits[2] = {{0}, {0}};
    const bool fp16 = is_fp16(), verbose = getenv("PAIR_VERBOSE");
    limit /= fp16 ? 8 : tested_type() == DTYPE_FP32 ? 100 : 1;
    train((Form){0}, plain, &norm, &bits[0]);
    train(form, want, &want_norm, &bits[0]);
    CHECK(difference <= 0 || fabs(want[STEPS - 1] - plain[STEPS - 1]) > difference * limit * want[STEPS - 1]);
    for (int run = 0; run<count; run += count> 2 && getenv("PAIR_ORDERS") ? 2 : 1) {
        if (&emu_order) emu_order = run * 3 % 4;
        form.cuda = true, form.apart = !run, form.recompute = ways[run].recompute, form.offload = ways[run].offload;
        form.loss_scale = fp16 ? 1024 : ways[run].loss_scale;
        train(form, losses, &norm, &bits[run > 0]);
        for (int step = 0; step < STEPS; step++) {
            if (verbose)
                print_message("loss %.5f, the CPU's %.5f, plain %.5f\n", losses[step], want[step], plain[step]);
            CHECK(fabs(losses[step] - want[step]) < limit * want[step]);
        }
        // in fp16 a change of 1e-7 in every GELU moves this norm by 1.3e-3 of itself
        CHECK(fabs(norm - want_norm) < (fp16 ? 20 : 10) * limit * want_norm);
        if (!run) memcpy(first, losses, sizeof first);
        CHECK(!memcmp(first, losses, sizeof first));
        CHECK(!run || same_bits(bits));
    }
    if (&emu_order) emu_order = 0;
    buffer_close(&bits[0]), buffer_close(&bits[1]);
}

TEST(cuda_trains_a_gpt_like_the_cpu) {
    double losses[STEPS], norm;
    Buffer bits[2] = {{0}, {0}};
    for (int apart = 0; apart < 2; apart++) train((Form){.apart = apart}, losses, &norm, &bits[apart]);
    CHECK(same_bits(bits));
    CHECK(losses[STEPS - 1] < losses[0] - 0.5); // it does learn
    buffer_close(&bits[0]), buffer_close(&bits[1]);
    static const Way ways[] = {{RECOMPUTE_NONE, false, 1},
                               {RECOMPUTE_NORM, false, 1024},
                               {RECOMPUTE_BLOCK, true, 1},
                               {RECOMPUTE_MLP, true, 0x1p14f},
                               {RECOMPUTE_QKV, true, 1}};
    check_like_cpu((Form){0}, ways, 5, 0.002, 0);
}

// The masks of the CPU at every site, whatever is computed again.
TEST(cuda_trains_a_gpt_with_dropout_like_the_cpu) {
    static const Way ways[] = {{RECOMPUTE_NONE, false, 1}, {RECOMPUTE_BLOCK, true, 1}};
    check_like_cpu((Form){.dropout = 0.5}, ways, 2, 0.004, 4);
}

// With Muon, whose matrices are whole slices when its state is offloaded.
TEST(cuda_trains_a_gpt_with_muon_like_the_cpu) {
    static const Way ways[] = {{RECOMPUTE_NONE, false, 1}, {RECOMPUTE_NONE, true, 1}};
    check_like_cpu((Form){.optimizer = OPTIMIZER_MUON}, ways, 2, 0.002, 2);
}

TEST(cuda_trains_a_gpt_within_documents_like_the_cpu) {
    static const Way ways[] = {{RECOMPUTE_NONE, false, 1}, {RECOMPUTE_BLOCK, true, 1}};
    check_like_cpu((Form){.document_mask = true}, ways, 2, 0.002, 0);
}

TEST(cuda_trains_a_gpt_with_every_option_like_the_cpu) {
    static const Way ways[] = {{RECOMPUTE_NONE, false, 1}, {RECOMPUTE_QKV, true, 1}, {RECOMPUTE_BLOCK, true, 1}};
    check_like_cpu((Form){.every_option = true}, ways, 3, 0.004, 4);
}

// The GELU of a product may be computed in an epilogue: a run with deterministic=False, then two that keep what was the
// fastest.
TEST(cuda_trains_a_gpt_by_what_was_fastest) {
    double want[STEPS], losses[STEPS], norm, want_norm;
    Buffer bits[2] = {{0}, {0}};
    train((Form){.gelu = GELU_TANH}, want, &want_norm, &bits[0]);
    for (int run = 0; run < 3; run++) {
        Form form = {.cuda = true, .gelu = GELU_TANH, .times = !run, .loss_scale = 1024};
        form.recompute = run ? RECOMPUTE_NONE : RECOMPUTE_BLOCK, form.cache_dir = run ? "kept" : NULL;
        if (&emu_order) emu_order = run;
        train(form, losses, &norm, &bits[run / 2]);
        for (int step = 0; step < STEPS; step++) CHECK(fabs(losses[step] - want[step]) < 2e-3 * want[step]);
        CHECK(fabs(norm - want_norm) < 0.02 * want_norm);
    }
    CHECK(same_bits(bits));
    if (&emu_order) emu_order = 0;
    buffer_close(&bits[0]), buffer_close(&bits[1]);
}

TEST(cuda_skips_a_step_that_overflows) {
    double losses[STEPS], norm;
    Buffer bits = {0};
    train((Form){.cuda = true, .loss_scale = is_fp16() ? 0x1p24f : 0x1p127f}, losses, &norm, &bits);
    CHECK(!isfinite(norm));
    for (int step = 0; step < STEPS; step++) CHECK(losses[step] == losses[0] && isfinite(losses[0]));
    buffer_close(&bits);
}
