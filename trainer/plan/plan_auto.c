// Chooses the fastest settings that fit, for the keys that are auto.
#include "trainer/plan/plan_auto.h"
#include "common/log.h"
#include "trainer/plan/plan_fit.h"
#include "trainer/plan/step_cost.h"
#include <math.h>
#include <stdio.h>

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

// Relative time per token. Processes without a micro-batch in the last round wait.
static double token_time(const Config *config, const Model *model, const Backend *backend) {
    const double sums = config->reduce_order == REDUCE_FIXED ? step_cost_order(model, backend, config) : 0;
    return (1 + step_cost_recompute(&model->shape, backend, config->recompute, (int)config->recompute_layers) + sums) *
           (1 + step_cost_fixed(backend) / (double)(config->batch_size.value * config->block_size)) *
           (double)(config_rounds(config) * config_world(config)) / (double)config->gradient_accumulation_steps;
}

// Mixes of two levels of recompute are numbered from `none` to `block`: mix i + 1 recomputes one more layer than mix i,
// and needs more time and less memory.
static int mix_count(const Model *model) { return RECOMPUTE_BLOCK * model->shape.layers + 1; }

static void set_mix(Config *config, const Model *model, int mix) {
    const int layers = model->shape.layers, level = (mix + layers - 1) / layers, more = mix % layers;
    config->recompute = (Recompute)level, config->recompute_layers = more;
}

// Sets the first of the plans that fits, if recompute is to be chosen; the last if none fits. Returns the arena's size.
static size_t fit_recompute(Config *config, const Config *given, const Model *model, const Backend *backend,
                            const MemoryLimits *limits, bool *fits) {
    if (given->recompute != RECOMPUTE_AUTO) return plan_size(config, model, backend, limits, fits);
    int too_large = -1, found = mix_count(model) - 1;
    for (int mix = 0; found - too_large > 1; mix = (too_large + found) / 2) { // first all kept, then by bisection
        set_mix(config, model, mix);
        plan_size(config, model, backend, limits, fits);
        if (*fits)
            found = mix;
        else
            too_large = mix;
    }
    set_mix(config, model, found);
    return plan_size(config, model, backend, limits, fits);
}

// Sets `config` to the fastest plan that fits and is faster than `best`, else to the smallest below `least`. Offload is
// as in `given`.
static void choose(Config *config, const Config *given, const Model *model, const Backend *backend,
                   const MemoryLimits *limits, double *best, size_t *least) {
    const double worth = 0.995; // a larger plan must be at least 0.5 % faster
    const int64_t rows_given = given->batch_size.value, sequences = rows_given * given->gradient_accumulation_steps;
    const bool each_has_one = given->gradient_accumulation_steps >= config_world(given);
    const bool cut = given->batch_size.is_auto && (given->mem_limit || !each_has_one);
    Config candidate = *given;
    for (int64_t rows = cut ? 1 : rows_given; rows <= (cut ? sequences : rows_given); rows++) {
        if (sequences % rows || sequences / rows < config_world(given)) continue;
        candidate.batch_size = (AutoInt){false, rows}, candidate.gradient_accumulation_steps = sequences / rows;
        bool fits;
        const size_t bytes = fit_recompute(&candidate, given, model, backend, limits, &fits);
        const double time = fits ? token_time(&candidate, model, backend) : INFINITY;
        if (fits ? time < *best * worth : *best == INFINITY && bytes < *least) *config = candidate, *best = time;
        if (bytes < *least) *least = bytes;
        if (!fits) break; // larger batches do not fit either
    }
}

// On a GPU the head runs at the full rate from some 4,000 rows on, but the gradient of its weights is read and written
// for each chunk, which has the place of fc's gradient: as many rows as need no more memory than LOSS_CHUNK_ROWS do,
// and more within a mem_limit, or else a third of the card. Free memory must not count: bits depend on the chunk.
static int64_t choose_chunk(const Config *config, const Model *model, const Backend *backend) {
    enum { MOST = 16384, UNIT = 128 };
    const int64_t rows = config->batch_size.value * config->block_size, most = rows < MOST ? rows : MOST;
    const MemoryLimits limit = {.arena = config->mem_limit};
    Config candidate = *config;
    bool fits;
    candidate.loss_chunk_rows = LOSS_CHUNK_ROWS;
    const size_t least = plan_size(&candidate, model, backend, &limit, &fits);
    for (int64_t chunk = backend->in_host_memory ? 0 : most / UNIT * UNIT; chunk > LOSS_CHUNK_ROWS; chunk -= UNIT) {
        candidate.loss_chunk_rows = chunk;
        const size_t bytes = plan_size(&candidate, model, backend, &limit, &fits);
        if (bytes <= least || (config->mem_limit ? fits : bytes <= backend->memory_bytes / 3)) return chunk;
    }
    return LOSS_CHUNK_ROWS;
}

static void log_choice(const Config *config, uint64_t arena, bool offload_chosen) {
    char size[16], levels[64], mode[32];
    plan_recompute_text(config, levels, sizeof levels);
    config_value(config, KEY_offload, mode, sizeof mode);
    log_line("for %s: batch_size %lld, gradient_accumulation_steps %lld, recompute %s%s%s",
             human_bytes(size, (double)arena), (long long)config->batch_size.value,
             (long long)config->gradient_accumulation_steps, levels, offload_chosen ? ", offload " : "",
             offload_chosen ? mode : "");
}

// Sets the keys that `given` leaves to the plan. Returns the predicted time per token, INFINITY when nothing fits: then
// the settings are the smallest without offload.
static double choose_settings(Config *config, Config given, const Model *model, const Backend *backend,
                              const MemoryLimits *limits) {
    const bool automatic = given.offload == OFFLOAD_AUTO;
    double best = INFINITY;
    size_t least = SIZE_MAX;
    *config = given;
    config->batch_size.is_auto = false; // also if a step has less sequences than there are processes
    for (int i = 0; i < (automatic && !backend->in_host_memory ? OFFLOAD_CHOICES : 1) && best == INFINITY; i++) {
        if (automatic) given.offload = offload_choices[i];
        if (!offload_allowed(&given, given.offload)) continue;
        choose(config, &given, model, backend, limits, &best, &least);
        least = 0; // if nothing fits: the smallest plan without offload
    }
    return best;
}

// The order is part of the bits of a run, so it depends on mem_limit, and neither on free memory nor on the number of
// processes of a machine; but a network between machines would carry the gradients of each micro-batch. If it needed
// more in host memory, it would cost copies, whose time is not predicted.
static ReduceOrder choose_order(const Config *given, const Model *model, const Backend *backend) {
    const double worth = 1.02; // the most that the same bits for any number of processes may cost
    const MemoryLimits limits = {.arena = given->mem_limit};
    Config alone = *given, least, chosen;
    if (config_spans_machines(given)) return REDUCE_FAST;
    alone.world = 1, alone.reduce_order = REDUCE_FAST;
    const double fast = choose_settings(&least, alone, model, backend, &limits);
    if (fast == INFINITY) return step_cost_order(model, backend, &alone) <= worth - 1 ? REDUCE_FIXED : REDUCE_FAST;
    alone.reduce_order = REDUCE_FIXED;
    const double fixed = choose_settings(&chosen, alone, model, backend, &limits);
    return fixed <= worth * fast && chosen.offload == least.offload ? REDUCE_FIXED : REDUCE_FAST;
}

double plan_auto_within(Config *config, const Model *model, const Backend *backend, const MemoryLimits *limits) {
    Config given = *config;
    if (config_shards(&given) > 1 && optimizer_of(given.optimizer)->whole_kinds) given.zero_stage = 0;
    if (given.batch_size.is_auto) given.eval_tokens = config_eval_tokens(&given); // keeps the number
    if (given.reduce_order == REDUCE_AUTO) given.reduce_order = choose_order(&given, model, backend);
    const double best = choose_settings(config, given, model, backend, limits);
    if (!config->loss_chunk_rows) config->loss_chunk_rows = choose_chunk(config, model, backend);
    return best;
}

void plan_auto(Config *config, const Backend *backend, const MemoryLimits *limits) {
    const Config given = *config;
    ModelShape shape = model_shape(config);
    Model model;
    model_open(&model, &shape);
    const double best = plan_auto_within(config, &model, backend, limits);
    model_close(&model);
    if (config_shards(&given) != config_shards(config))
        log_line(
            "zero_stage = 0: optimizer=%s updates whole matrices, so each of the %u processes has all of its state",
            optimizer_of(config->optimizer)->name, config_world(config));
    if (given.reduce_order == REDUCE_AUTO && config_spans_machines(config))
        log_line("reduce_order = fast: a network joins the processes, which would carry the gradients of each "
                 "micro-batch with fixed; the bits depend on the number of processes");
    const bool offload_chosen = given.offload == OFFLOAD_AUTO && is_offloaded(config);
    if (best == INFINITY) return; // nothing fits: memory_plan_check prints settings that would
    if (config->batch_size.value != given.batch_size.value || offload_chosen ||
        (config->recompute != given.recompute && config->recompute != RECOMPUTE_NONE))
        log_choice(config, limits->arena, offload_chosen);
}
