// Refuses a plan that does not fit, and suggests settings near it that do.
#include "trainer/plan/plan_check.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/host_memory.h"
#include "trainer/plan/plan_auto.h"

enum { SMALL_CHUNK = 256, LEAST_CHUNK = 16 }; // rows of logits

static void add_settings(Buffer *out, const Config *given, const Config *config, size_t bytes) {
    char size[16];
    buffer_print(out, "%s", out->size ? ";" : "");
    for (int key = 0; key < KEY_COUNT; key++) {
        char then[32], now[32];
        if (!config_has_role(key, ROLE_FIT) || config_is_part(key)) continue;
        config_text(given, key, then, sizeof then), config_text(config, key, now, sizeof now);
        if (strcmp(then, now)) buffer_print(out, " --%s=%s", config_key(key), now);
    }
    buffer_print(out, " (%s)", human_bytes(size, (double)bytes));
}

// A search for settings that fit.
typedef struct {
    const Config *given;
    const Optimizer *optimizer; // of the plan that does not fit
    const Backend *backend;
    const MemoryLimits *limits;
    int found;
    int64_t rows; // of the last suggestion: the next must allow a larger batch
    Buffer *out;
} Search;

// Chooses the keys that are auto in the configuration. Returns the size of its arena, 0 if it does not fit.
static size_t size_that_fits(const Search *search, Config config) {
    const ModelShape shape = model_shape(&config);
    Model model;
    MemoryPlan plan;
    model_open(&model, &shape);
    if (search->optimizer) plan_auto_within(&config, &model, search->backend, search->limits);
    memory_plan_init(&plan, &config, &model, search->backend, search->optimizer);
    const bool fits = plan_fits(&plan, search->backend, search->limits);
    model_close(&model);
    return fits ? plan.bytes : 0;
}

// Suggests these settings if they fit. Returns whether they do.
static bool suggest_settings(Search *search, const Config *config) {
    const size_t bytes = size_that_fits(search, *config);
    if (bytes) add_settings(search->out, search->given, config, bytes), search->found++;
    return bytes;
}

// Suggests the largest batch_size that fits, with the same effective batch; without training, the largest
// eval_batch_size, which does not change the loss.
static void suggest_rows(Search *search, Config config) {
    const bool trains = search->optimizer;
    const int64_t given = config.batch_size.value, sequences = given * config.gradient_accumulation_steps;
    for (int64_t rows = trains || !config.eval_batch_size ? given : config.eval_batch_size; rows > search->rows;
         rows--) {
        if (trains && (sequences % rows || sequences / rows < config_world(&config))) continue;
        if (trains) config.batch_size = (AutoInt){false, rows}, config.gradient_accumulation_steps = sequences / rows;
        if (!trains || config.eval_batch_size > rows) config.eval_batch_size = rows;
        if (suggest_settings(search, &config)) search->rows = rows;
    }
}

// Smaller batches, then with more recomputation, smaller logits chunks, shorter sequences, and at last the optimizer
// state, the gradients and the residuals in host memory.
static void suggest_smaller(Search *search, const Config *base) {
    enum { LEVELS = RECOMPUTE_BLOCK + 1, STEPS = LEVELS + 3 };
    const bool trains = search->optimizer;
    const int count = !trains || search->backend->in_host_memory || is_offloaded(base) ? 1 : OFFLOAD_CHOICES;
    for (int i = 0; i < count * STEPS && search->found < 3; i++) {
        Config config = *base;
        const int step = i % STEPS, chunk = step > LEVELS ? LEAST_CHUNK : SMALL_CHUNK;
        const Recompute level = step < LEVELS ? (Recompute)step : RECOMPUTE_BLOCK;
        const bool chooses = !trains || base->recompute == RECOMPUTE_AUTO; // the level, or has no level
        if (chooses ? step > 0 && step < LEVELS : level < base->recompute) continue;
        if (!chooses && level != base->recompute) config.recompute = level, config.recompute_layers = 0;
        if (i >= STEPS) config.offload = offload_choices[i / STEPS];
        if (!offload_allowed(base, config.offload)) continue;
        if (step >= LEVELS && (!config.loss_chunk_rows || config.loss_chunk_rows > chunk))
            config.loss_chunk_rows = chunk;
        if (step > LEVELS + 1 && !trains) break; // the block is the trained model's
        if (step > LEVELS + 1 && config.block_size > 1) config.block_size /= 2;
        suggest_rows(search, config);
    }
}

// Prints up to three settings near those given that fit: first another order of sums and an undivided optimizer state,
// then suggest_smaller's. If none fits, prints the ones that were tried.
static void suggest(const MemoryPlan *plan, const Config *given, const Backend *backend, const MemoryLimits *limits,
                    Buffer *out) {
    const bool trains = plan->optimizer, offloads = trains && !backend->in_host_memory;
    Buffer settings = {0};
    Search search = {given, plan->optimizer, backend, limits, 0, 0, &settings};
    Config fast = *given, whole = *given;
    fast.reduce_order = REDUCE_FAST, whole.zero_stage = 0;
    if (plan->fixed_order) suggest_settings(&search, &fast);
    if (plan->shards > 1) suggest_settings(&search, &whole);
    suggest_smaller(&search, given);
    if (!search.found && trains) suggest_smaller(&search, &fast);
    if (search.found)
        buffer_print(out, "; these fit:%s", (const char *)settings.data);
    else
        buffer_print(out, ", and no batch size fits, even with %s%s%sloss_chunk_rows=%d: take a smaller model",
                     trains ? "recompute=block, " : "", offloads ? "offload, " : "",
                     trains ? "half the block_size and " : "", LEAST_CHUNK);
    buffer_close(&settings);
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
    const int64_t most =
        config->gradient_accumulation_steps * (config->batch_size.is_auto ? config->batch_size.value : 1);
    if (most < world)
        return fail(EX_USAGE,
                    "gradient_accumulation_steps %lld is less than the %u processes: each needs a micro-batch",
                    (long long)most, world);
    if (!offload_allowed(config, config->offload))
        return fail(EX_USAGE, "several processes keep their gradients in the arena: set offload to none or "
                              "optimizer, or start one process");
    return 0;
}

// The arena is too large.
static int refuse_arena(const MemoryPlan *plan, const Config *config, const Backend *backend,
                        const MemoryLimits *limits, const char *near) {
    char need[16], most[16], holders[256] = "";
    human_bytes(need, (double)plan->bytes), human_bytes(most, (double)limits->arena);
    const bool card = !backend->in_host_memory, given = limits->arena == config->mem_limit;
    const char *what = given ? "the limit" : backend->is_planned ? "the card's memory for it" : "the GPU's free memory";
    const char *where = "";
    if (!card && !given) host_memory_free(&where), what = "what the programs leave of ";
    if (!card && !given && config->local_world > 1) what = "the part of a process in what the programs leave of ";
    if (limits->arena == 1) strcpy(most, "nothing");
    if (card && !given && !backend->is_planned) backend->other_processes(holders, sizeof holders);
    return fail(card ? EX_VRAM : EX_MEMORY, "the plan needs %s, %s%s is %s%s%s%s%s", need, what, where, most,
                *holders ? " (" : "", holders, *holders ? ")" : "", near);
}

// There is no room for rank 0's copy.
static int refuse_copy(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits, const char *near) {
    const double count = limits->copy_sharers, each = (double)plan_host_bytes(plan, backend),
                 copy = (double)plan_whole_bytes(plan, limits);
    char need[16], more[16], all[16], most[16];
    const char *where = "";
    host_memory_free(&where);
    return fail(EX_MEMORY,
                "the plan needs %s in each of %u processes and %s in rank 0 for checkpoints of what they divide: %s in "
                "all, and what the programs leave of %s is %s%s",
                human_bytes(need, each), limits->copy_sharers, human_bytes(more, copy),
                human_bytes(all, count * each + copy), where, human_bytes(most, count * (double)limits->host), near);
}

static int check_within(const MemoryPlan *plan, const Config *config, const Backend *backend,
                        const MemoryLimits *limits) {
    if (check_processes(plan, config) < 0) return -1;
    const bool fits = !limits->arena || plan->bytes <= limits->arena;
    if (fits && check_host(plan, backend, limits) < 0) return -1;
    if (plan_fits(plan, backend, limits)) return 0;
    Buffer near = {0};
    suggest(plan, config, backend, limits, &near);
    if (fits)
        refuse_copy(plan, backend, limits, (const char *)near.data);
    else
        refuse_arena(plan, config, backend, limits, (const char *)near.data);
    buffer_close(&near);
    return -1;
}

int memory_plan_check(const MemoryPlan *plan, const Config *config, const Backend *backend, bool here) {
    const MemoryLimits limits = memory_limits(config, backend, here);
    return check_within(plan, config, backend, &limits);
}

int memory_plan_of_run(MemoryPlan *plan, Model *model, Config *config, const Backend *backend, bool here) {
    const Config given = *config;
    const MemoryLimits limits = memory_limits(config, backend, here); // free memory may change from here on
    plan_auto(config, backend, &limits);
    const ModelShape shape = model_shape(config);
    model_open(model, &shape);
    memory_plan_init(plan, config, model, backend, optimizer_for(config));
    return check_within(plan, &given, backend, &limits);
}
