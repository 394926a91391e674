// The candidates of a time, their losses and the configuration of the best, as text or JSON.
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/config/until.h"
#include "trainer/run/budget_shapes.h"

static const int chosen[] = {
    KEY_n_layer,   KEY_n_head,        KEY_n_embd, KEY_block_size, KEY_batch_size,   KEY_gradient_accumulation_steps,
    KEY_optimizer, KEY_learning_rate, KEY_min_lr, KEY_beta2,      KEY_warmup_iters, KEY_eval_tokens,
    KEY_until,     KEY_dataset};

// Whether a key that was not chosen was set, counts beside `until`, and belongs to the model or the run.
static bool is_given(const ConfigReader *reader, int key) {
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        if (chosen[i] == key) return false;
    if (key == KEY_depth || key == KEY_lr_schedule || key == KEY_lr_decay_iters) return false;
    if (key == KEY_max_iters && reader->config.max_iters == UNTIL_STEPS) return false;
    return config_is_set(reader, key) && config_class(key) != CLASS_PLACE && !config_is_part(key);
}

// Half the interval, as a fraction of the loss.
static double spread(const BudgetShape *candidate) {
    return 2 * scaling_law_deviation(candidate->law, candidate->steps * candidate->step_flops);
}

static void print_unlike(const Budget *budget, const char *quote, Buffer *out) {
    for (int i = 0; i < budget->unlike_count; i++)
        buffer_print(out, "%s%s%s%s", i ? ", " : "", quote, config_keys[budget->unlike[i]].name, quote);
}

// The run on a text that is learnt faster than every text of the law ends below the interval: only its upper end is
// printed.
static bool is_faster(const ScalingLaw *law, const ShortRun *run) { return run->fall > law->most_fall; }

static void print_loss(const BudgetShape *one, const ShortRun *run, Buffer *out) {
    const double loss = one->loss * run->loss, half = loss * spread(one);
    if (is_faster(one->law, run))
        buffer_print(out, "at most %.3f\n", loss + half);
    else
        buffer_print(out, "%.3f (%.3f to %.3f)\n", loss, loss - half, loss + half);
}

void budget_print_text(const Budget *budget, const ShortRun *run, const char *source, Buffer *out) {
    const ScalingLaw *law = budget->best->law;
    char parameters[16], tokens[16], time[16], bytes[16];
    buffer_print(out, "candidates for %s; %s\n\n  %5s %9s %10s %9s %9s %8s %7s %7s  bits per byte\n",
                 human_time(time, budget->seconds), source, "depth", "optimizer", "parameters", "memory", "tok/s",
                 "steps", "tokens", "epochs");
    for (int i = 0; i < budget->count; i++) {
        const BudgetShape *one = &budget->all[i];
        buffer_print(out, "%s %5lld %9s %10s %9s %9.0f ", one == budget->best ? "*" : " ",
                     (long long)one->config.n_layer, config_word(KEY_optimizer, (int)one->config.optimizer),
                     human_count(parameters, one->parameters), human_bytes(bytes, (double)one->bytes),
                     budget_step_tokens(&one->config) / one->step_s);
        const char *reason = budget_not_predicted(one);
        if (reason)
            buffer_print(out, "%s\n", reason);
        else {
            buffer_print(out, "%8.0f %7s %7.2f  ", one->steps, human_count(tokens, one->tokens), one->epochs);
            print_loss(one, run, out);
        }
    }
    buffer_print(
        out,
        "\nA short run on '%s' reached %.3f bits per byte in %.1f s. The intervals are two deviations of the "
        "law on a text that\nit was not fitted to: %.1f %%, and more beyond the %.2g FLOP of its longest runs.\n\n",
        budget->best->config.dataset, run->loss, run->seconds, 200 * law->deviation, law->most_flop);
    if (is_faster(law, run))
        buffer_print(out,
                     "In the short run the loss of this text fell by %.1f %%, that of the law's texts by at most "
                     "%.1f %%: the run may end far\nbelow the interval, of which only the upper end is printed. * has "
                     "the least middle.\n\n",
                     100 * run->fall, 100 * law->most_fall);
    if (budget->unlike_count) {
        buffer_print(out, "The law was measured with other values of ");
        print_unlike(budget, "", out);
        buffer_print(out, ", and the intervals leave out what yours change.\n\n");
    }
    if (budget_costs_repetition(budget->best) && !is_faster(law, run))
        buffer_print(out,
                     "The data is read %.1f times. Text for a single epoch would bring %.3f bits per byte instead of "
                     "%.3f, by the law of\nrepeated tokens.\n\n",
                     budget->best->epochs, budget->best->new_loss * run->loss, budget->best->loss * run->loss);
}

static void print_key(const Config *config, int key, Buffer *out) {
    buffer_print(out, "%s = ", config_keys[key].name);
    config_add_value(config, key, out);
    buffer_print(out, "\n");
}

void budget_print_keys(const Budget *budget, const ConfigReader *reader, Buffer *out) {
    if (!budget->best) return;
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) print_key(&budget->best->config, chosen[i], out);
    for (int key = 0; key < KEY_COUNT; key++)
        if (is_given(reader, key)) print_key(&budget->given, key, out);
}

void budget_print_json(const Budget *budget, const ShortRun *run, Buffer *out) {
    json_add_real(out, "short_run_bits_per_byte", run->loss, 6);
    json_add_real(out, "short_run_fall", run->fall, 6);
    json_add_bool(out, "faster_than_the_law", is_faster(budget->best->law, run));
    json_add_key(out, "candidates");
    buffer_print(out, "[");
    for (int i = 0; i < budget->count; i++) {
        const BudgetShape *one = &budget->all[i];
        buffer_print(out, "%s{", i ? ", " : "");
        json_add_number(out, "depth", (uint64_t)one->config.n_layer);
        json_add_field(out, "optimizer", config_word(KEY_optimizer, (int)one->config.optimizer));
        json_add_number(out, "parameters", (uint64_t)one->parameters);
        json_add_number(out, "bytes", one->bytes);
        json_add_real(out, "tokens_per_s", budget_step_tokens(&one->config) / one->step_s, 1);
        json_add_bool(out, "fits", one->fits);
        json_add_bool(out, "chosen", one == budget->best);
        const char *reason = budget_not_predicted(one);
        if (reason)
            json_add_field(out, "not_predicted", reason);
        else {
            json_add_number(out, "steps", (uint64_t)one->steps);
            json_add_number(out, "tokens", (uint64_t)one->tokens);
            json_add_real(out, "epochs", one->epochs, 4);
            json_add_real(out, "bits_per_byte_at_most", one->loss * run->loss * (1 + spread(one)), 6);
        }
        if (!reason && !is_faster(one->law, run)) {
            json_add_real(out, "bits_per_byte", one->loss * run->loss, 6);
            json_add_real(out, "bits_per_byte_without_repetition", one->new_loss * run->loss, 6);
            json_add_real(out, "interval", one->loss * run->loss * spread(one), 6);
        }
        buffer_print(out, "}");
    }
    buffer_print(out, "]");
    json_add_key(out, "unlike_the_law");
    buffer_print(out, "[");
    print_unlike(budget, "\"", out);
    buffer_print(out, "]");
}

void budget_print_json_keys(const Budget *budget, const ConfigReader *reader, Buffer *out) {
    char value[256];
    if (!budget->best) return;
    json_add_key(out, "config");
    buffer_print(out, "{");
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        config_value(&budget->best->config, chosen[i], value, sizeof value);
        json_add_field(out, config_keys[chosen[i]].name, value);
    }
    for (int key = 0; key < KEY_COUNT; key++) {
        if (!is_given(reader, key)) continue;
        config_text(&budget->given, key, value, sizeof value);
        json_add_field(out, config_keys[key].name, value);
    }
    buffer_print(out, "}");
}
