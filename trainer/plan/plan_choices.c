// The table of recompute and optimizer_state: time, size of the arena and largest batch.
#include "trainer/plan/plan_choices.h"
#include "common/log.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/plan/plan_fit.h"
#include "trainer/plan/step_cost.h"

static const char *const level_texts[] = {
#define LEVEL_TEXT(NAME, name, group, seconds, text, ...) text,
    RECOMPUTE_LEVELS(LEVEL_TEXT, )};

static int64_t largest_rows(Config config, int64_t loss_chunk_rows, const Model *model, const Backend *backend,
                            const MemoryLimits *limits) {
    const int64_t most = 1 << 14;
    int64_t fits = 0, too_many = most;
    if (config.eval_batch_size > 1) config.eval_batch_size = 1;
    config.loss_chunk_rows = loss_chunk_rows;
    while (too_many - fits > 1) {
        config.batch_size.value = (fits + too_many) / 2;
        bool fits_limit;
        plan_size(&config, model, backend, limits, &fits_limit);
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

// Prints the levels of the plan, the bytes that they save and the time that they add.
static void print_recompute(const Config *config, const Model *model, const Backend *backend, Buffer *out) {
    const MemoryLimits unlimited = {0};
    Config whole = *config;
    char levels[64], saved[16];
    bool fits;
    whole.recompute = RECOMPUTE_NONE;
    const size_t bytes = plan_size(config, model, backend, &unlimited, &fits);
    human_bytes(saved, (double)(plan_size(&whole, model, backend, &unlimited, &fits) - bytes));
    plan_recompute_text(config, levels, sizeof levels);
    buffer_print(out, "\nrecompute  %s: saves %s, predicted time %+.1f %% (%s)\n", levels, saved,
                 100 * step_cost_recompute(&model->shape, backend, config->recompute, (int)config->recompute_layers),
                 step_cost_source(backend));
}

// Names the first level below the plan's that fits as well.
static void print_spare(const Config *config, const Model *model, const Backend *backend, Buffer *out) {
    const uint64_t most = memory_limits(config, backend, false).arena;
    const MemoryLimits limits = {.arena = most ? most : backend->free_bytes};
    const double cost = step_cost_recompute(&model->shape, backend, config->recompute, (int)config->recompute_layers);
    Config less = *config;
    bool fits = false;
    less.recompute_layers = 0;
    for (int level = RECOMPUTE_NONE; limits.arena && level < (int)config->recompute && !fits; level++) {
        less.recompute = (Recompute)level;
        plan_size(&less, model, backend, &limits, &fits);
    }
    if (!fits) return;
    const double faster = (1 + cost) / (1 + step_cost_recompute(&model->shape, backend, less.recompute, 0));
    buffer_print(
        out, "           the memory has room for --recompute=%s, whose steps are predicted to take %.1f %% less time\n",
        config_word(KEY_recompute, (int)less.recompute), 100 * (1 - 1 / faster));
}

void plan_print_choices(const Config *config, int64_t loss_chunk_rows, const Model *model, const Backend *backend,
                        Buffer *out) {
    const Backend states[] = {with_state(backend, 4, 4), with_state(backend, 4, 2), with_state(backend, 0, 2)};
    const size_t columns = backend->in_host_memory ? 3 : 4; // the last: fp32, in host memory
    const MemoryLimits limits = {.arena = memory_limits(config, backend, false).arena};
    const char *within = limits.arena < config->mem_limit ? "the card's memory" : "mem_limit";
    print_recompute(config, model, backend, out);
    print_spare(config, model, backend, out);
    buffer_print(out, "\n  %-34s %8s %10s  ", "recompute", "time", "arena");
    if (config->mem_limit) buffer_print(out, "largest batch_size in %s, in sequences, by optimizer_state", within);
    buffer_print(out, "\n");
    if (config->mem_limit)
        buffer_print(out, "  %54s  %8s %8s %8s%s\n", "", "fp32", "bf16", "bf16_sr", columns > 3 ? "  offload" : "");
    for (Recompute level = RECOMPUTE_NONE; level <= RECOMPUTE_BLOCK; level++) {
        Config other = *config;
        char bytes[16];
        bool fits;
        other.recompute = level, other.recompute_layers = 0;
        human_bytes(bytes, (double)plan_size(&other, model, backend, &(MemoryLimits){0}, &fits));
        buffer_print(out, "%s %-34s %+6.1f %% %10s ", config->recompute == level ? "*" : " ", level_texts[level],
                     100 * step_cost_recompute(&model->shape, backend, level, 0), bytes);
        for (size_t column = 0; config->mem_limit && column < columns; column++) {
            other.offload = column < 3 ? OFFLOAD_NONE : OFFLOAD_OPTIMIZER;
            buffer_print(out, " %8lld",
                         (long long)largest_rows(other, loss_chunk_rows, model, &states[column % 3], &limits));
        }
        buffer_print(out, "\n");
    }
}
