// Speed on a device. bench_gpu step|trace|gemm|hang [KEY=VALUE...], see the keys at the end: `step` times whole
// training steps, `trace` every operation of one step, `gemm` the largest product there is, `hang` nothing: the stream
// stands still. One JSON object a line. Random weights, and tokens with the frequencies of text.
#include "common/err.h"
#include "common/log.h"
#include "common/machine/processor_time.h"
#include "common/rng.h"
#include "tests/bench/gpu/bench_gpu_trace.h"
#include "tests/small_network.h"
#include "trainer/model/gemm_rate.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/plan/plan_check.h"
#include "trainer/setup/backend_for.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if HAVE_CUDA
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/libraries/nvml.h"
// Of the whole card, by all processes. The first call creates the context of this one, where NVML is missing too.
static double used_bytes(void) {
    size_t left = 0, total = 0;
    return cudaMemGetInfo(&left, &total) == cudaSuccess ? (double)(total - left) : 0;
}
static double device_used_bytes(void) {
    const double used = nvml_used_bytes(0);
    return used >= 0 ? used : used_bytes();
}
// A stream that stands still, as after a kernel that hangs.
static void hang(void *unused) {
    (void)unused;
    pause();
}
static void hang_device(void) { cuda_check(cudaLaunchHostFunc(cuda.stream, hang, NULL), "hanging"); }
#else
static void hang_device(void) {}
static double used_bytes(void) { return 0; }
static double device_used_bytes(void) { return 0; }
#endif

static int L = 12, C = 768, H = 12, T = 1024, B = 16, accumulation = 1, steps = 10, deterministic = 1, timeout, threads;
static int documents;    // tokens of one on average, each masked from the others; 0: no mask
static double mem_limit; // GiB
static char device[16] = "cuda", state[16] = "fp32", gelu[16] = "exact", dtype[16] = "auto", offload[16] = "none",
            recompute[16] = "none", order[16] = "fast";
static const Backend *ops;
static Config config;
static Model model;
static MemoryPlan plan;
static Network network;
static uint16_t *tokens; // a batch, always the same

static void parse_key(int key, const char *text) {
    if (!config_parse(&config, key, text)) die(EX_USAGE, "'%s' is no %s (trainer plan --help)", text, config_key(key));
}

static void open_backend(void) {
    char why[256];
    parse_key(KEY_device, device), parse_key(KEY_dtype, dtype), parse_key(KEY_optimizer_state, state);
    ops = backend_open(&(BackendChoice){.device = config.device,
                                        .dtype = config.dtype,
                                        .deterministic = deterministic,
                                        .optimizer_state = config.optimizer_state,
                                        .matmul_precision = config.matmul_precision,
                                        .cache_dir = backend_cache_dir(),
                                        .timeout_s = timeout,
                                        .threads = threads},
                       why);
    if (!ops) die(err_code(), "%s", err_text());
    fprintf(stderr, "%s\n", why);
}

// Zipf's law with an offset: the k-th most frequent token has a share of about 0.1 / (k + 2.7). The gradient of an
// embedding is a sum over the positions of a token, and uniform tokens would hide that the most frequent one has 3 % of
// them.
static uint16_t zipf_token(double uniform) {
    const double offset = 2.7;
    return (uint16_t)(offset * pow((GPT2_VOCAB + offset) / offset, uniform) - offset);
}

static double used_after_open; // bytes of the card

static void open_network(void) {
    config = default_config();
    config.n_layer = L, config.n_head = H, config.n_embd = C, config.block_size = T, config.batch_size.value = B;
    config.gradient_accumulation_steps = accumulation, config.bias = false, config.eval_batch_size = 1;
    parse_key(KEY_recompute, recompute), parse_key(KEY_gelu, gelu), parse_key(KEY_offload, offload);
    parse_key(KEY_reduce_order, order);
    config.lr_schedule = LR_CONSTANT, config.warmup_iters = 0, config.document_mask = documents;
    config.learning_rate = 6e-5; // at 6e-4 and no warmup the last loss depends on the last bit of the first
    config.mem_limit = (uint64_t)(mem_limit * (1 << 30));
    open_backend();
    used_after_open = used_bytes();
    const MemoryLimits limits = memory_limits(&config, ops, true);
    plan_auto(&config, ops, &limits); // the logits chunk, as a run has it
    ModelShape shape = model_shape(&config);
    model_open(&model, &shape);
    memory_plan_init(&plan, &config, &model, ops, optimizer_of(OPTIMIZER_ADAMW));
    if (memory_plan_check(&plan, &config, ops, true) < 0 || network_open(&network, ops, &model, &plan) < 0)
        die(err_code(), "%s", err_text());
    network_init(&network, 1337);
    size_t count = (size_t)B * (size_t)(T + 1), bytes = (count * 2 + 4095) / 4096 * 4096;
    tokens = aligned_alloc(4096, bytes);
    if (!tokens) die(EX_MEMORY, "no memory for a batch");
    ops->pin(tokens, bytes);
    for (size_t i = 0; i < count; i++) tokens[i] = zipf_token((double)(rng_u64(1, 2, i) >> 11) * 0x1p-53);
    for (size_t i = 0; documents && i < count; i++)
        if (rng_u64(3, 4, i) % (uint64_t)documents == 0) tokens[i] = GPT2_VOCAB - 1;
}

// In float16 at the scale of a run: at 1 the gradients of most logits are zero, and products of zeros draw less power.
static void step(uint64_t update) { // waits for its end
    const float loss_scale = ops->act_type == DTYPE_FP16 ? 65536 : 1;
    step_begin(&network, &config, &(StepPosition){update, update, loss_scale, NULL, NULL});
    for (int micro = 0; micro < accumulation; micro++) {
        network_tokens(&network, &plan.train, tokens, B, T);
        step_micro_batch(&network, 1 / ((float)B * (float)T * (float)accumulation), micro);
    }
    step_end(&network);
}

// ---- whole steps

enum { PASSES = 3 }; // of which the median is printed

static int compare_seconds(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double seconds[PASSES]) {
    qsort(seconds, PASSES, sizeof *seconds, compare_seconds);
    return seconds[PASSES / 2];
}

static double first_token_share(void) {
    const int count = B * (T + 1);
    int first = 0;
    for (int i = 0; i < count; i++) first += tokens[i] == 0;
    return (double)first / count;
}

static int bench_step(void) {
    double best = 1e30, best_used = 1e30, passes[PASSES] = {0};
    setenv("CUDA_MODULE_LOADING", "LAZY", 0);  // as the backend does, before the first call of CUDA
    const double before = device_used_bytes(); // by other processes: this one has no context yet
    open_network();
    const double with_arena = used_bytes();
    for (uint64_t i = 0; i < 4; i++) step(i); // plans, recordings
    for (int i = 0; i < PASSES * steps; i++) {
        const uint64_t start = clock_ns(), used = processor_time().used_ns;
        step((uint64_t)i + 4);
        best_used = fmin(best_used, (double)(processor_time().used_ns - used) * 1e-6);
        double seconds = (double)(clock_ns() - start) * 1e-9;
        passes[i / steps] += seconds / steps;
        if (seconds < best) best = seconds;
    }
    const double seconds = median(passes);
    double per_step = (double)B * T * accumulation;
    // 6 a parameter that is multiplied with, and attention, causal counted once
    double flops = 6 * ((double)model.parameters - (double)T * C) + 6.0 * L * C * T;
    printf(
        "{\"what\": \"step\", \"device\": \"%s\", \"parameters\": %zu, \"L\": %d, \"C\": %d, \"B\": %d, \"T\": %d, "
        "\"recompute\": \"%s\", \"state\": \"%s\", \"gelu\": \"%s\", \"deterministic\": %s, "
        "\"ms\": %.3f, \"best_ms\": %.3f, \"best_processor_ms\": %.3f, \"tokens_per_second\": %.0f, \"flops_per_token\": %.0f, \"loss\": %.4f, "
        "\"most_frequent_token\": %.4f, \"planned_bytes\": %zu, \"before_bytes\": %.0f, \"opened_bytes\": %.0f, "
        "\"arena_bytes\": %.0f, \"end_bytes\": %.0f, \"used_bytes\": %.0f}\n",
        ops->name, model.parameters, L, C, B, T, recompute, state, gelu, deterministic ? "true" : "false",
        seconds * 1e3, best * 1e3, best_used, per_step / seconds, flops, network.scalars->loss / per_step,
        first_token_share(), plan.bytes, before, used_after_open, with_arena, used_bytes(), used_bytes() - before);
    return 0;
}

// ---- one step, operation by operation

static int bench_trace(void) {
    open_network();
    for (uint64_t i = 0; i < 3; i++) step(i); // plans of the products
    const double peak = network_gemm_rate(&network);
    network.ops = trace_open(ops, model.shape.padded_vocab);
    for (uint64_t i = 3; i < 5; i++) { // the first creates the events
        trace_start();
        step(i);
    }
    trace_print(B, peak);
    network.ops = ops;
    trace_close();
    return 0;
}

// ---- the rate that the products of a step are measured by

static int bench_gemm(void) {
    enum { SIZE = 8192, VALUES = 1 << 20 };
    const size_t bytes = (size_t)SIZE * SIZE * 2;
    const Shape shape = {1, 64, 64, 1, 64, 64, 0};
    open_backend();
    if (ops->act_bytes != 2) die(EX_USAGE, "gemm is of bf16, not for device=%s", device);
    size_t scratch_bytes = ops->scratch_bytes(&shape);
    char *arena = ops->alloc(3 * bytes + scratch_bytes);
    uint16_t *values = malloc(VALUES * sizeof *values); // of a normal distribution: zeros would be faster
    if (!arena || !values) die(EX_VRAM, "%s", err_text());
    for (size_t i = 0; i < VALUES; i++) {
        float value = (float)rng_normal(1, 2, i);
        memcpy(&values[i], (char *)&value + 2, 2);
    }
    for (size_t done = 0; done < 2 * bytes; done += VALUES * 2) ops->upload(arena + done, values, VALUES * 2);
    ops->bind_scratch(arena + 3 * bytes, scratch_bytes);
    void *result = arena + 2 * bytes, *in = arena + bytes;
    const Weight w = {(const Par *)arena, NULL, SIZE, SIZE};
    uint64_t start = 0;
    for (int run = 0; run < 3 + steps; run++) { // plain, recorded, replayed
        if (ops->graph_begin(0, true)) ops->matmul_forward(result, in, &w, NULL, SIZE), ops->graph_end(0);
        if (run != 2 && run != 2 + steps) continue;
        ops->download(values, result, 2); // waits
        if (run == 2) start = clock_ns();
    }
    double seconds = (double)(clock_ns() - start) * 1e-9;
    printf("{\"what\": \"gemm\", \"deterministic\": %s, \"tflops\": %.1f}\n", deterministic ? "true" : "false",
           2.0 * SIZE * SIZE * SIZE * steps / seconds * 1e-12);
    free(values);
    ops->release(arena);
    return 0;
}

// ---- a GPU that hangs: exits (80) after device_timeout

static int bench_hang(void) {
    char value;
    open_backend();
    void *memory = ops->alloc(1);
    if (!memory) die(EX_VRAM, "%s", err_text());
    hang_device();
    ops->download(&value, memory, 1);
    return 0;
}

int main(int count, char **arguments) {
    const struct {
        const char *format;
        void *value;
    } keys[] = {
        {"device=%15s", device},
        {"L=%d", &L},
        {"C=%d", &C},
        {"H=%d", &H},
        {"T=%d", &T},
        {"B=%d", &B},
        {"accumulation=%d", &accumulation},
        {"steps=%d", &steps},
        {"recompute=%15s", recompute},
        {"deterministic=%d", &deterministic},
        {"state=%15s", state},
        {"dtype=%15s", dtype},
        {"offload=%15s", offload},
        {"gelu=%15s", gelu},
        {"reduce_order=%15s", order},
        {"timeout=%d", &timeout},
        {"threads=%d", &threads},
        {"documents=%d", &documents},
        {"mem_limit=%lf", &mem_limit},
    };
    if (count < 2) die(EX_USAGE, "usage: bench_gpu step|trace|gemm|hang [KEY=VALUE...]");
    for (int i = 2; i < count; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            known = known || sscanf(arguments[i], keys[k].format, keys[k].value) == 1;
        if (!known) die(EX_USAGE, "not '%s'", arguments[i]);
    }
    int status = !strcmp(arguments[1], "gemm")    ? bench_gemm()
                 : !strcmp(arguments[1], "trace") ? bench_trace()
                 : !strcmp(arguments[1], "hang")  ? bench_hang()
                                                  : bench_step();
    network_close(&network);
    model_close(&model);
    ops->close();
    free(tokens);
    return status;
}
