// A whole GPT through the CUDA backend: steps with accumulation, and the losses of the CPU backend in fp32.
#include "common/rng.h"
#include "tests/small_network.h"
#include "tests/test.h"
#include <math.h>
#include <sys/mman.h>

extern int emu_order __attribute__((weak)); // of the emulator, where there is one

enum { STEPS = 3, MICROS = 2, ROWS = 2, BLOCK = 16, CHANNELS = 64, VOCAB = 200 };

// Batches that repeat, so that there is something to learn in three steps.
static void fill(uint16_t *ids, int micro) {
    for (int i = 0; i < ROWS * (BLOCK + 1); i++) ids[i] = (uint16_t)(rng_u64(7, (uint64_t)micro, (uint64_t)i) % VOCAB);
}

typedef struct {
    BackendChoice on;
    Gelu gelu;
    Recompute recompute;
    bool apart; // the gradient of the residual stream as activations has a place of its own
    float loss_scale;
    bool offload; // the optimizer's state is in host memory
    double dropout;
    OptimizerName optimizer;
} Form;

// For train: every option of the model.
static bool every_option;
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
    if (every_option) set_options(&config);
    char why[256];
    const Backend *backend = backend_open(&form.on, why);
    CHECK(backend);
    Model model;
    MemoryPlan plan;
    Network network;
    plan_network(&model, &plan, &config, backend, VOCAB, form.optimizer);
    CHECK_EQUAL(plan.train.dres_act, plan.train.dres);
    if (form.apart)
        plan.train.dres_act = plan.bytes, plan.bytes += (size_t)ROWS * BLOCK * CHANNELS * backend->act_bytes;
    CHECK(network_open(&network, backend, &model, &plan) == 0);
    network_init(&network, 1337);

    uint16_t *slot = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    backend->pin(slot, 4096);
    const PassLayout *pass = &plan.train;
    config.learning_rate = 3e-3, config.decay_lr = false;
    const float scale = 1.0f / (ROWS * BLOCK * MICROS);
    for (int step = 0; step < STEPS; step++) {
        step_begin(&network, &config, &(StepPosition){(uint64_t)step, (uint64_t)step, form.loss_scale, NULL});
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
    size_t bytes = model.elements * backend->par_bytes;
    buffer_reserve(bits, bytes);
    backend->download(bits->data, network_at(&network, plan.params), bytes);
    bits->size = bytes;
    network_close(&network);
    model_close(&model);
    backend->close();
    munmap(slot, 4096);
}

static const BackendChoice on_cpu = {.device = DEVICE_CPU, .dtype = DTYPE_FP32, .threads = 1, .deterministic = true};

// CUDA in the type that $TEST_DTYPE names, or else the card chooses.
static Form form_of(bool deterministic, Gelu gelu, Recompute recompute, bool apart, float loss_scale, bool offload) {
    Dtype dtype = DTYPE_AUTO;
    if (getenv("TEST_DTYPE")) CHECK(dtype_parse(getenv("TEST_DTYPE"), &dtype));
    return (Form){{.device = DEVICE_CUDA, .dtype = dtype, .threads = 1, .deterministic = deterministic},
                  gelu,
                  recompute,
                  apart,
                  loss_scale,
                  offload,
                  0,
                  OPTIMIZER_ADAMW};
}

static bool is_fp16(void) {
    Form form = form_of(true, GELU_EXACT, RECOMPUTE_NONE, false, 1, false);
    char why[256];
    const Backend *backend = backend_open(&form.on, why);
    CHECK(backend);
    bool fp16 = backend->act_type == DTYPE_FP16;
    backend->close();
    return fp16;
}

TEST(cuda_trains_a_gpt_like_the_cpu) {
    double want[STEPS], losses[STEPS], first[STEPS], norm, want_norm;
    Buffer bits[2] = {{0}, {0}};
    for (int apart = 0; apart < 2; apart++)
        train((Form){on_cpu, GELU_EXACT, RECOMPUTE_NONE, apart, 1, false, 0, OPTIMIZER_ADAMW}, want, &want_norm,
              &bits[apart]);
    CHECK(!memcmp(bits[0].data, bits[1].data, bits[0].size));
    CHECK(want[STEPS - 1] < want[0] - 0.5); // it does learn
    const bool fp16 = is_fp16();
    const double rounded_once = fp16 ? 0.00025 : 0.002;
    const Recompute levels[] = {RECOMPUTE_NONE, RECOMPUTE_NORM, RECOMPUTE_BLOCK, RECOMPUTE_MLP,
                                RECOMPUTE_QKV}; // recomputed activations have the same bits,
    const float scales[] = {1, 1024, 1, 0x1p14f,
                            1}; // so have gradients times a power of two in bf16, and an offloaded optimizer
    for (int run = 0; run < 5; run += getenv("PAIR_ORDERS") ? 2 : 1) {
        if (&emu_order) emu_order = run % 4;
        Buffer *now = &bits[run > 0];
        now->size = 0;
        train(form_of(true, GELU_EXACT, levels[run], run == 0, fp16 ? 1024 : scales[run], run > 1), losses, &norm, now);
        for (int step = 0; step < STEPS; step++) {
            if (getenv("PAIR_VERBOSE")) print_message("loss %.5f, the CPU's %.5f\n", losses[step], want[step]);
            CHECK(fabs(losses[step] - want[step]) < rounded_once * want[step]);
        }
        CHECK(fabs(norm - want_norm) < 10 * rounded_once * want_norm);
        if (run == 0) memcpy(first, losses, sizeof first);
        CHECK(!memcmp(first, losses, sizeof first));
        CHECK(run == 0 || (bits[0].size == bits[1].size && !memcmp(bits[0].data, bits[1].data, bits[0].size)));
    }
    buffer_close(&bits[0]), buffer_close(&bits[1]);
}

// Trains as `cpu` says, which differs from plain AdamW, on CUDA: kept, then offloaded and with `again` computed again.
// The losses are near those of the CPU, and closer to them than to those of plain AdamW by far; both have the same
// bits.
static void check_like_cpu(Form cpu, Recompute again, double rounded_once, double difference) {
    double want[STEPS], losses[STEPS], plain[STEPS], norm, want_norm;
    Buffer bits[2] = {{0}, {0}};
    train((Form){on_cpu, GELU_EXACT, RECOMPUTE_NONE, false, 1, false, 0, OPTIMIZER_ADAMW}, plain, &norm, &bits[0]);
    train(cpu, want, &want_norm, &bits[0]);
    const bool fp16 = is_fp16();
    if (fp16) rounded_once /= 8;
    if (getenv("PAIR_VERBOSE"))
        for (int step = 0; step < STEPS; step++) print_message("%.5f, plain %.5f\n", want[step], plain[step]);
    CHECK(fabs(want[STEPS - 1] - plain[STEPS - 1]) > difference * rounded_once * want[STEPS - 1]);
    for (int run = 0; run < 2; run++) {
        if (&emu_order) emu_order = run * 3;
        Form form = form_of(true, GELU_EXACT, run ? again : RECOMPUTE_NONE, !run, fp16 ? 1024 : 1, run);
        form.dropout = cpu.dropout, form.optimizer = cpu.optimizer;
        bits[run].size = 0;
        train(form, losses, &norm, &bits[run]);
        for (int step = 0; step < STEPS; step++) {
            if (getenv("PAIR_VERBOSE")) print_message("loss %.5f, the CPU's %.5f\n", losses[step], want[step]);
            CHECK(fabs(losses[step] - want[step]) < rounded_once * want[step]);
        }
        CHECK(fabs(norm - want_norm) < 10 * rounded_once * want_norm);
        CHECK(run == 0 || (bits[0].size == bits[1].size && !memcmp(bits[0].data, bits[1].data, bits[0].size)));
    }
    if (&emu_order) emu_order = 0;
    buffer_close(&bits[0]), buffer_close(&bits[1]);
}

// The masks of the CPU at every site, whatever is computed again.
TEST(cuda_trains_a_gpt_with_dropout_like_the_cpu) {
    check_like_cpu((Form){on_cpu, GELU_EXACT, RECOMPUTE_NONE, false, 1, false, 0.5, OPTIMIZER_ADAMW}, RECOMPUTE_BLOCK,
                   0.004, 4);
}

// With Muon, whose matrices are whole slices when its state is offloaded.
TEST(cuda_trains_a_gpt_with_muon_like_the_cpu) {
    check_like_cpu((Form){on_cpu, GELU_EXACT, RECOMPUTE_NONE, false, 1, false, 0, OPTIMIZER_MUON}, RECOMPUTE_NONE,
                   0.002, 2);
}

// With the GELU that an epilogue may do: deterministic=False, then two runs that keep what was the fastest.
TEST(cuda_trains_a_gpt_by_what_was_fastest) {
    double want[STEPS], losses[STEPS], norm, want_norm;
    Buffer bits[3] = {{0}, {0}, {0}};
    train((Form){on_cpu, GELU_TANH, RECOMPUTE_NONE, false, 1, false, 0, OPTIMIZER_ADAMW}, want, &want_norm, &bits[0]);
    for (int run = 0; run < 3; run++) {
        Form form = form_of(run > 0, GELU_TANH, run ? RECOMPUTE_NONE : RECOMPUTE_BLOCK, false, 1024, false);
        if (&emu_order) emu_order = run;
        form.on.cache_dir = run ? "kept" : NULL;
        bits[run].size = 0;
        train(form, losses, &norm, &bits[run]);
        for (int step = 0; step < STEPS; step++) CHECK(fabs(losses[step] - want[step]) < 2e-3 * want[step]);
        CHECK(fabs(norm - want_norm) < 0.02 * want_norm);
    }
    CHECK(bits[1].size == bits[2].size && !memcmp(bits[1].data, bits[2].data, bits[1].size));
    for (int run = 0; run < 3; run++) buffer_close(&bits[run]);
    if (&emu_order) emu_order = 0;
}

TEST(cuda_skips_a_step_that_overflows) {
    double losses[STEPS], norm;
    Buffer bits = {0};
    train(form_of(true, GELU_EXACT, RECOMPUTE_NONE, false, is_fp16() ? 0x1p24f : 0x1p127f, false), losses, &norm,
          &bits);
    CHECK(!isfinite(norm));
    for (int step = 0; step < STEPS; step++) CHECK(losses[step] == losses[0] && isfinite(losses[0]));
    buffer_close(&bits);
}

TEST(cuda_trains_a_gpt_with_every_option_like_the_cpu) {
    double want[STEPS], losses[STEPS], without[STEPS], norm, want_norm;
    Buffer bits[2] = {{0}, {0}};
    const Form cpu = {.on = on_cpu, .gelu = GELU_EXACT, .recompute = RECOMPUTE_NONE, .loss_scale = 1};
    train(cpu, without, &want_norm, &bits[0]);
    every_option = true;
    train(cpu, want, &want_norm, &bits[0]);
    const bool fp16 = is_fp16();
    const double rounded_once = fp16 ? 0.0005 : 0.004;
    CHECK(fabs(want[STEPS - 1] - without[STEPS - 1]) > 4 * rounded_once * want[STEPS - 1]); // the losses can tell
    const Recompute levels[] = {RECOMPUTE_NONE, RECOMPUTE_QKV, RECOMPUTE_BLOCK};
    for (int run = 0; run < 3; run += getenv("PAIR_ORDERS") ? 2 : 1) {
        if (&emu_order) emu_order = run;
        Buffer *now = &bits[run > 0];
        now->size = 0;
        train(form_of(true, GELU_EXACT, levels[run], !run, fp16 ? 1024 : 1, run), losses, &norm, now);
        for (int step = 0; step < STEPS; step++) {
            if (getenv("PAIR_VERBOSE")) print_message("loss %.5f, the CPU's %.5f\n", losses[step], want[step]);
            CHECK(fabs(losses[step] - want[step]) < rounded_once * want[step]);
        }
        CHECK(fabs(norm - want_norm) < 10 * rounded_once * want_norm);
        CHECK(run == 0 || (bits[0].size == bits[1].size && !memcmp(bits[0].data, bits[1].data, bits[0].size)));
    }
    every_option = false;
    if (&emu_order) emu_order = 0;
    buffer_close(&bits[0]), buffer_close(&bits[1]);
}
