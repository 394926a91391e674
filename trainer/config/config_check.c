// The rules of keys.def for one value, and the rules between keys. All mistakes are printed before anything is
// allocated.
#include "common/err.h"
#include "common/log.h"
#include "trainer/config/config.h"
#include "trainer/config/until.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool config_is_set(const ConfigReader *reader, int key) { return strcmp(reader->origin[key], "default"); }

void config_mistake(ConfigReader *reader, int key, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    buffer_print(&reader->mistakes, "%s: %s\n", reader->origin[key], text);
    reader->mistake_count++;
}

// The rules of a row of keys.def: its range, and the key that has to have a value (or, with `unless`, not to have it).
static const struct {
    double low, high;
    int used_key;
    const char *used_value; // NULL: the key is always used
    bool unless, is_part;
} rules[KEY_COUNT] = {
#define KEY(type, field, initial, class, range, when, meaning)  {range, when},
#define WORD(type, field, initial, class, when, meaning, words) {ANY, when},
#define ANY                                                     0, 0
#define VALUE(name)                                             0, 0
#define RANGE(low, high)                                        low, high
#define AT_LEAST(low)                                           low, 0x1p53
#define ALWAYS                                                  0, NULL, false, false
#define WHEN(key, value)                                        KEY_##key, #value, false, false
#define UNLESS(key, value)                                      KEY_##key, #value, true, false
#define WITH(key)                                               KEY_##key, "", true, false
#define PART(key, value)                                        KEY_##key, #value, false, true
#define PART_UNLESS(key, value)                                 KEY_##key, #value, true, true
#include "trainer/config/keys.def"
};

bool config_in_range(const Config *config, int key) {
    const OptionType type = config_keys[key].type;
    if (type != OPT_INT && type != OPT_FLOAT && type != OPT_AUTO) return true;
    const double value = config_number(config, key);
    return value >= rules[key].low && value <= rules[key].high;
}

static void check_range(ConfigReader *reader, int key) {
    if (config_in_range(&reader->config, key)) return;
    const char *name = config_key(config_is_part(key) ? rules[key].used_key : key);
    config_mistake(reader, key, "'%s' is %g, outside %g to %.7g", name, config_number(&reader->config, key),
                   rules[key].low, rules[key].high);
}

static void check_paths(ConfigReader *reader) {
    for (int key = 0; key < KEY_COUNT; key++) {
        if (!option_takes_path(&config_keys[key])) continue;
        if (path_check(*(const char **)reader->options[key].value) == 0) continue;
        config_mistake(reader, key, "'%s' is %s", config_key(key), err_text());
        err_clear();
    }
}

enum { MEM_LIMIT_LEAST = 1 << 20 };    // bytes: less is a number of GiB without its unit
enum { MICRO_BATCH_TOKENS = 1 << 24 }; // at most: rows are counted in int, and no sum of the plan overflows

// The number of heads nearest to n_head that gives each head a multiple of 8 channels. 0: no such number.
static int64_t nearest_heads(const Config *config) {
    int64_t near = 0;
    for (int64_t heads = 1; heads <= config->n_embd / 8; heads++)
        if (config->n_embd % (8 * heads) == 0 && llabs(heads - config->n_head) < llabs(near - config->n_head))
            near = heads;
    return near;
}

static void check_model(ConfigReader *reader) {
    const Config *config = &reader->config;
    if (config->n_head > 0 && config->n_embd > 0 && config->n_embd % config->n_head) {
        // Heads of a multiple of 8 channels: every backend has kernels for them.
        int64_t step = 8 * config->n_head, below = config->n_embd - config->n_embd % step, above = below + step;
        char smaller[32] = "", heads[64] = "";
        if (below) snprintf(smaller, sizeof smaller, "%lld or ", (long long)below);
        const int64_t near = nearest_heads(config);
        if (near) snprintf(heads, sizeof heads, ", or 'n_head' %lld", (long long)near);
        config_mistake(
            reader, KEY_n_embd,
            "'n_embd' %lld is not divisible by 'n_head' %lld: take %s%lld, whose heads have a multiple of 8 channels%s",
            (long long)config->n_embd, (long long)config->n_head, smaller, (long long)above, heads);
    } else if (config->n_head > 0 && config->position == POSITION_ROPE && config->n_embd / config->n_head % 2)
        config_mistake(
            reader, KEY_position,
            "'position' is rope, which turns pairs of channels, and a head has n_embd / n_head = %lld: take an "
            "even number",
            (long long)(config->n_embd / config->n_head));
    if (config->n_kv_head > 0 && config->n_head % config->n_kv_head)
        config_mistake(reader, KEY_n_kv_head, "'n_kv_head' %lld does not divide 'n_head' %lld",
                       (long long)config->n_kv_head, (long long)config->n_head);
    if (config->batch_size.is_auto && !config->tokens_per_step && !reader->has_number[KEY_batch_size])
        config_mistake(
            reader, KEY_batch_size,
            "'batch_size' is auto, and the size of a step is not known: set tokens_per_step, or batch_size to "
            "a number before");
    if (config->batch_size.value * config->block_size > MICRO_BATCH_TOKENS)
        config_mistake(reader, KEY_batch_size, "'batch_size' %lld times 'block_size' %lld is more than %d tokens",
                       (long long)config->batch_size.value, (long long)config->block_size, MICRO_BATCH_TOKENS);
    if (config->eval_block_size > config->block_size)
        config_mistake(reader, KEY_eval_block_size, "'eval_block_size' %lld is larger than 'block_size' %lld",
                       (long long)config->eval_block_size, (long long)config->block_size);
    if (config->recompute_layers && config->recompute == RECOMPUTE_AUTO)
        config_mistake(reader, KEY_recompute_layers,
                       "'recompute' is auto, which chooses the number of layers, too: name a level, as block:%lld",
                       (long long)config->recompute_layers);
    if (config->muon_learning_rate > 0 && !(config->learning_rate > 0))
        config_mistake(reader, KEY_muon_learning_rate,
                       "'muon_learning_rate' follows the schedule of 'learning_rate', which is 0");
    if (config->ema > 0 && config->optimizer_state == STATE_BF16_SR)
        config_mistake(reader, KEY_ema,
                       "'ema' swaps the parameters with their average to evaluate it, which optimizer_state=bf16_sr, "
                       "without fp32 parameters, would round: use bf16 or fp32");
    if (config->recheck_interval && !config->deterministic)
        config_mistake(reader, KEY_recheck_interval,
                       "'recheck_interval' compares bits, which needs deterministic = True");
    if (config->mem_limit && config->mem_limit < MEM_LIMIT_LEAST)
        config_mistake(reader, KEY_mem_limit,
                       "'mem_limit' is %llu bytes, too few for any plan: the unit is as in 10.8GiB",
                       (unsigned long long)config->mem_limit);
    if (!*config->out_dir) config_mistake(reader, KEY_out_dir, "'out_dir' is empty");
}

// Rejects contradictory schedules. Unusual ones only warn (schedule_warn).
static void check_schedule(ConfigReader *reader) {
    // The default may be above the rate of a fine-tuning, as in nanoGPT.
    const double default_min_lr = *(const double *)config_keys[KEY_min_lr].value;
    const Config *config = &reader->config;
    if (config->lr_schedule == LR_CONSTANT) return;
    if (config->min_lr > config->learning_rate && config->min_lr != default_min_lr)
        config_mistake(reader, KEY_min_lr, "'min_lr' %g is above 'learning_rate' %g: the rate would rise to it",
                       config->min_lr, config->learning_rate);
    if (config->lr_schedule == LR_WSD && config->cooldown_iters > config->lr_decay_iters)
        config_mistake(reader, KEY_cooldown_iters,
                       "'lr_schedule' is wsd:%lld, more steps than 'lr_decay_iters' %lld: it would fall before step 0",
                       (long long)config->cooldown_iters, (long long)config->lr_decay_iters);
}

// A key gets its value from another key, whose place is then its place.
static void take_place(ConfigReader *reader, int key, int from) { strcpy(reader->origin[key], reader->origin[from]); }

// One number for the shape: heads of 64 channels, a head a layer.
static void set_depth(ConfigReader *reader) {
    Config *config = &reader->config;
    if (!config->depth || !config_in_range(config, KEY_depth)) return;
    const struct {
        int key;
        int64_t *value, set;
    } shape[] = {{KEY_n_layer, &config->n_layer, config->depth},
                 {KEY_n_head, &config->n_head, config->depth},
                 {KEY_n_embd, &config->n_embd, 64 * config->depth}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        const int key = shape[i].key;
        if (config_is_set(reader, key) && reader->source[key] >= reader->source[KEY_depth]) continue;
        *shape[i].value = shape[i].set, take_place(reader, key, KEY_depth);
    }
}

// The time decides when the rate falls and which step is the last. max_iters counts if it is given with the command.
static void set_until(ConfigReader *reader) {
    Config *config = &reader->config;
    const bool is_given = !strncmp(reader->origin[KEY_until], "--", 2);
    if (!*config->until && is_given)
        config_mistake(reader, KEY_until, "the time is empty: leave it out, and the run ends at max_iters");
    if (!*config->until) return;
    if (strcmp(config->until, "job") != 0 && until_check(config->until) < 0) { // eval needs no job
        config_mistake(reader, KEY_until, "%s", err_text());
        err_clear();
    }
    const bool with_command = !strncmp(reader->origin[KEY_lr_schedule], "--", 2);
    if (with_command && (config->lr_schedule != LR_WSD || config->cooldown_iters))
        config_mistake(reader, KEY_lr_schedule,
                       "a run with 'until' cools down as lr_schedule=wsd, in steps that it sets");
    if (!strncmp(reader->origin[KEY_lr_decay_iters], "--", 2) && config->lr_decay_iters != UNTIL_STEPS)
        config_mistake(reader, KEY_lr_decay_iters, "'until' sets 'lr_decay_iters'");
    config->lr_schedule = LR_WSD, config->cooldown_iters = 0, config->lr_decay_iters = UNTIL_STEPS;
    take_place(reader, KEY_lr_schedule, KEY_until), take_place(reader, KEY_lr_decay_iters, KEY_until);
    if (!strncmp(reader->origin[KEY_max_iters], "--", 2)) return;
    config->max_iters = UNTIL_STEPS, take_place(reader, KEY_max_iters, KEY_until);
}

// tokens_per_step = batch_size * gradient_accumulation_steps * block_size.
static void split_step(ConfigReader *reader) {
    enum { ROWS_MAX = 12 }; // of a batch_size that is auto, before the plan splits the step
    Config *config = &reader->config;
    const int64_t tokens = config->tokens_per_step, block = config->block_size;
    if (!tokens || block < 1 || config->batch_size.value < 1) return;
    int64_t *rows = &config->batch_size.value;
    if (config->batch_size.is_auto && tokens % block == 0) {
        const int64_t sequences = tokens / block, micros = config->gradient_accumulation_steps;
        const bool splits = config_is_set(reader, KEY_gradient_accumulation_steps) && micros > 0 &&
                            sequences % micros == 0 && sequences / micros * block <= MICRO_BATCH_TOKENS;
        for (*rows = splits ? sequences / micros : ROWS_MAX; sequences % *rows;) --*rows;
    }
    const int64_t unit = *rows * block, near = (tokens + unit / 2) / unit;
    if (tokens % unit)
        config_mistake(
            reader, KEY_tokens_per_step,
            "'tokens_per_step' %lld is not a multiple of batch_size * block_size = %lld: the nearest is %lld",
            (long long)tokens, (long long)unit, (long long)((near ? near : 1) * unit));
    else if (config_is_set(reader, KEY_gradient_accumulation_steps) &&
             config->gradient_accumulation_steps != tokens / unit)
        config_mistake(reader, KEY_tokens_per_step,
                       "'tokens_per_step' %lld needs %lld gradient_accumulation_steps, and %lld are set",
                       (long long)tokens, (long long)(tokens / unit), (long long)config->gradient_accumulation_steps);
    else
        config->gradient_accumulation_steps = tokens / unit;
}

bool config_is_used(const Config *config, int key) {
    char value[64];
    if (!rules[key].used_value) return true;
    config_value(config, rules[key].used_key, value, sizeof value);
    return !strcmp(value, rules[key].used_value) != rules[key].unless;
}

bool config_is_part(int key) { return rules[key].is_part; }
bool config_is_idle(const Config *config, int key) { return config_is_part(key) && !config_is_used(config, key); }

int config_part(int key) {
    int part = 0;
    while (part < KEY_COUNT && !(rules[part].is_part && rules[part].used_key == key)) part++;
    return part;
}

bool config_is_default(const Config *config, int key) {
    char value[64], initial[64];
    config_value(config, key, value, sizeof value);
    config_default(key, initial, sizeof initial);
    return !strcmp(value, initial);
}

void config_warn(const ConfigReader *reader) {
    const Config *config = &reader->config;
    for (int key = 0; key < KEY_COUNT; key++) {
        if (config_is_part(key) || config_is_used(config, key) || config_is_default(config, key)) continue;
        const char *other = config_key(rules[key].used_key), *value = rules[key].used_value;
        log_warn("%s: '%s' has no effect %s %s%s%s", reader->origin[key], config_key(key),
                 !*value             ? "without"
                 : rules[key].unless ? "where"
                                     : "unless",
                 other, *value ? " is " : "", value);
    }
    if (config->recompute_layers >= config->n_layer && config->recompute != RECOMPUTE_NONE)
        log_warn("%s: the number of layers of 'recompute' has no effect unless it is below n_layer",
                 reader->origin[KEY_recompute]);
}

// With the loss of answers, rows begin at documents and see no other document: else the first targets of a row do not
// count. Not if loss_tokens is a run's, whose other keys are taken, too.
static void set_for_answers(ConfigReader *reader) {
    Config *config = &reader->config;
    if (config->loss_tokens != LOSS_ANSWERS || !config_is_set(reader, KEY_loss_tokens)) return;
    if (!config_is_set(reader, KEY_sampling)) config->sampling = SAMPLING_DOCUMENTS;
    if (!config_is_set(reader, KEY_document_mask)) config->document_mask = true;
}

// Whether a key of nanoGPT sets `key` to a value that differs: not where a later source, as the command line after a
// file, sets `key` itself. Both in one source are a mistake.
static bool prevails(ConfigReader *reader, int nanogpt, int key) {
    char its[64], others[64];
    if (reader->source[nanogpt] != reader->source[key]) return reader->source[nanogpt] > reader->source[key];
    config_text(&reader->config, nanogpt, its, sizeof its), config_text(&reader->config, key, others, sizeof others);
    config_mistake(reader, nanogpt, "'%s' is %s, and '%s' is %s (%s): set one of them", config_key(nanogpt), its,
                   config_key(key), others, reader->origin[key]);
    return false;
}

// Translates the keys of nanoGPT that keys.def does not list, once: they are at their defaults then.
static void translate(ConfigReader *reader) {
    Config *config = &reader->config;
    if (config->grad_checkpoint && config->recompute != RECOMPUTE_BLOCK &&
        prevails(reader, KEY_grad_checkpoint, KEY_recompute)) {
        log_line("grad_checkpoint: recompute = block");
        config->recompute = RECOMPUTE_BLOCK, take_place(reader, KEY_recompute, KEY_grad_checkpoint);
    }
    config->grad_checkpoint = false;
    if (!config->decay_lr && (config->lr_schedule == LR_CONSTANT || !config_is_set(reader, KEY_lr_schedule) ||
                              prevails(reader, KEY_decay_lr, KEY_lr_schedule))) {
        config->lr_schedule = LR_CONSTANT, config->warmup_iters = config->cooldown_iters = 0;
        take_place(reader, KEY_lr_schedule, KEY_decay_lr), take_place(reader, KEY_warmup_iters, KEY_decay_lr);
    }
    config->decay_lr = true;
    if (!config_is_set(reader, KEY_eval_iters) || !config_in_range(config, KEY_eval_iters)) return;
    if (prevails(reader, KEY_eval_iters, KEY_eval_tokens)) {
        config->eval_tokens = 0, take_place(reader, KEY_eval_tokens, KEY_eval_iters);
        reader->eval_iters = config_is_default(config, KEY_eval_iters) ? 0 : config->eval_iters;
    }
    config->eval_iters = *(const int64_t *)config_keys[KEY_eval_iters].value;
    strcpy(reader->origin[KEY_eval_iters], "default");
}

// The size of the batch may still change: with init_from, and as the plan splits the step.
static void count_evaluation(ConfigReader *reader) {
    Config *config = &reader->config;
    if (reader->eval_iters)
        config->eval_tokens = reader->eval_iters * config->batch_size.value * config_eval_block(config);
}

int config_check(ConfigReader *reader) {
    translate(reader);
    set_depth(reader);
    set_until(reader);
    for (int key = 0; key < KEY_COUNT; key++) check_range(reader, key);
    check_paths(reader);
    check_model(reader);
    check_schedule(reader);
    split_step(reader);
    count_evaluation(reader);
    set_for_answers(reader);
    if (!reader->mistake_count) return 0;
    for (char *line = (char *)reader->mistakes.data, *end; (end = strchr(line, '\n')); line = end + 1)
        log_warn("%.*s", (int)(end - line), line);
    return fail(reader->unreadable == reader->mistake_count ? EX_NOINPUT : EX_USAGE, "%d %s in the configuration",
                reader->mistake_count, reader->mistake_count == 1 ? "mistake" : "mistakes");
}
