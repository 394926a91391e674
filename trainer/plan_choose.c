// Which plan fits: the choice of what is auto, and the nearest settings to what does not fit.
#include "trainer/plan_choose.h"
#include "common/err.h"
#include "common/log.h"
#include <math.h>

// What a level costs: shares of the step's time. gelu is one pass over memory; a block's forward is a fifth of a step.
static const struct {
    int level;
    double time;
    const char *name;
} levels[] = {
    {KEEP_ALL,    1,    "all kept"               },
    {GELU_AGAIN,  1.01, "gelu made again"        },
    {BLOCK_AGAIN, 1.22, "whole blocks made again"},
};
enum { LEVELS = sizeof levels / sizeof *levels };

static size_t bytes_of(const Config *config, const Model *model, const Backend *backend) {
    Plan plan;
    plan_make(&plan, config, model, backend, true);
    return plan.bytes;
}

// ---- what is auto

// Time of a token, relative. What a micro-batch costs however small it is, in tokens: launches on a GPU, where 4
// sequences of 1024 run at half the speed of 64; on a CPU the packing of weights and the ends of parallel loops.
static double token_time(const Config *config, const Backend *backend, double level_time) {
    double fixed = strcmp(backend->name, "cpu") ? 4096 : 256;
    return level_time * (1 + fixed / (double)(config->batch_size * config->block_size));
}

void plan_choose(Config *config, const Backend *backend, bool here) {
    const double worth = 0.995; // of the time: larger plans must gain something
    const Config asked = *config;
    int64_t rows_asked = auto_number(asked.batch_size), sequences = rows_asked * asked.gradient_accumulation_steps;
    uint64_t limit = plan_limit(&asked, backend, here);
    bool cut = is_auto(asked.batch_size) && asked.mem_limit;
    double best = INFINITY;
    size_t least = SIZE_MAX;
    ModelShape shape = shape_of(config);
    Model model;
    model_open(&model, &shape);
    if (is_auto(asked.batch_size) && !asked.eval_tokens) // an evaluation reads what it would have
        config->eval_tokens = asked.eval_iters * rows_asked * asked.block_size;
    Config tried = *config;
    for (int i = 0; i < LEVELS; i++) {
        if (!is_auto(asked.recompute) && asked.recompute != levels[i].level) continue;
        for (int64_t rows = cut ? 1 : rows_asked; rows <= (cut ? sequences : rows_asked); rows++) {
            if (sequences % rows) continue;
            tried.batch_size = rows, tried.gradient_accumulation_steps = sequences / rows;
            tried.recompute = levels[i].level;
            size_t bytes = bytes_of(&tried, &model, backend);
            bool fits = !limit || bytes <= limit;
            double time = fits ? token_time(&tried, backend, levels[i].time) : INFINITY;
            if (fits ? time < best * worth : best == INFINITY && bytes < least) *config = tried, best = time;
            if (bytes < least) least = bytes;
            if (!fits) break; // nor do larger ones
        }
    }
    model_close(&model);
    if (config->batch_size == rows_asked && config->recompute == auto_number(asked.recompute)) return;
    char size[16];
    log_line("for %s: batch_size %lld, gradient_accumulation_steps %lld, recompute %lld",
             human_bytes(size, (double)limit), (long long)config->batch_size,
             (long long)config->gradient_accumulation_steps, (long long)config->recompute);
}

// ---- what to ask for instead

static void add_settings(Buffer *out, const Config *asked, const Config *config, size_t bytes) {
    const int keys[] = {KEY_batch_size,      KEY_gradient_accumulation_steps,
                        KEY_eval_batch_size, KEY_recompute,
                        KEY_loss_chunk_rows, KEY_block_size};
    char size[16];
    buffer_print(out, "%s", out->size ? ";" : "");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char then[32], now[32];
        config_value(asked, keys[i], then, sizeof then), config_value(config, keys[i], now, sizeof now);
        if (strcmp(then, now)) buffer_print(out, " --%s=%s", config_key(keys[i]), now);
    }
    buffer_print(out, " (%s)", human_bytes(size, (double)bytes));
}

// The largest micro-batch that fits, effective batch kept. 0: none.
static size_t shrink(Config *config, const Backend *backend, uint64_t limit) {
    int64_t most = config->batch_size, sequences = most * config->gradient_accumulation_steps;
    size_t bytes = 0;
    ModelShape shape = shape_of(config);
    Model model;
    model_open(&model, &shape);
    for (int64_t rows = most; rows >= 1; rows--) {
        if (sequences % rows) continue;
        config->batch_size = rows, config->gradient_accumulation_steps = sequences / rows;
        if (config->eval_batch_size > rows) config->eval_batch_size = rows;
        bytes = bytes_of(config, &model, backend);
        if (bytes <= limit) break;
    }
    model_close(&model);
    return bytes <= limit ? bytes : 0;
}

// Settings near the asked ones that fit: smaller micro-batches as it is, with more made again, with smaller chunks of
// logits too, and shorter sequences.
static void suggest(const Config *asked, const Backend *backend, uint64_t limit, Buffer *out) {
    enum { SMALL_CHUNK = 256 };
    int64_t rows = 0; // of the last suggestion: the next must be better in that
    int found = 0;
    for (int step = 0; step < LEVELS + 2 && found < 3; step++) {
        Config config = *asked;
        int level = step < LEVELS ? levels[step].level : BLOCK_AGAIN;
        if (level < asked->recompute) continue;
        config.recompute = level;
        if (step >= LEVELS && config.loss_chunk_rows > SMALL_CHUNK) config.loss_chunk_rows = SMALL_CHUNK;
        if (step > LEVELS && config.block_size > 1) config.block_size /= 2;
        size_t bytes = shrink(&config, backend, limit);
        if (!bytes || config.batch_size <= rows) continue;
        add_settings(out, asked, &config, bytes);
        rows = config.batch_size, found++;
    }
}

int plan_check(const Plan *plan, const Config *config, const Backend *backend, bool here) {
    uint64_t limit = plan_limit(config, backend, here);
    if (!limit || plan->bytes <= limit) return 0;
    Buffer near = {0};
    char need[16], most[16], holders[256] = "";
    suggest(config, backend, limit, &near);
    human_bytes(need, (double)plan->bytes), human_bytes(most, (double)limit);
    bool card = strcmp(backend->name, "cpu"), asked = limit == config->mem_limit;
    const char *what = asked ? "the limit" : card ? "the GPU's free memory" : "this machine's free memory";
    if (card && !asked) backend->holders(holders, sizeof holders);
    fail(card ? EX_VRAM : EX_MEMORY, "the plan needs %s, %s is %s%s%s%s%s%s", need, what, most, *holders ? " (" : "",
         holders, *holders ? ")" : "", near.size ? "; these fit:" : ", and no batch size fits: take a smaller model",
         near.size ? (const char *)near.data : "");
    buffer_close(&near);
    return -1;
}

// ---- the table

static int64_t largest_rows(Config config, const Model *model, const Backend *backend) {
    const int64_t most = 1 << 14;
    int64_t fits = 0, too_many = most;
    if (config.eval_batch_size > 1) config.eval_batch_size = 1;
    while (too_many - fits > 1) {
        config.batch_size = (fits + too_many) / 2;
        if (bytes_of(&config, model, backend) <= config.mem_limit)
            fits = config.batch_size;
        else
            too_many = config.batch_size;
    }
    return fits;
}

// The backend's facts with another optimizer_state.
static Backend with_state(const Backend *backend, size_t master_bytes, size_t moment_bytes) {
    Backend other = *backend;
    other.master_bytes = backend->par_bytes == sizeof(float) ? 0 : master_bytes, other.moment_bytes = moment_bytes;
    return other;
}

void plan_print_levers(const Config *config, const Model *model, const Backend *backend, Buffer *out) {
    const Backend states[] = {with_state(backend, 4, 4), with_state(backend, 4, 2), with_state(backend, 0, 2)};
    const char *title = config->mem_limit ? "largest batch_size in mem_limit, by optimizer_state" : "";
    buffer_print(out, "\n  %-26s %14s  %s\n", "recompute", "arena", title);
    if (config->mem_limit) buffer_print(out, "  %41s  %8s %8s %8s\n", "", "full", "m8", "sr");
    for (int i = 0; i < LEVELS; i++) {
        Config other = *config;
        char bytes[16];
        other.recompute = levels[i].level;
        human_bytes(bytes, (double)bytes_of(&other, model, backend));
        buffer_print(out, "%s %d %-24s %14s ", config->recompute == levels[i].level ? "*" : " ", levels[i].level,
                     levels[i].name, bytes);
        for (size_t state = 0; config->mem_limit && state < sizeof states / sizeof *states; state++)
            buffer_print(out, " %8lld", (long long)largest_rows(other, model, &states[state]));
        buffer_print(out, "\n");
    }
}
