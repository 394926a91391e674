// Each depth of the dial is planned with each optimizer, its steps are counted by a rate, and the scaling law gives its
// loss, as a multiple of that of a short run on the text.
//
// On this machine the steps of two depths are timed for each optimizer, over zeros; the seconds of the others lie on
// the line through them, over the FLOP of a step. A large model reaches more than the line, so that its loss is at
// worst predicted too high.
#include "trainer/run/budget.h"
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/config/until.h"
#include "trainer/optim/step.h"
#include "trainer/plan/plan_check.h"
#include "trainer/plan/step_cost.h"
#include "trainer/run/budget_shapes.h"
#include <math.h>
#include <string.h>

// Runs of fewer steps are mostly warm-up, and the law is too low for them.
enum { STEPS_LEAST = 150 };
static const int depths[BUDGET_DEPTHS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24};
static const double reserve = 0.05; // of the time: the last evaluation, checkpoint and sample
static const double costly = 0.01;  // of the loss: a lower cost of repeated tokens is not printed
static Budget budget;

static bool shape_is_set(const ConfigReader *reader) {
    return config_is_set(reader, KEY_n_layer) || config_is_set(reader, KEY_n_head) ||
           config_is_set(reader, KEY_n_embd) || reader->config.depth;
}

// What to do when no loss is predicted and no shape is set.
static const char *advice(void) {
    return budget.shape_is_set ? "" : ": set the shape, which is then planned without a loss";
}

static void set_depth(Config *config, int depth) {
    config->n_layer = config->n_head = depth, config->n_embd = (int64_t)64 * depth;
}

static void hold_real(const ConfigReader *reader, int key, double *value, double measured) {
    if (!config_is_set(reader, key)) *value = measured;
    if (*value != measured) budget.unlike[budget.unlike_count++] = key;
}

static void hold_int(const ConfigReader *reader, int key, int64_t *value, int64_t measured) {
    if (!config_is_set(reader, key)) *value = measured;
    if (*value != measured) budget.unlike[budget.unlike_count++] = key;
}

static int64_t at_least_1(int64_t value) { return value > 1 ? value : 1; }

// What the grid of this optimizer has not varied is as the grid had it.
static void set_rest(const ConfigReader *reader, Config *config, OptimizerName optimizer) {
    const ScalingLaw *law = scaling_law_of(optimizer);
    config->optimizer = optimizer, budget.unlike_count = 0;
    hold_real(reader, KEY_learning_rate, &config->learning_rate, law->learning_rate);
    hold_real(reader, KEY_min_lr, &config->min_lr, 0);
    if (optimizer == OPTIMIZER_MUON) hold_real(reader, KEY_muon_learning_rate, &config->muon_learning_rate, 0);
    hold_int(reader, KEY_block_size, &config->block_size, SCALING_LAW_BLOCK);
    hold_real(reader, KEY_beta2, &config->beta2, SCALING_LAW_BETA2);
    hold_int(reader, KEY_warmup_iters, &config->warmup_iters, SCALING_LAW_WARMUP);
    hold_int(reader, KEY_n_kv_head, &config->n_kv_head, 0); // of as many as n_head, as in the short run
    if (!config_is_set(reader, KEY_eval_tokens)) config->eval_tokens = SCALING_LAW_EVAL_TOKENS;
    const bool has_batch = config_is_set(reader, KEY_batch_size),
               has_micros = config_is_set(reader, KEY_gradient_accumulation_steps);
    if (config_is_set(reader, KEY_tokens_per_step) || config->batch_size.is_auto || (has_batch && has_micros)) return;
    const int64_t rows = SCALING_LAW_STEP_TOKENS / config->block_size;
    if (!has_micros) config->gradient_accumulation_steps = has_batch ? at_least_1(rows / config->batch_size.value) : 1;
    if (!has_batch) config->batch_size.value = at_least_1(rows / config->gradient_accumulation_steps);
}

double budget_step_tokens(const Config *config) {
    return (double)(config->batch_size.value * config->gradient_accumulation_steps * config->block_size);
}

static double pass_work(const BudgetShape *candidate) { return candidate->step_flops + candidate->again_flops; }
static double step_work(const BudgetShape *candidate) { return pass_work(candidate) + candidate->update_flops; }

// Seconds of a step, on average, because programs that are busy now may stay so; INFINITY when there is no memory for
// it. The first round, which makes kernels, counts only if it is long.
static double measure(const BudgetShape *candidate, const Backend *backend) {
    enum { ROUNDS = 3, RUNS = 2 }; // step_warm_up runs a step twice
    const double enough = 3;
    Config config = candidate->config;
    Model model = {0};
    MemoryPlan plan;
    Network network = {0};
    double seconds = INFINITY;
    config.gradient_accumulation_steps = 1;
    if (memory_plan_of_run(&plan, &model, &config, backend, true) == 0 &&
        network_open(&network, backend, &model, &plan) == 0 && network_init(&network, 1) == 0) {
        network.collective = &collective_none;
        double spent = 0;
        int rounds = 0;
        for (int round = 0; round < ROUNDS && spent < enough; round++) {
            const uint64_t started = clock_ns();
            step_warm_up(&network, &config);
            const double round_s = (double)(clock_ns() - started) * 1e-9;
            if (!round && round_s < enough) continue;
            spent += round_s, rounds++;
        }
        seconds = spent / (rounds * RUNS);
    }
    network_close(&network);
    model_close(&model);
    const double micros = (double)candidate->config.gradient_accumulation_steps;
    return seconds * step_work(candidate) / (pass_work(candidate) / micros + candidate->update_flops);
}

static void describe(BudgetShape *candidate, const Backend *backend, bool here) {
    Model model;
    MemoryPlan plan;
    candidate->fits = memory_plan_of_run(&plan, &model, &candidate->config, backend, here) == 0;
    err_clear();
    candidate->bytes = plan.bytes;
    candidate->parameters = (double)model.elements;
    const Config *config = &candidate->config;
    const double again = step_cost_recompute(&model.shape, backend, config->recompute, (int)config->recompute_layers);
    candidate->step_flops = budget_step_tokens(config) * model_token_flops(&model);
    candidate->again_flops = again * candidate->step_flops;
    candidate->update_flops = step_cost_update_flops(&model, config);
    model_close(&model);
}

// The candidate with another depth.
static BudgetShape at_depth(const BudgetShape *candidate, int depth, const Backend *backend, bool here) {
    BudgetShape other = *candidate;
    set_depth(&other.config, depth), other.config.n_kv_head = 0;
    describe(&other, backend, here);
    return other;
}

// By the card's data sheet, or by two depths that fit: the depth 4 takes a second. A shape that is set and takes less
// is timed itself.
static int rate(BudgetShape *all, const Backend *backend, const GpuCard *card, bool here) {
    enum { SMALL = 1, LARGE = 4 };
    const int count = budget.count;
    if (card && backend->act_bytes != 2)
        return fail(EX_USAGE, "the rates of cards are those of 16 bits, and dtype is another%s", advice());
    if (card && all[0].config.offload != OFFLOAD_NONE)
        return fail(EX_USAGE, "the rates of cards are those without offload%s", advice());
    if (card) {
        for (int i = 0; i < count; i++)
            all[i].step_s = step_work(&all[i]) / (sqrt(card->least_share * card->most_share) * card->flops);
        return 0;
    }
    if (backend->is_planned) return fail(EX_USAGE, "no GPU is open to be timed: --card=NAME plans for one by its name");
    int depth = LARGE;
    BudgetShape small = at_depth(all, SMALL, backend, here), large = at_depth(all, LARGE, backend, here);
    while (depth > SMALL && !large.fits) large = at_depth(all, --depth, backend, here);
    const bool itself = count == 1 && step_work(all) <= step_work(&large);
    if (itself) small = *all;
    const double small_s = measure(&small, backend), first = step_work(&small),
                 large_s = itself || depth == SMALL ? small_s : measure(&large, backend);
    const double slope = large_s > small_s ? (large_s - small_s) / (step_work(&large) - first) : 0;
    err_clear(); // of a plan that does not fit: its time is infinite
    for (int i = 0; i < count; i++) all[i].step_s = small_s + slope * (step_work(&all[i]) - first);
    return 0;
}

static void predict(BudgetShape *candidate) {
    const double most = (double)candidate->config.max_iters; // UNTIL_STEPS unless it is set
    const double N = scaling_law_parameters(&candidate->config);
    const ScalingLaw *law = candidate->law;
    candidate->steps = fmin(most, floor(budget.seconds * (1 - reserve) / candidate->step_s));
    candidate->tokens = candidate->steps * budget_step_tokens(&candidate->config);
    candidate->epochs = candidate->tokens / budget.unique;
    const double worth = scaling_law_worth(law, candidate->tokens, budget.unique);
    candidate->reached = scaling_law_reaches(law, N, candidate->tokens);
    candidate->loss = scaling_law_loss(law, N, worth);
    candidate->new_loss = scaling_law_loss(law, N, candidate->tokens);
}

static double steps_needed(const Config *config) { return fmax(STEPS_LEAST, 2 * (double)config->warmup_iters); }

// Why it is no candidate; NULL: it is one.
static const char *excluded(const BudgetShape *shape) {
    const Config *config = &shape->config;
    if (config->n_kv_head > 0 && config->n_head % config->n_kv_head) return "not with n_kv_head";
    if (!shape->fits) return "does not fit";
    if (shape->epochs > SCALING_LAW_EPOCHS) return "too many epochs";
    return shape->steps < steps_needed(config) ? "too few steps" : NULL;
}

static bool is_candidate(const BudgetShape *shape) { return !excluded(shape); }

bool budget_costs_repetition(const BudgetShape *candidate) {
    return candidate->new_loss < candidate->loss * (1 - costly);
}

const char *budget_not_predicted(const BudgetShape *candidate) {
    return candidate->fits && !candidate->reached ? "beyond the law" : excluded(candidate);
}

// At the same depth. That the law does not reach a run makes the other one no better.
static bool is_better(const BudgetShape *one, const BudgetShape *other) {
    if (is_candidate(one) != is_candidate(other)) return is_candidate(one);
    return one->loss < other->loss;
}

// The smaller candidates have more steps, the larger ones fewer.
static int choose(const Config *config) {
    const BudgetShape *best = NULL, *reached = NULL;
    for (int i = 0; i < budget.count; i++) {
        const BudgetShape *one = &budget.all[i];
        if (!is_candidate(one)) continue;
        if (!best || one->loss < best->loss) best = one;
        if (one->reached && (!reached || one->loss < reached->loss)) reached = one;
    }
    budget.best = reached;
    const double needed = steps_needed(&budget.all[0].config), steps = budget.all[0].steps,
                 step = budget_step_tokens(&budget.all[0].config);
    const bool few = !best && budget.all[0].fits && steps < needed;
    if (few && steps == (double)config->max_iters)
        return fail(EX_USAGE, "max_iters is %.0f, and the scaling law is for %.0f steps and more%s", steps, needed,
                    advice());
    if (few)
        return fail(EX_USAGE, "until %s is too short: %s has time for %.0f steps of %.0f tokens, and %.0f are needed%s",
                    config->until, budget.shape_is_set ? "the shape" : "the smallest candidate", steps, step, needed,
                    advice());
    if (!best && budget.all[0].fits && needed * step > SCALING_LAW_EPOCHS * budget.unique)
        return fail(EX_USAGE,
                    "'%s' has %.0f training tokens, and the scaling law needs %.0f: those of %.0f steps, read %d "
                    "times%s",
                    config->dataset, budget.unique, ceil(needed * step / SCALING_LAW_EPOCHS), needed,
                    SCALING_LAW_EPOCHS, advice());
    if (!best && budget.all[0].fits)
        return fail(
            EX_USAGE,
            "until %s reads the %.0f training tokens of '%s' more than %d times with each candidate that has %.0f "
            "steps, and the scaling law was measured for less: it needs more text, or less time%s",
            config->until, budget.unique, config->dataset, SCALING_LAW_EPOCHS, needed, advice());
    if (!best) return fail(EX_USAGE, "no candidate fits the memory (offload is not tried)%s", advice());
    if (best == reached) return 0;
    return fail(EX_USAGE,
                "until %s gives %.3g parameters and %.3g tokens in steps of %.0f, more than %d times what the scaling "
                "law was measured for%s",
                config->until, best->parameters, best->tokens, budget_step_tokens(&best->config), SCALING_LAW_REACH,
                advice());
}

static bool is_near(double value, double measured) {
    return value <= measured * SCALING_LAW_REACH && value >= measured / SCALING_LAW_REACH;
}

static int check_law(const Config *config, const FeedDataset *dataset) {
    if (*config->init_from && strcmp(config->init_from, "scratch") != 0)
        return fail(EX_USAGE, "the scaling law is of runs from the start, and init_from is '%s'%s", config->init_from,
                    advice());
    if (config_world(config) > 1)
        return fail(EX_USAGE, "the choice for a time is that of one process, not of %u%s", config_world(config),
                    advice());
    if (!is_near(dataset->vocab_size, SCALING_LAW_VOCABULARY))
        return fail(EX_USAGE, "the scaling law was measured with a vocabulary of %d ids, and '%s' has %u%s",
                    SCALING_LAW_VOCABULARY, config->dataset, dataset->vocab_size, advice());
    if (config->batch_size.is_auto || is_near(budget_step_tokens(config), SCALING_LAW_STEP_TOKENS)) return 0;
    return fail(EX_USAGE, "the scaling law was measured with %d tokens a step, and these are %.0f%s",
                SCALING_LAW_STEP_TOKENS, budget_step_tokens(config), advice());
}

static void take(ConfigReader *reader, const BudgetShape *candidate) {
    budget.best = candidate;
    set_rest(reader, &reader->config, candidate->config.optimizer);
    reader->config.n_layer = candidate->config.n_layer, reader->config.n_head = candidate->config.n_head;
    reader->config.n_embd = candidate->config.n_embd;
}

// A shape that is set needs no law: without one, it is planned without a loss, and there is a line. What the law holds
// for other keys is not taken where it says nothing of the run, or of its rate.
static int accept(ConfigReader *reader, int status) {
    if (status == 0 || !budget.shape_is_set || err_code() != EX_USAGE) return status;
    err_take(&budget.unpredicted);
    if (budget.timed) take(reader, &budget.all[0]);
    return 0;
}

static int try_depths(BudgetShape *all, const Config *config, const Backend *backend, const GpuCard *card, bool here) {
    for (int i = 0; i < budget.count; i++) {
        all[i] = (BudgetShape){.config = *config, .law = scaling_law_of(config->optimizer)};
        if (!budget.shape_is_set) set_depth(&all[i].config, depths[i]);
        if (config->offload == OFFLOAD_AUTO) all[i].config.offload = OFFLOAD_NONE; // the rate would be another
        describe(&all[i], backend, here);
    }
    if (rate(all, backend, card, here) < 0) return -1;
    for (int i = 0; i < budget.count; i++) predict(&all[i]);
    return 0;
}

static int choose_shape(ConfigReader *reader, const Backend *backend, const GpuCard *card, bool here,
                        const FeedDataset *dataset) {
    static BudgetShape tried[BUDGET_DEPTHS];
    const bool is_set = config_is_set(reader, KEY_optimizer);
    const OptimizerName first = is_set ? reader->config.optimizer : 0;
    budget.count = budget.shape_is_set ? 1 : BUDGET_DEPTHS;
    for (OptimizerName optimizer = first; optimizer < (is_set ? first + 1 : OPTIMIZER_COUNT); optimizer++) {
        Config config = reader->config;
        set_rest(reader, &config, optimizer);
        if (check_law(&config, dataset) < 0 || try_depths(tried, &config, backend, card, here) < 0) return -1;
        for (int i = 0; i < budget.count; i++)
            if (optimizer == first || is_better(&tried[i], &budget.all[i])) budget.all[i] = tried[i];
    }
    budget.timed = true;
    if (choose(&reader->config) < 0) return -1;
    take(reader, budget.best);
    return 0;
}

double budget_seconds(const char *text) {
    Until until;
    if (until_parse(&until, text, until_start()) < 0 || until.now) return err_clear(), 0;
    return fmax(0, (double)(until.at - until_start()));
}

int budget_choose(ConfigReader *reader, const Backend *backend, const GpuCard *card, bool here,
                  const FeedDataset *dataset) {
    if (until_check_new(reader->config.until) < 0) return -1;
    budget.given = reader->config, budget.shape_is_set = shape_is_set(reader);
    budget.seconds = budget_seconds(reader->config.until), budget.unique = (double)dataset->tokens[SPLIT_TRAIN];
    const bool quiet = log_quiet;
    log_quiet = true; // of the candidates that are not chosen
    const int status = choose_shape(reader, backend, card, here, dataset);
    log_quiet = quiet;
    return accept(reader, status);
}

uint64_t budget_steps(void) { return budget.best && isfinite(budget.best->step_s) ? (uint64_t)budget.best->steps : 0; }

int budget_print(ConfigReader *reader, const GpuCard *card, bool json, Buffer *out, Buffer *keys) {
    ShortRun run;
    Config config = reader->config;
    if (card) config.device = DEVICE_AUTO; // the card need not be here
    const int status = budget.unpredicted.code ? 0 : accept(reader, short_run(&run, &config));
    if (budget.unpredicted.code && json)
        json_add_field(out, "not_predicted", budget.unpredicted.text);
    else if (budget.unpredicted.code)
        buffer_print(out, "no loss is predicted: %s\n\n", budget.unpredicted.text);
    else if (status == 0 && json)
        budget_print_json(&budget, &run, out);
    else if (status == 0)
        budget_print_text(&budget, &run,
                          card ? "steps by the card's data sheet, of which small models reach less"
                               : "steps timed on this machine, which other programs slow down",
                          out);
    if (status == 0 && json)
        budget_print_json_keys(&budget, reader, out);
    else if (status == 0)
        budget_print_keys(&budget, reader, keys);
    return status;
}
