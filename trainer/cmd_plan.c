// trainer plan: the memory plan of a run, without running it.
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/machine/launch.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/config/config.h"
#include "trainer/config/until.h"
#include "trainer/model/gemm_rate.h"
#include "trainer/plan/gpu_card.h"
#include "trainer/plan/plan_check.h"
#include "trainer/plan/plan_choices.h"
#include "trainer/plan/step_cost.h"
#include "trainer/records/metrics.h"
#include "trainer/run/budget.h"
#include "trainer/setup/answer_share.h"
#include "trainer/setup/backend_for.h"
#include "trainer/setup/data_check.h"
#include "trainer/setup/vocabulary.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORLD_MAX = 1024 };
static bool print_config, json;
static int64_t world = 0;
static const char *card_name;
static const Option options[] = {
    {OPT_FLAG, "print_config", &print_config, NULL,
     "print every key, its value and where it comes from, as a configuration file"},
    {OPT_INT, "world", &world, "N",
     "the plan of each of N processes, in memory of any size; 0 = as many as mpirun or srun has started, after mpirun "
     "in the free memory of this machine"},
    {OPT_STRING, "card", &card_name, "NAME",
     "the plan for a GPU that need not be here, as \"RTX 3060\": its memory, and the hours by its data sheet"},
    {OPT_FLAG, "json", &json, NULL, "print one JSON object"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

// The time of `tokens` at the speed of the run in out_dir, if it is of this model.
static void print_measured(const Config *config, double tokens, Buffer *text) {
    char path[PATH_MAX_BYTES], time[16];
    MetricsStep last;
    uint64_t step;
    SavedState saved = {0};
    bool other = false;
    if (checkpoint_any(config->out_dir, path, &step) && saved_state_read(&saved, path) == 0)
        other = !saved_state_is_of(&saved, config);
    err_clear();
    saved_state_close(&saved);
    if (other)
        buffer_print(text, "\n           (the run in '%s' is of another model: its speed is not shown)",
                     config->out_dir);
    else if (metrics_last(&last, config->out_dir) && last.tokens_per_s > 0)
        buffer_print(text,
                     "\n           %s at %.0f tok/s, the median of the last steps, up to %llu, of the run in '%s'",
                     human_time(time, tokens / last.tokens_per_s), last.tokens_per_s, (unsigned long long)last.step,
                     config->out_dir);
    buffer_print(text, "\n");
}

// The hours of a run of `flops`, and the steps that four days have; of a run with `until`, whose `flops` are those of a
// step, the steps that its time has. All by the share of the data sheet's peak that steps reach.
static void print_card_time(const Config *config, const Model *model, const Backend *backend, double flops,
                            const char *each, Buffer *text) {
    const bool timed = config->max_iters == UNTIL_STEPS;
    const double days = 4, steps = (double)config->max_iters, time = budget_seconds(config->until);
    const double again = step_cost_recompute(&model->shape, backend, config->recompute, (int)config->recompute_layers);
    const GpuCard *card = gpu_card_of(backend->card);
    const double least_s = flops * (1 + again) / (card->most_share * card->flops);
    const double most_s = flops * (1 + again) / (card->least_share * card->flops);
    char least[16], most[16], fewest[16], more[16];
    if (timed)
        buffer_print(text, "%.0f to %.0f steps, ", floor(time / most_s), floor(time / least_s));
    else
        buffer_print(text, ": %s to %s, ", human_time(least, least_s), human_time(most, most_s));
    buffer_print(text, "%sat %.2f to %.2f of the card's %.0f TFLOP/s (%s)", each, card->least_share, card->most_share,
                 card->flops * 1e-12,
                 card->ran ? "measured on such a card" : "an estimate, nothing has run on such a card");
    if (again > 0) buffer_print(text, ", with %.1f %% more for what is computed again", 100 * again);
    if (offload_includes(config, OFFLOAD_OPTIMIZER)) buffer_print(text, ", without the copies of what is offloaded");
    if (!timed && steps > 0)
        buffer_print(text, "\n           in four days %s to %s steps",
                     human_count(fewest, days * 86400 / most_s * steps),
                     human_count(more, days * 86400 / least_s * steps));
}

// Prints the size of the run and its time: of a card that is known; else at the rate of a probe of the CPU's products,
// which no whole step reaches, or at given rates; and at the median rate of the last steps of the run in out_dir.
static void print_time(const Config *config, const Model *model, const Backend *backend, uint64_t train_tokens,
                       Buffer *text) {
    const double tokens = (double)(config->batch_size.value * config->gradient_accumulation_steps * config->block_size);
    const bool timed = config->max_iters == UNTIL_STEPS; // as many steps as the time allows
    const long long steps = timed ? (long long)budget_steps() : (long long)config->max_iters;
    const double total = tokens * (double)steps, flops = total * model_token_flops(model);
    const unsigned processes = config_world(config);
    char count[16], time[16], other[16], each[48] = "";
    buffer_print(text, "\nrun        ");
    const bool card = backend->card && gpu_card_of(backend->card) && backend->act_bytes == 2; // the peak's types
    if (processes > 1) snprintf(each, sizeof each, "with %u processes, ", processes);
    if (timed) buffer_print(text, "until %s: %s", config->until, steps ? "about " : "");
    if (timed && !steps && card && budget_seconds(config->until) > 0)
        print_card_time(config, model, backend, tokens * model_token_flops(model) / processes, each, text);
    else if (timed && !steps)
        buffer_print(text, "the steps are not known before it");
    if (timed && !steps) buffer_print(text, "\n");
    if (!steps) return;
    buffer_print(text, "%lld steps, %s tokens, ", steps, human_count(count, total));
    if (train_tokens) buffer_print(text, "%.2f epochs of '%s', ", total / (double)train_tokens, config->dataset);
    buffer_print(text, "%.3g FLOP%s", flops, timed ? "\n" : "");
    if (timed) return;
    const double rate = backend->in_host_memory ? gemm_rate_probe(backend, &model->shape,
                                                                  (int)(config->batch_size.value * config->block_size))
                                                : 0;
    if (card)
        print_card_time(config, model, backend, flops / processes, each, text);
    else if (rate > 0)
        buffer_print(text,
                     ": at least %s, %sat the %.3g TFLOP/s of matrix products alone in a short probe%s, which other "
                     "programs slow down",
                     human_time(time, flops / rate / processes), each, rate * 1e-12, processes > 1 ? " of one" : "");
    else
        buffer_print(text, ": %s at 10 TFLOP/s, %s at 100 TFLOP/s (the device was not measured)",
                     human_time(time, flops / 10e12), human_time(other, flops / 100e12));
    print_measured(config, total, text);
}

// How much of the answers the first epoch counts.
static int print_answers(const Config *config, Buffer *text) {
    AnswerShare share;
    const int found = answer_share_find(&share, config);
    if (found <= 0) return found;
    const double percent = 100 / (double)share.answers;
    buffer_print(text,
                 "answers    %.1f %% of the answers' tokens%s count in the first epoch, %.1f %% in two rows; they are "
                 "%.1f %% of its targets\n",
                 percent * (double)share.counted, share.whole ? "" : " at the beginning of the data",
                 percent * (double)share.twice, 100 * (double)(share.counted + share.twice) / (double)share.targets);
    return 0;
}

// Takes from the run in out_dir, if it is of this model, the values of keys that are auto.
static void take_choices(Config *config) {
    char path[PATH_MAX_BYTES];
    SavedState saved = {0};
    uint64_t step;
    if (checkpoint_any(config->out_dir, path, &step) && saved_state_read(&saved, path) == 0 &&
        saved_state_is_of(&saved, config)) {
        log_line("the run in '%s' goes on at step %llu: keys that are auto have its values", config->out_dir,
                 (unsigned long long)step);
        saved_state_resolve_auto(&saved, config);
    }
    err_clear();
    saved_state_close(&saved);
}

// The backend of the configuration, or of facts alone: of `card`, or of a device that could not be opened.
static const Backend *open_backend(const Config *config, const GpuCard *card) {
    static char text[GPU_CARD_TEXT];
    const GpuProperties gpu = card ? gpu_card_properties(card, text) : (GpuProperties){0};
    const Backend *backend = card ? NULL : backend_for(config, NULL, NULL);
    if (backend || config->device < DEVICE_CUDA) return backend;
    if (!card) {
        log_line(
            "no GPU is open, and --card names none, so the plan has rates of an H200 and no limit but mem_limit: %s",
            err_text());
        err_clear();
    }
    return backend_for(config, &gpu, NULL);
}

static void print_json(const MemoryPlan *plan, const Model *model, bool fits, Buffer *text) {
    json_add_number(text, "parameters", (uint64_t)model->elements);
    json_add_number(text, "arena_bytes", plan->bytes);
    json_add_number(text, "host_bytes", plan->host_bytes);
    json_add_bool(text, "fits", fits);
    buffer_print(text, "}\n");
}

static const Backend *reopen_backend(const Config *config, const GpuCard *card) {
    const bool quiet = log_quiet;
    log_quiet = true;
    const Backend *backend = open_backend(config, card);
    log_quiet = quiet;
    return backend;
}

// With keys that were chosen the whole is a configuration file.
static void print_text(const Buffer *text, const Buffer *keys) {
    const char *line = (const char *)text->data, *end = line + text->size;
    while (keys->size && line < end) {
        const char *found = memchr(line, '\n', (size_t)(end - line));
        const size_t size = (size_t)((found ? found : end - 1) - line);
        printf("#%s%.*s\n", size ? " " : "", (int)size, line);
        line += size + 1;
    }
    fwrite(line, 1, (size_t)(end - line), stdout);
    if (keys->size) fwrite(keys->data, 1, keys->size, stdout);
}

static int print_plan(ConfigReader *reader, const GpuCard *card) {
    Config *config = &reader->config;
    FeedDataset dataset;
    const int found = data_check_find(config, &dataset);
    if (found < 0) return -1;
    take_choices(config);
    // A device that is not here is planned without its free memory, as are the processes of --world, which may be
    // elsewhere.
    const Backend *backend = open_backend(config, card);
    if (!backend) return -1;
    const bool here = !backend->is_planned && (config_world(config) == 1 || config->local_world);
    const int64_t chunk_rows = config->loss_chunk_rows;
    Model model;
    MemoryPlan plan;
    Buffer text = {0}, keys = {0};
    Error unfit;
    if (json) buffer_print(&text, "{");
    if (*config->until && !found) log_warn("until chooses nothing here: plan with --dataset=DIR for a choice");
    if (*config->until && found) {
        int status = budget_choose(reader, backend, card, here, &dataset);
        backend->close();
        if (status < 0 || budget_print(reader, card, json, &text, &keys) < 0 ||
            !(backend = reopen_backend(config, card)))
            return buffer_close(&text), buffer_close(&keys), -1;
    }
    const bool fits = memory_plan_of_run(&plan, &model, config, backend, here) == 0;
    err_take(&unfit); // found before the probe of print_time takes memory
    int result = 0;
    if (json)
        print_json(&plan, &model, fits, &text);
    else {
        if (card) gpu_card_print(card, &text);
        memory_plan_print(&plan, config, &model, backend, &text);
        print_time(config, &model, backend, dataset.tokens[SPLIT_TRAIN], &text);
        result = print_answers(config, &text);
        plan_print_choices(config, chunk_rows, &model, backend, &text);
    }
    if (result == 0 && !fits) err_give(&unfit), result = -1;
    if (result == 0 || err_code() != EX_USAGE) print_text(&text, &keys); // also one that is too large
    if (result == 0 && found) result = data_check(config, &dataset);
    if (result == 0 && found) result = data_check_pass(config, &dataset, 0, 0);
    buffer_close(&text), buffer_close(&keys);
    model_close(&model);
    backend->close();
    return result;
}

static int run(int count, char **files) {
    ConfigReader reader;
    Launch launch;
    if (launch_find(&launch) < 0) return -1;
    const bool launched = !world;
    if (launched) world = launch.world;
    if (world < 1 || world > WORLD_MAX) return fail(EX_USAGE, "--world is a number of processes, 1 to %d", WORLD_MAX);
    const GpuCard *card = NULL;
    if (card_name && gpu_card_find(&card, card_name) < 0) return -1;
    int result = config_read(&reader, count, files);
    if (result == 0 && card && reader.config.device == DEVICE_CPU)
        result = fail(EX_USAGE, "--card plans for a GPU, and device is cpu: leave one of them out");
    if (card && reader.config.device == DEVICE_AUTO) reader.config.device = DEVICE_CUDA;
    if (result == 0) result = model_config_resolve(&reader, true);
    reader.config.world = (unsigned)world, reader.config.local_world = launched ? launch.local_world : 0;
    if (result == 0 && !print_config) result = vocabulary_resolve(&reader, NULL);
    if (result == 0 && print_config)
        config_print(&reader);
    else if (result == 0) {
        config_warn(&reader);
        threads_expect(&reader.config);
        result = print_plan(&reader, card);
    }
    config_close(&reader);
    return result;
}

const Command trainer_plan = {
    "plan", "[CONFIG...] [--key=value...]", "print the memory plan of a run", options, run, &config_options};
