// trainer train: trains a model; writes checkpoints, metrics and a report to the run directory.
#include "common/err.h"
#include "common/log.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/config/config.h"
#include "trainer/inference/sample_text.h"
#include "trainer/optim/schedule.h"
#include "trainer/run/loop_record.h"
#include "trainer/run/stop_signals.h"
#include "trainer/run/train.h"
#include "trainer/setup/vocabulary.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>

static bool print_config, fresh, print_ranks;
static const Option options[] = {
    {OPT_FLAG, "print_config", &print_config, NULL,
     "print every key, its value and where it comes from, as a configuration file"},
    {OPT_FLAG, "fresh", &fresh, NULL, "start a new run; an earlier one in out_dir moves to out_dir/before-N"},
    {OPT_FLAG, "print_ranks", &print_ranks, NULL,
     "with mpirun or srun: every process prints, with the samples of each batch and their hash"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static Run the_run;

static int evaluate_only(Run *run) {
    Evaluation evaluations[SPLIT_COUNT];
    FeedResult result = train_evaluate(run, evaluations);
    if (result == FEED_CHANGED)
        return fail(EX_AGAIN, "the loader changed its dataset during the evaluation: run it again");
    if (result == FEED_STOPPED) return fail(EX_AGAIN, "stopped during the evaluation");
    if (result == FEED_ERROR) return -1;
    loop_print_evaluation(run, evaluations, false);
    if (!isfinite(evaluations[SPLIT_TRAIN].loss) || !isfinite(evaluations[SPLIT_VAL].loss))
        return fail(EX_NONFINITE, "the loss is not finite");
    return 0;
}

// Loads the best checkpoint if only the best ones are saved, as nanoGPT would sample from it.
static int use_best_checkpoint(Run *run) {
    const RunState *state = &run->state;
    char path[PATH_MAX_BYTES];
    Config settings = *&run->config;
    if (run->config.always_save_checkpoint || !state->best_step || state->best_step == state->step) return 0;
    if (checkpoint_select(run->config.out_dir, "best", path, &settings) <= 0) return -1;
    log_line("sampling from the best checkpoint, '%s'", path);
    if (checkpoint_load(run_whole(run), path, false) < 0) return -1;
    ranks_copy_parameters(&run->network, run_whole(run));
    return 0;
}

static void add_text(void *buffer, Bytes text) { buffer_add(buffer, text.data, text.size); }

// Samples a text from the trained model. A sample_start that is not in the vocabulary is a warning.
static int sample_trained(Run *run, Buffer *text) {
    const Config *config = &run->config;
    if (!config->sample_tokens) return 0;
    if (use_best_checkpoint(run) < 0) return -1;
    const Sampler sampler = {.temperature = 0.8, .top_k = 200, .seed = (uint64_t)config->seed}; // as sample.py
    const Bytes start = {(const uint8_t *)config->sample_start, strlen(config->sample_start)};
    const Vocab *vocab = vocabulary_open(config);
    if (!vocab) return -1;
    if (sample_text(&run->network, vocab, &sampler, start, (uint64_t)config->sample_tokens, "", add_text, text) < 0) {
        log_warn("no sample: %s", err_text());
        err_clear();
    }
    vocab_close(vocab);
    if (!log_quiet) printf("---------------\n%.*s\n---------------\n", (int)text->size, (const char *)text->data);
    return 0;
}

// Prints a sample and the losses, and writes the report.
static int conclude(Run *run) {
    const char *out_dir = run->config.out_dir;
    Buffer sample = {0};
    const int result = sample_trained(run, &sample);
    if (result == 0) {
        if (isfinite(run->state.first_loss) && isfinite(run->state.last_loss))
            printf("validation loss %.4f before training, %.4f after %llu steps\n", run->state.first_loss,
                   run->state.last_loss, (unsigned long long)run->state.step);
        else if (isfinite(run->state.last_loss))
            printf("validation loss %.4f after %llu steps\n", run->state.last_loss,
                   (unsigned long long)run->state.step);
        if (run->pace.step_seconds > 0)
            log_line("%.0f tok/s, the mean of the steps from %llu on", run->pace.step_tokens / run->pace.step_seconds,
                     (unsigned long long)run->pace.first_step + 1);
        log_line("report: %s%sreport.html", out_dir, out_dir[strlen(out_dir) - 1] == '/' ? "" : "/");
        loop_flush_lines();
        if (sample.size && run->pace.steps) loop_record_sample(run, (Bytes){sample.data, sample.size});
        train_report(run);
    }
    buffer_close(&sample);
    return result;
}

static int run_all(Run *run, const ConfigReader *reader) {
    const Config *config = &reader->config;
    char count[16], bytes[16], host[16];
    if (run_open(run, config, fresh, print_ranks) < 0) return -1;
    const bool offloaded = run->plan.host_bytes;
    log_line("%s parameters, %s arena%s%s, %llu tokens a step", human_count(count, (double)run->model.parameters),
             human_bytes(bytes, (double)run->plan.bytes), offloaded ? ", host memory for what is offloaded: " : "",
             offloaded ? human_bytes(host, (double)run->plan.host_bytes) : "",
             (unsigned long long)(run_sequences(run) * (uint64_t)config->block_size));
    if (run->collective.world > 1) log_line("%u processes, started by MPI", run->collective.world);
    if (config->eval_only) return evaluate_only(run);
    config_warn(reader);
    schedule_warn(config);
    if (train(run) < 0) return -1;
    return run_owns(run) ? conclude(run) : 0;
}

static int run(int count, char **files) {
    ConfigReader reader;
    int result = config_read(&reader, count, files);
    const bool prints = result == 0 && print_config;
    if (result == 0) result = model_config_resolve(&reader, !fresh);
    if (result == 0 && !print_config) result = vocabulary_resolve(&reader, NULL);
    if (prints) // also without the model of init_from
        config_print(&reader);
    else if (result == 0) {
        signal(SIGPIPE, SIG_IGN); // a closed stdout is an error of a write
        result = stop_on_signals(&the_run.stop);
        if (result == 0) result = run_all(&the_run, &reader);
        run_close(&the_run);
    }
    config_close(&reader);
    return result;
}

const Command trainer_train = {
    "train",        "[CONFIG...] [--key=value...]", "train a model, or resume the run in out_dir", options, run,
    &config_options};
