// Refuses a plan that does not fit, and suggests settings near it that do.
#include "trainer/plan/plan_check.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/host_memory.h"
#include "trainer/plan/plan_fit.h"

static void add_settings(Buffer *out, const Config *given, const Config *config, size_t bytes) {
    const int keys[] = {KEY_batch_size,       KEY_gradient_accumulation_steps,
                        KEY_eval_batch_size,  KEY_recompute,
                        KEY_recompute_layers, KEY_loss_chunk_rows,
                        KEY_block_size,       KEY_offload,
                        KEY_reduce_order};
    char size[16];
    buffer_print(out, "%s", out->size ? ";" : "");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char then[32], now[32];
        config_value(given, keys[i], then, sizeof then), config_value(config, keys[i], now, sizeof now);
        if (strcmp(then, now)) buffer_print(out, " --%s=%s", config_key(keys[i]), now);
    }
    buffer_print(out, " (%s)", human_bytes(size, (double)bytes));
}

// Sets the largest batch_size that fits and keeps the effective batch. Returns the size of the arena, 0: none fits.
static size_t shrink(Config *config, const Backend *backend, const MemoryLimits *limits) {
    int64_t most = config->batch_size.value, sequences = most * config->gradient_accumulation_steps;
    size_t bytes = 0;
    bool fits = false;
    ModelShape shape = model_shape(config);
    Model model;
    model_open(&model, &shape);
    for (int64_t rows = most; rows >= 1 && !fits; rows--) {
        if (sequences % rows || sequences / rows < config_world(config)) continue;
        config->batch_size.value = rows, config->gradient_accumulation_steps = sequences / rows;
        if (config->eval_batch_size > rows) config->eval_batch_size = rows;
        bytes = plan_size(config, &model, backend, limits, &fits);
    }
    model_close(&model);
    return fits ? bytes : 0;
}

// The order of sums that needs less memory.
static int suggest_order(const Config *given, const Backend *backend, const MemoryLimits *limits, Buffer *out) {
    Config config = *given;
    bool fits = false;
    if (given->reduce_order != REDUCE_FIXED) return 0;
    config.reduce_order = REDUCE_FAST;
    ModelShape shape = model_shape(&config);
    Model model;
    model_open(&model, &shape);
    const size_t bytes = plan_size(&config, &model, backend, limits, &fits);
    model_close(&model);
    if (fits) add_settings(out, given, &config, bytes);
    return fits;
}

// Up to three settings near `given` that fit: another order of sums, smaller batches, then more recomputation, smaller logits chunks, shorter
// sequences, and at last the optimizer state, the gradients and the residuals in host memory.
static void suggest(const Config *given, const Backend *backend, const MemoryLimits *limits, Buffer *out) {
    enum { SMALL_CHUNK = 256, LEVELS = RECOMPUTE_BLOCK + 1, STEPS = LEVELS + 2 };
    int64_t rows = 0; // of the last suggestion: the next must allow a larger batch
    int found = suggest_order(given, backend, limits, out);
    const int count = backend->in_host_memory || is_offloaded(given) ? 1 : OFFLOAD_CHOICES;
    for (int i = 0; i < count * STEPS && found < 3; i++) {
        Config config = *given;
        int step = i % STEPS;
        const Recompute level = step < LEVELS ? (Recompute)step : RECOMPUTE_BLOCK;
        if (given->recompute != RECOMPUTE_AUTO && level < given->recompute) continue;
        if (level != given->recompute) config.recompute = level, config.recompute_layers = 0;
        if (i >= STEPS) config.offload = offload_choices[i / STEPS];
        if (!offload_allowed(given, config.offload)) continue;
        if (step >= LEVELS && config.loss_chunk_rows > SMALL_CHUNK) config.loss_chunk_rows = SMALL_CHUNK;
        if (step > LEVELS && config.block_size > 1) config.block_size /= 2;
        size_t bytes = shrink(&config, backend, limits);
        if (!bytes || config.batch_size.value <= rows) continue;
        add_settings(out, given, &config, bytes);
        rows = config.batch_size.value, found++;
    }
}

static int check_host(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits) {
    uint64_t need = plan_host_bytes(plan, backend);
    char state[16], all[16], left[16];
    if (!plan->host_bytes || !limits->host || need <= limits->host) return 0;
    return fail(EX_MEMORY,
                "the plan needs %s of this machine's memory, %s of it for offloaded tensors, and %s are free: "
                "--optimizer_state=bf16 or bf16_sr needs less, --offload=none none",
                human_bytes(all, (double)need), human_bytes(state, (double)plan->host_bytes),
                human_bytes(left, (double)limits->host));
}

static int check_processes(const MemoryPlan *plan, const Config *config) {
    const unsigned world = config_world(config);
    if (!plan->optimizer || world == 1) return 0;
    if (config->gradient_accumulation_steps < world)
        return fail(EX_USAGE,
                    "gradient_accumulation_steps %lld is less than the %u processes: each needs a micro-batch",
                    (long long)config->gradient_accumulation_steps, world);
    if (!offload_allowed(config, config->offload))
        return fail(EX_USAGE, "several processes keep their gradients in the arena: set offload to none, optimizer or "
                              "residuals, or start one process");
    return 0;
}

int memory_plan_check(const MemoryPlan *plan, const Config *config, const Backend *backend, bool here) {
    if (check_processes(plan, config) < 0) return -1;
    const MemoryLimits limits = memory_limits(config, backend, here);
    if (!limits.arena || plan->bytes <= limits.arena) return check_host(plan, backend, &limits);
    Buffer near = {0};
    char need[16], most[16], holders[256] = "";
    suggest(config, backend, &limits, &near);
    human_bytes(need, (double)plan->bytes), human_bytes(most, (double)limits.arena);
    bool card = !backend->in_host_memory, given = limits.arena == config->mem_limit;
    const char *what = given ? "the limit" : "the GPU's free memory", *where = "";
    if (!card && !given) host_memory_free(&where), what = "what the programs leave of ";
    if (limits.arena == 1) strcpy(most, "nothing");
    if (card && !given) backend->other_processes(holders, sizeof holders);
    fail(card ? EX_VRAM : EX_MEMORY, "the plan needs %s, %s%s is %s%s%s%s%s%s", need, what, where, most,
         *holders ? " (" : "", holders, *holders ? ")" : "",
         near.size ? "; these fit:" : ", and no batch size fits: take a smaller model",
         near.size ? (const char *)near.data : "");
    buffer_close(&near);
    return -1;
}
