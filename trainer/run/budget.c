// Each depth of the dial is planned, its steps are counted by a rate, and the scaling law gives its loss, as a multiple
// of that of a short run on the text.
//
// On this machine the steps of two depths are timed, over zeros; the seconds of the others lie on the line through
// them, over the FLOP of a step. A large model reaches more than the line, so that its loss is at worst predicted too
// high.
#include "trainer/run/budget.h"
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/config/until.h"
#include "trainer/optim/step.h"
#include "trainer/plan/plan_check.h"
#include "trainer/plan/scaling_law.h"
#include "trainer/run/short_run.h"
#include <math.h>
#include <string.h>

enum {
    DEPTHS = 16,
    STEPS_LEAST = 150 // those of fewer steps are mostly warm-up, and the law is too low for them
};
static const int depths[DEPTHS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24};
static const int chosen[] = {
    KEY_n_layer,       KEY_n_head, KEY_n_embd, KEY_block_size,   KEY_batch_size,  KEY_gradient_accumulation_steps,
    KEY_learning_rate, KEY_min_lr, KEY_beta2,  KEY_warmup_iters, KEY_eval_tokens, KEY_until};
static const double reserve = 0.05; // of the time: the last evaluation, checkpoint and sample
static const double costly = 0.01;  // of the loss: a lower cost of repeated tokens is not printed

typedef struct {
    Config config;
    double parameters, step_flops, step_s, steps, tokens;
    double loss, new_loss; // by the short run's; new_loss: if no token were repeated
    uint64_t bytes;
    bool fits, reached;
} BudgetShape;

static struct {
    BudgetShape all[DEPTHS];
    int count;
    const BudgetShape *best;
    const ScalingLaw *law;
    double seconds, unique;      // unique: tokens of the training split
    int unlike[8], unlike_count; // keys that are set to another value than the grid had
    bool shape_is_set;
    Error unpredicted; // the shape is set, and its loss is not predicted
    Config given;
} budget;

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

// What the grid has not varied is as the grid had it.
static void set_rest(ConfigReader *reader, const ScalingLaw *law) {
    Config *config = &reader->config;
    hold_real(reader, KEY_learning_rate, &config->learning_rate, law->learning_rate);
    hold_real(reader, KEY_min_lr, &config->min_lr, 0);
    hold_int(reader, KEY_block_size, &config->block_size, SCALING_LAW_BLOCK);
    hold_real(reader, KEY_beta2, &config->beta2, SCALING_LAW_BETA2);
    hold_int(reader, KEY_warmup_iters, &config->warmup_iters, SCALING_LAW_WARMUP);
    if (!config_is_set(reader, KEY_eval_tokens)) config->eval_tokens = SCALING_LAW_EVAL_TOKENS;
    if (config_is_set(reader, KEY_batch_size) || config_is_set(reader, KEY_tokens_per_step) ||
        config_is_set(reader, KEY_gradient_accumulation_steps))
        return;
    const int64_t rows = SCALING_LAW_STEP_TOKENS / config->block_size;
    config->batch_size.value = rows > 1 ? rows : 1, config->batch_size.is_auto = false;
    config->gradient_accumulation_steps = 1;
}

static double step_tokens(const Config *config) {
    return (double)(config->batch_size.value * config->gradient_accumulation_steps * config->block_size);
}

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
    return seconds * (double)candidate->config.gradient_accumulation_steps;
}

static void describe(BudgetShape *candidate, const Backend *backend, bool here) {
    Model model;
    MemoryPlan plan;
    candidate->fits = memory_plan_of_run(&plan, &model, &candidate->config, backend, here) == 0;
    err_clear();
    candidate->bytes = plan.bytes;
    candidate->parameters = (double)model.elements;
    candidate->step_flops = step_tokens(&candidate->config) * model_token_flops(&model);
    model_close(&model);
}

// By the card's data sheet, or by two depths.
static int rate(const Backend *backend, const GpuCard *card) {
    BudgetShape *all = budget.all;
    const int count = budget.count;
    if (card) {
        for (int i = 0; i < count; i++)
            all[i].step_s = all[i].step_flops / (sqrt(card->least_share * card->most_share) * card->flops);
        return 0;
    }
    if (backend->is_planned) return fail(EX_USAGE, "no GPU is open to be timed: --card=NAME plans for one by its name");
    const int second = count > 3 ? 3 : 0; // the depth 4 takes a second
    const double first_s = measure(&all[0], backend), second_s = second ? measure(&all[second], backend) : first_s;
    if (!isfinite(first_s + second_s)) return -1;
    const double slope = second ? fmax(0, (second_s - first_s) / (all[second].step_flops - all[0].step_flops)) : 0;
    for (int i = 0; i < count; i++) all[i].step_s = first_s + slope * (all[i].step_flops - all[0].step_flops);
    return 0;
}

static void predict(BudgetShape *candidate) {
    const double most = (double)candidate->config.max_iters; // UNTIL_STEPS unless it is set
    const double N = scaling_law_parameters(&candidate->config);
    candidate->steps = fmin(most, floor(budget.seconds * (1 - reserve) / candidate->step_s));
    candidate->tokens = candidate->steps * step_tokens(&candidate->config);
    const double worth = scaling_law_worth(candidate->tokens, budget.unique);
    candidate->reached = scaling_law_reaches(budget.law, N, candidate->tokens);
    candidate->loss = scaling_law_loss(budget.law, N, worth);
    candidate->new_loss = scaling_law_loss(budget.law, N, candidate->tokens);
}

static bool is_candidate(const BudgetShape *candidate) {
    return candidate->fits && candidate->steps >= STEPS_LEAST &&
           candidate->steps >= 2 * (double)candidate->config.warmup_iters;
}

static bool costs_repetition(const BudgetShape *candidate) {
    return candidate->new_loss < candidate->loss * (1 - costly);
}

static bool is_predicted(const BudgetShape *candidate) { return is_candidate(candidate) && candidate->reached; }

// Half the interval, as a fraction of the loss.
static double spread(const BudgetShape *candidate) {
    return 2 * scaling_law_deviation(budget.law, candidate->steps * candidate->step_flops);
}

static void print_unlike(const char *quote, Buffer *out) {
    for (int i = 0; i < budget.unlike_count; i++)
        buffer_print(out, "%s%s%s%s", i ? ", " : "", quote, config_keys[budget.unlike[i]].name, quote);
}

// Whether the text is learnt faster than all texts of the law. Its run then ends below the interval, and only the upper
// end is printed.
static bool is_faster(const ShortRun *run) { return run->fall > budget.law->most_fall; }

static void print_loss(const BudgetShape *one, const ShortRun *run, Buffer *out) {
    const double loss = one->loss * run->loss, half = loss * spread(one);
    if (is_faster(run))
        buffer_print(out, "at most %.3f\n", loss + half);
    else
        buffer_print(out, "%.3f (%.3f to %.3f)\n", loss, loss - half, loss + half);
}

static void print(const ShortRun *run, const char *source, Buffer *out) {
    char parameters[16], tokens[16], time[16], bytes[16], value[256];
    buffer_print(out, "candidates for %s; %s\n\n  %5s %10s %9s %9s %8s %7s %9s  bits per byte\n",
                 human_time(time, budget.seconds), source, "depth", "parameters", "memory", "tok/s", "steps", "tokens",
                 "epochs");
    for (int i = 0; i < budget.count; i++) {
        const BudgetShape *one = &budget.all[i];
        buffer_print(out, "%s %5lld %10s %9s %9.0f ", one == budget.best ? "*" : " ", (long long)one->config.n_layer,
                     human_count(parameters, one->parameters), human_bytes(bytes, (double)one->bytes),
                     step_tokens(&one->config) / one->step_s);
        if (is_predicted(one)) {
            buffer_print(out, "%8.0f %7s %9.2f  ", one->steps, human_count(tokens, one->tokens),
                         one->tokens / budget.unique);
            print_loss(one, run, out);
        } else
            buffer_print(out, "%s\n", !one->fits ? "does not fit" : !one->reached ? "beyond the law" : "too few steps");
    }
    buffer_print(
        out,
        "\nA short run on '%s' reached %.3f bits per byte in %.1f s. The intervals are two deviations of the "
        "law on a text that\nit was not fitted to: %.1f %%, and more beyond the %.2g FLOP of its longest runs.\n\n",
        budget.best->config.dataset, run->loss, run->seconds, 200 * budget.law->deviation, budget.law->most_flop);
    if (is_faster(run))
        buffer_print(out,
                     "In the short run the loss of this text fell by %.0f %%, that of the law's texts by at most "
                     "%.0f %%: the run may end far\nbelow the interval, of which only the upper end is printed.\n\n",
                     100 * run->fall, 100 * budget.law->most_fall);
    if (budget.unlike_count) {
        buffer_print(out, "The law was measured with other values of ");
        print_unlike("", out);
        buffer_print(out, ", and the intervals leave out what yours change.\n\n");
    }
    if (costs_repetition(budget.best) && !is_faster(run))
        buffer_print(out,
                     "The data is read %.1f times. Text for a single epoch would bring %.3f bits per byte instead of "
                     "%.3f, by the law of\nrepeated tokens (not measured here).\n\n",
                     budget.best->tokens / budget.unique, budget.best->new_loss * run->loss,
                     budget.best->loss * run->loss);
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        config_value(&budget.best->config, chosen[i], value, sizeof value);
        const char *quote = chosen[i] == KEY_until ? "'" : "";
        buffer_print(out, "%s = %s%s%s\n", config_keys[chosen[i]].name, quote, value, quote);
    }
    buffer_print(out, "\n");
}

static void print_json(const ShortRun *run, Buffer *out) {
    char value[256];
    json_add_real(out, "short_run_bits_per_byte", run->loss, 6);
    json_add_real(out, "short_run_fall", run->fall, 6);
    json_add_bool(out, "faster_than_the_law", is_faster(run));
    json_add_key(out, "candidates");
    buffer_print(out, "[");
    for (int i = 0; i < budget.count; i++) {
        const BudgetShape *one = &budget.all[i];
        buffer_print(out, "%s{", i ? ", " : "");
        json_add_number(out, "depth", (uint64_t)one->config.n_layer);
        json_add_number(out, "parameters", (uint64_t)one->parameters);
        json_add_number(out, "bytes", one->bytes);
        json_add_real(out, "tokens_per_s", step_tokens(&one->config) / one->step_s, 1);
        json_add_bool(out, "fits", one->fits);
        json_add_bool(out, "chosen", one == budget.best);
        if (is_predicted(one)) {
            json_add_number(out, "steps", (uint64_t)one->steps);
            json_add_number(out, "tokens", (uint64_t)one->tokens);
            json_add_real(out, "epochs", one->tokens / budget.unique, 4);
            json_add_real(out, "bits_per_byte_at_most", one->loss * run->loss * (1 + spread(one)), 6);
        }
        if (is_predicted(one) && !is_faster(run)) {
            json_add_real(out, "bits_per_byte", one->loss * run->loss, 6);
            json_add_real(out, "bits_per_byte_without_repetition", one->new_loss * run->loss, 6);
            json_add_real(out, "interval", one->loss * run->loss * spread(one), 6);
        }
        buffer_print(out, "}");
    }
    buffer_print(out, "]");
    json_add_key(out, "unlike_the_law");
    buffer_print(out, "[");
    print_unlike("\"", out);
    buffer_print(out, "]");
    json_add_key(out, "config");
    buffer_print(out, "{");
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        config_value(&budget.best->config, chosen[i], value, sizeof value);
        json_add_field(out, config_keys[chosen[i]].name, value);
    }
    buffer_print(out, "}");
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
    if (!best && budget.all[0].fits)
        return fail(EX_USAGE,
                    "until %s is too short: the smallest candidate has time for %.0f steps, and %d are needed%s",
                    config->until, budget.all[0].steps, STEPS_LEAST, advice());
    if (!best) return fail(EX_USAGE, "no candidate fits the memory: the smallest needs more than mem_limit allows");
    if (best->loss > 1 && costs_repetition(best))
        return fail(EX_USAGE,
                    "until %s reads the %.0f training tokens of '%s' %.0f times, after which the law of repeated "
                    "tokens predicts more loss than a short run has: it does not hold for so little text%s",
                    config->until, budget.unique, config->dataset, best->tokens / budget.unique, advice());
    if (best == reached) return 0;
    return fail(EX_USAGE,
                "until %s gives %.3g parameters and %.3g tokens in steps of %.0f, more than %d times what the scaling "
                "law was measured for%s",
                config->until, best->parameters, best->tokens, step_tokens(&best->config), SCALING_LAW_REACH, advice());
}

static bool is_near(double value, double measured) {
    return value <= measured * SCALING_LAW_REACH && value >= measured / SCALING_LAW_REACH;
}

static int check_law(const ScalingLaw *law, const Config *config, const FeedDataset *dataset) {
    if (!law->fitted)
        return fail(EX_USAGE, "the scaling law has no cells of optimizer %s, only of adamw%s",
                    config_word(KEY_optimizer, (int)config->optimizer), advice());
    if (!is_near(dataset->vocab_size, SCALING_LAW_VOCABULARY))
        return fail(EX_USAGE, "the scaling law was measured with a vocabulary of %d ids, and '%s' has %u%s",
                    SCALING_LAW_VOCABULARY, config->dataset, dataset->vocab_size, advice());
    if (config->batch_size.is_auto || is_near(step_tokens(config), SCALING_LAW_STEP_TOKENS)) return 0;
    return fail(EX_USAGE, "the scaling law was measured with %d tokens a step, and these are %.0f%s",
                SCALING_LAW_STEP_TOKENS, step_tokens(config), advice());
}

// A shape that is set needs no law: without one, it is planned as it was given, and there is a line.
static int accept(ConfigReader *reader, int status) {
    if (status == 0 || !budget.shape_is_set || err_code() != EX_USAGE) return status;
    err_take(&budget.unpredicted);
    reader->config = budget.given;
    return 0;
}

static int choose_shape(ConfigReader *reader, const Backend *backend, const GpuCard *card, bool here) {
    budget.count = budget.shape_is_set ? 1 : DEPTHS;
    for (int i = 0; i < budget.count; i++) {
        budget.all[i].config = reader->config;
        if (!budget.shape_is_set) set_depth(&budget.all[i].config, depths[i]);
        describe(&budget.all[i], backend, here);
    }
    if (rate(backend, card) < 0) return -1;
    for (int i = 0; i < budget.count; i++) predict(&budget.all[i]);
    if (choose(&reader->config) < 0) return -1;
    reader->config.n_layer = budget.best->config.n_layer, reader->config.n_head = budget.best->config.n_head;
    reader->config.n_embd = budget.best->config.n_embd;
    return 0;
}

int budget_choose(ConfigReader *reader, const Backend *backend, const GpuCard *card, bool here,
                  const FeedDataset *dataset) {
    Until until;
    if (until_check_new(reader->config.until) < 0 || until_parse(&until, reader->config.until, until_start()) < 0)
        return -1;
    budget.given = reader->config, budget.shape_is_set = shape_is_set(reader);
    budget.law = scaling_law_of(reader->config.optimizer);
    budget.seconds = (double)(until.at - until_start()), budget.unique = (double)dataset->tokens[SPLIT_TRAIN];
    if (budget.law->fitted) set_rest(reader, budget.law);
    int status = check_law(budget.law, &reader->config, dataset);
    if (status == 0) status = choose_shape(reader, backend, card, here);
    return accept(reader, status);
}

uint64_t budget_steps(void) { return budget.best && !budget.unpredicted.code ? (uint64_t)budget.best->steps : 0; }

int budget_print(ConfigReader *reader, const GpuCard *card, bool json, Buffer *out) {
    ShortRun run;
    Config config = reader->config;
    if (card) config.device = DEVICE_AUTO; // the card need not be here
    const int status = budget.unpredicted.code ? 0 : accept(reader, short_run(&run, &config));
    if (budget.unpredicted.code && json)
        json_add_field(out, "not_predicted", budget.unpredicted.text);
    else if (budget.unpredicted.code)
        buffer_print(out, "no loss is predicted: %s\n\n", budget.unpredicted.text);
    else if (status == 0 && json)
        print_json(&run, out);
    else if (status == 0)
        print(&run,
              card ? "steps by the card's data sheet" : "steps timed on this machine, which other programs slow down",
              out);
    return status;
}
