// Chooses settings that fit: values for the keys that are auto, and suggestions when a plan does not fit.
#include "trainer/plan/plan_auto.h"
#include "common/err.h"
#include "common/log.h"
#include "trainer/plan/step_cost.h"
#include <math.h>
#include <stdio.h>

static const char *const level_texts[] = {
    [RECOMPUTE_NONE] = "none: all kept",
    [RECOMPUTE_GELU] = "gelu: GELU computed again",
    [RECOMPUTE_NORM] = "norm: and the norms",
    [RECOMPUTE_MLP] = "mlp: and the input of GELU",
    [RECOMPUTE_QKV] = "qkv: and queries, keys, values",
    [RECOMPUTE_BLOCK] = "block: whole blocks computed again",
};
enum { LEVELS = RECOMPUTE_BLOCK + 1 };

static bool is_cpu(const Backend *backend) { return backend->in_host_memory; }
static bool is_offloaded(const Config *config) { return config->offload && config->offload != OFFLOAD_AUTO; }

// The modes that `auto` tries, from fast to slow: the next one only where the one before it does not fit.
static const OffloadMode places[] = {OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_OPTIMIZER_GRADIENTS, OFFLOAD_ALL};
enum { PLACES = sizeof places / sizeof *places };

// Memory available to a plan, in bytes. 0: not known.
typedef struct {
    uint64_t arena, host;
} Available;

static Available available_memory(const Config *config, const Backend *backend, bool here) {
    return (Available){plan_limit(config, backend, here), here ? plan_host_memory() : 0};
}

static uint64_t host_need(const MemoryPlan *plan, const Backend *backend) {
    return plan->host_bytes + (is_cpu(backend) ? plan->bytes : 0);
}

// Returns the size of the arena.
static size_t try_plan(const Config *config, const Model *model, const Backend *backend, const Available *available,
                       bool *fits) {
    MemoryPlan plan;
    memory_plan_init(&plan, config, model, backend, optimizer_of(config->optimizer));
    *fits = (!available->arena || plan.bytes <= available->arena) &&
            (!available->host || host_need(&plan, backend) <= available->host);
    return plan.bytes;
}

// ---- keys that are auto

// Relative time per token. Each micro-batch has a fixed cost, expressed in tokens: launches on a GPU, where 4 sequences
// of 1024 tokens run at half the speed of 64; packing of weights and ends of parallel loops on a CPU.
static double token_time(const Config *config, const Model *model, const Backend *backend) {
    const double fixed = is_cpu(backend) ? 256 : 4096;
    return (1 + step_cost_recompute(&model->shape, backend, config->recompute, (int)config->recompute_layers)) *
           (1 + fixed / (double)(config->batch_size.value * config->block_size));
}

// Mixes of recompute from `none` to `block`, by number: each recomputes one more layer than the one before it, and
// takes more time and less memory.
static int plan_count(const Model *model) { return (LEVELS - 1) * model->shape.layers + 1; }

static void set_recompute(Config *config, const Model *model, int place) {
    const int layers = model->shape.layers, level = (place + layers - 1) / layers, more = place % layers;
    config->recompute = (Recompute)level, config->recompute_layers = more;
}

// Sets the first of the plans that fits, if recompute is to be chosen; the last if none fits. Returns the arena's size.
static size_t fit_recompute(Config *config, const Config *asked, const Model *model, const Backend *backend,
                            const Available *available, bool *fits) {
    if (asked->recompute != RECOMPUTE_AUTO) return try_plan(config, model, backend, available, fits);
    int too_large = -1, found = plan_count(model) - 1;
    for (int place = 0; found - too_large > 1; place = (too_large + found) / 2) { // first all kept, then by bisection
        set_recompute(config, model, place);
        try_plan(config, model, backend, available, fits);
        if (*fits)
            found = place;
        else
            too_large = place;
    }
    set_recompute(config, model, found);
    return try_plan(config, model, backend, available, fits);
}

// Sets `config` to the fastest plan that fits and is faster than `best`, else to the smallest below `least`. Offload is
// as in `asked`.
static void choose(Config *config, const Config *asked, const Model *model, const Backend *backend,
                   const Available *available, double *best, size_t *least) {
    const double worth = 0.995; // a larger plan must be at least 0.5 % faster
    const int64_t rows_asked = asked->batch_size.value, sequences = rows_asked * asked->gradient_accumulation_steps;
    const bool cut = asked->batch_size.is_auto && asked->mem_limit;
    Config tried = *asked;
    for (int64_t rows = cut ? 1 : rows_asked; rows <= (cut ? sequences : rows_asked); rows++) {
        if (sequences % (rows * config_world(asked))) continue;
        tried.batch_size = (AutoInt){false, rows}, tried.gradient_accumulation_steps = sequences / rows;
        bool fits;
        const size_t bytes = fit_recompute(&tried, asked, model, backend, available, &fits);
        const double time = fits ? token_time(&tried, model, backend) : INFINITY;
        if (fits ? time < *best * worth : *best == INFINITY && bytes < *least) *config = tried, *best = time;
        if (bytes < *least) *least = bytes;
        if (!fits) break; // larger batches do not fit either
    }
}

// On a GPU the head runs at the full rate from some 4,000 rows on, and a chunk of logits lies where the gradient of fc
// does: as many rows as need no more memory than LOSS_CHUNK_ROWS do, and more within a mem_limit.
static int64_t choose_chunk(const Config *config, const Model *model, const Backend *backend) {
    enum { MOST = 16384, UNIT = 128 };
    const int64_t rows = config->batch_size.value * config->block_size, most = rows < MOST ? rows : MOST;
    const Available limit = {config->mem_limit, 0};
    Config tried = *config;
    bool fits;
    tried.loss_chunk_rows = LOSS_CHUNK_ROWS;
    const size_t least = try_plan(&tried, model, backend, &limit, &fits);
    for (int64_t chunk = is_cpu(backend) ? 0 : most / UNIT * UNIT; chunk > LOSS_CHUNK_ROWS; chunk -= UNIT) {
        tried.loss_chunk_rows = chunk;
        if (try_plan(&tried, model, backend, &limit, &fits) <= least || (config->mem_limit && fits)) return chunk;
    }
    return LOSS_CHUNK_ROWS;
}

void plan_auto(Config *config, const Backend *backend, bool here) {
    Config asked = *config;
    const Available available = available_memory(&asked, backend, here);
    const int64_t rows_asked = asked.batch_size.value;
    const bool automatic = asked.offload == OFFLOAD_AUTO;
    double best = INFINITY;
    size_t least = SIZE_MAX;
    ModelShape shape = model_shape(config);
    Model model;
    model_open(&model, &shape);
    if (asked.batch_size.is_auto && !asked.eval_tokens) // keeps the number of evaluated tokens
        asked.eval_tokens = asked.eval_iters * rows_asked * config_eval_block(&asked);
    for (int i = 0; i < (automatic && !is_cpu(backend) ? PLACES : 1) && best == INFINITY; i++) {
        if (automatic) asked.offload = places[i];
        if (config_world(config) > 1 && asked.offload & OFFLOAD_GRADIENTS) continue; // check_processes refuses it
        choose(config, &asked, &model, backend, &available, &best, &least);
        least = 0; // if nothing fits: the smallest plan without offload
    }
    if (!config->loss_chunk_rows) config->loss_chunk_rows = choose_chunk(config, &model, backend);
    model_close(&model);
    bool moved = automatic && is_offloaded(config);
    if (best == INFINITY) return; // nothing fits: memory_plan_check prints what would
    if (config->batch_size.value == rows_asked &&
        (config->recompute == asked.recompute || config->recompute == RECOMPUTE_NONE) && !moved)
        return;
    char size[16], levels[64], away[32];
    plan_recompute_text(config, levels, sizeof levels);
    config_value(config, KEY_offload, away, sizeof away);
    log_line("for %s: batch_size %lld, gradient_accumulation_steps %lld, recompute %s%s%s",
             human_bytes(size, (double)available.arena), (long long)config->batch_size.value,
             (long long)config->gradient_accumulation_steps, levels, moved ? ", offload " : "", moved ? away : "");
}

// ---- suggestions

static void add_settings(Buffer *out, const Config *asked, const Config *config, size_t bytes) {
    const int keys[] = {KEY_batch_size,       KEY_gradient_accumulation_steps,
                        KEY_eval_batch_size,  KEY_recompute,
                        KEY_recompute_layers, KEY_loss_chunk_rows,
                        KEY_block_size,       KEY_offload};
    char size[16];
    buffer_print(out, "%s", out->size ? ";" : "");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char then[32], now[32];
        config_value(asked, keys[i], then, sizeof then), config_value(config, keys[i], now, sizeof now);
        if (strcmp(then, now)) buffer_print(out, " --%s=%s", config_key(keys[i]), now);
    }
    buffer_print(out, " (%s)", human_bytes(size, (double)bytes));
}

// Sets the largest batch_size that fits and keeps the effective batch. Returns the size of the arena, 0: none fits.
static size_t shrink(Config *config, const Backend *backend, const Available *available) {
    int64_t most = config->batch_size.value, sequences = most * config->gradient_accumulation_steps;
    size_t bytes = 0;
    bool fits = false;
    ModelShape shape = model_shape(config);
    Model model;
    model_open(&model, &shape);
    for (int64_t rows = most; rows >= 1 && !fits; rows--) {
        if (sequences % (rows * config_world(config))) continue;
        config->batch_size.value = rows, config->gradient_accumulation_steps = sequences / rows;
        if (config->eval_batch_size > rows) config->eval_batch_size = rows;
        bytes = try_plan(config, &model, backend, available, &fits);
    }
    model_close(&model);
    return fits ? bytes : 0;
}

// Up to three settings near `asked` that fit: smaller batches, then more recomputation, smaller logits chunks, shorter
// sequences, and at last the optimizer state, the gradients and the residuals in host memory.
static void suggest(const Config *asked, const Backend *backend, const Available *available, Buffer *out) {
    enum { SMALL_CHUNK = 256, STEPS = LEVELS + 2 };
    int64_t rows = 0; // of the last suggestion: the next must allow a larger batch
    int found = 0, count = is_cpu(backend) || is_offloaded(asked) ? 1 : PLACES;
    for (int i = 0; i < count * STEPS && found < 3; i++) {
        Config config = *asked;
        int step = i % STEPS;
        const Recompute level = step < LEVELS ? (Recompute)step : RECOMPUTE_BLOCK;
        if (asked->recompute != RECOMPUTE_AUTO && level < asked->recompute) continue;
        if (level != asked->recompute) config.recompute = level, config.recompute_layers = 0;
        if (i >= STEPS) config.offload = places[i / STEPS];
        if (config_world(asked) > 1 && config.offload & OFFLOAD_GRADIENTS) continue;
        if (step >= LEVELS && config.loss_chunk_rows > SMALL_CHUNK) config.loss_chunk_rows = SMALL_CHUNK;
        if (step > LEVELS && config.block_size > 1) config.block_size /= 2;
        size_t bytes = shrink(&config, backend, available);
        if (!bytes || config.batch_size.value <= rows) continue;
        add_settings(out, asked, &config, bytes);
        rows = config.batch_size.value, found++;
    }
}

static int check_host(const MemoryPlan *plan, const Backend *backend, const Available *available) {
    uint64_t need = host_need(plan, backend);
    char state[16], all[16], left[16];
    if (!plan->host_bytes || !available->host || need <= available->host) return 0;
    return fail(EX_MEMORY,
                "the plan needs %s of this machine's memory, %s of it for what is offloaded, and %s are free: "
                "--optimizer_state=bf16 or bf16_sr needs less, --offload=none none",
                human_bytes(all, (double)need), human_bytes(state, (double)plan->host_bytes),
                human_bytes(left, (double)available->host));
}

static int check_processes(const MemoryPlan *plan, const Config *config) {
    const unsigned world = config_world(config);
    if (!plan->optimizer || world == 1) return 0;
    if (config->gradient_accumulation_steps % world)
        return fail(EX_USAGE, "gradient_accumulation_steps %lld does not divide by the %u processes",
                    (long long)config->gradient_accumulation_steps, world);
    if (config->offload & OFFLOAD_GRADIENTS)
        return fail(EX_USAGE, "several processes keep their gradients in the arena: set offload to none, optimizer or "
                              "residuals, or start one process");
    if (plan->shards > 1 && plan->optimizer->whole_kinds)
        return fail(EX_USAGE,
                    "optimizer=%s updates whole matrices, which several processes cannot divide: set zero_stage=0, and "
                    "each has all of its state",
                    plan->optimizer->name);
    return 0;
}

int memory_plan_check(const MemoryPlan *plan, const Config *config, const Backend *backend, bool here) {
    if (check_processes(plan, config) < 0) return -1;
    const Available available = available_memory(config, backend, here);
    if (!available.arena || plan->bytes <= available.arena) return check_host(plan, backend, &available);
    Buffer near = {0};
    char need[16], most[16], holders[256] = "";
    suggest(config, backend, &available, &near);
    human_bytes(need, (double)plan->bytes), human_bytes(most, (double)available.arena);
    bool card = !is_cpu(backend), asked = available.arena == config->mem_limit;
    const char *what = asked  ? "the limit"
                       : card ? "the GPU's free memory"
                              : "the memory that is free on this machine or in its control group";
    if (card && !asked) backend->other_processes(holders, sizeof holders);
    fail(card ? EX_VRAM : EX_MEMORY, "the plan needs %s, %s is %s%s%s%s%s%s", need, what, most, *holders ? " (" : "",
         holders, *holders ? ")" : "", near.size ? "; these fit:" : ", and no batch size fits: take a smaller model",
         near.size ? (const char *)near.data : "");
    buffer_close(&near);
    return -1;
}

// ---- table of choices

static int64_t largest_rows(Config config, int64_t loss_chunk_rows, const Model *model, const Backend *backend) {
    const int64_t most = 1 << 14;
    int64_t fits = 0, too_many = most;
    if (config.eval_batch_size > 1) config.eval_batch_size = 1;
    config.loss_chunk_rows = loss_chunk_rows;
    while (too_many - fits > 1) {
        config.batch_size.value = (fits + too_many) / 2;
        bool fits_limit;
        try_plan(&config, model, backend, &(Available){config.mem_limit, 0}, &fits_limit);
        if (fits_limit)
            fits = config.batch_size.value;
        else
            too_many = config.batch_size.value;
    }
    return fits;
}

// The facts of the backend with another optimizer_state.
static Backend with_state(const Backend *backend, size_t master_bytes, size_t moment_bytes) {
    Backend other = *backend;
    other.master_bytes = backend->par_bytes == sizeof(float) ? 0 : master_bytes, other.moment_bytes = moment_bytes;
    return other;
}

void plan_recompute_text(const Config *config, char *text, size_t size) {
    char level[16], below[16];
    const int64_t layers = config->recompute_layers;
    Config other = *config;
    config_value(config, KEY_recompute, level, sizeof level);
    snprintf(text, size, "%s", level);
    if (!config->recompute || !layers || layers >= config->n_layer) return;
    other.recompute--;
    config_value(&other, KEY_recompute, below, sizeof below);
    snprintf(text, size, "%s in %lld layers, %s in %lld", level, (long long)layers, below,
             (long long)(config->n_layer - layers));
}

// Prints the levels of the plan, the bytes that they save and the time that they add.
static void print_recompute(const Config *config, const Model *model, const Backend *backend, Buffer *out) {
    const Available unlimited = {0, 0};
    Config whole = *config;
    char levels[64], saved[16];
    bool fits;
    whole.recompute = RECOMPUTE_NONE;
    const size_t bytes = try_plan(config, model, backend, &unlimited, &fits);
    human_bytes(saved, (double)(try_plan(&whole, model, backend, &unlimited, &fits) - bytes));
    plan_recompute_text(config, levels, sizeof levels);
    buffer_print(out, "\nrecompute  %s: saves %s, predicted time %+.1f %% (%s)\n", levels, saved,
                 100 * step_cost_recompute(&model->shape, backend, config->recompute, (int)config->recompute_layers),
                 step_cost_source(backend));
}

void plan_print_choices(const Config *config, int64_t loss_chunk_rows, const Model *model, const Backend *backend,
                        Buffer *out) {
    const Backend states[] = {with_state(backend, 4, 4), with_state(backend, 4, 2), with_state(backend, 0, 2)};
    const size_t columns = is_cpu(backend) ? 3 : 4; // the last: fp32, in host memory
    const char *title = config->mem_limit ? "largest batch_size in mem_limit, by optimizer_state" : "";
    print_recompute(config, model, backend, out);
    buffer_print(out, "\n  %-34s %8s %10s  %s\n", "recompute", "time", "arena", title);
    if (config->mem_limit)
        buffer_print(out, "  %54s  %8s %8s %8s%s\n", "", "fp32", "bf16", "bf16_sr", columns > 3 ? "  offload" : "");
    for (Recompute level = RECOMPUTE_NONE; level <= RECOMPUTE_BLOCK; level++) {
        Config other = *config;
        char bytes[16];
        bool fits;
        other.recompute = level, other.recompute_layers = 0;
        human_bytes(bytes, (double)try_plan(&other, model, backend, &(Available){0, 0}, &fits));
        buffer_print(out, "%s %-34s %+6.1f %% %10s ", config->recompute == level ? "*" : " ", level_texts[level],
                     100 * step_cost_recompute(&model->shape, backend, level, 0), bytes);
        for (size_t column = 0; config->mem_limit && column < columns; column++) {
            other.offload = column < 3 ? OFFLOAD_NONE : OFFLOAD_OPTIMIZER;
            buffer_print(out, " %8lld", (long long)largest_rows(other, loss_chunk_rows, model, &states[column % 3]));
        }
        buffer_print(out, "\n");
    }
}
