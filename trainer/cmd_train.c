// trainer train: trains a model; writes checkpoints, metrics and a report to the run directory.
#include "common/err.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "trainer/audit/base_data.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/config/config.h"
#include "trainer/config/until.h"
#include "trainer/engine/engine_data.h"
#include "trainer/inference/sample_text.h"
#include "trainer/optim/schedule.h"
#include "trainer/run/branch.h"
#include "trainer/run/loop_record.h"
#include "trainer/run/run_until.h"
#include "trainer/run/train.h"
#include "trainer/setup/vocabulary.h"
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

static bool print_config, fresh, print_ranks;
static const char *branch_from;
static const Option options[] = {
    {OPT_FLAG, "print_config", &print_config, NULL,
     "print every key, its value and where it comes from, as a configuration file"},
    {OPT_FLAG, "fresh", &fresh, NULL, "start a new run; an earlier one in out_dir moves to out_dir/before-N"},
    {OPT_STRING, "branch_from", &branch_from, "RUN[/ckpt-STEP]",
     "begin in out_dir with the newest or this checkpoint of another run, its record and its order of samples"},
    {OPT_FLAG, "print_ranks", &print_ranks, NULL,
     "with mpirun or srun: every process prints, with the samples of each batch and their hash"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static void log_model(const Engine *engine) {
    const MemoryPlan *plan = &engine->plan;
    char count[16], bytes[16], host[16];
    log_line("%s parameters, %s arena%s%s, %llu tokens a step", human_count(count, (double)engine->model.parameters),
             human_bytes(bytes, (double)plan->bytes), plan->host_bytes ? ", host memory for what is offloaded: " : "",
             plan->host_bytes ? human_bytes(host, (double)plan->host_bytes) : "",
             (unsigned long long)(engine_sequences(engine) * (uint64_t)engine->config.block_size));
    if (engine->collective.world > 1) log_line("%u processes, started by MPI", engine->collective.world);
}

// ---- eval_only, which writes nothing

static int find_state(Engine *engine) {
    const char *out_dir = engine->config.out_dir;
    const int found = fresh ? 0 : checkpoint_newest(out_dir, &engine->config, engine->begins_with, &engine->state);
    return found < 0 || (!found && model_refuse(out_dir) < 0) ? -1 : engine_take_state(engine, found);
}

static int open_and_evaluate(Engine *engine, const Config *config) {
    Collective *ranks = &engine->collective;
    Evaluation evaluations[SPLIT_COUNT];
    if (engine_open(engine, config, fresh, print_ranks) < 0 ||
        ranks_agree(ranks, ranks_first(ranks) ? find_state(engine) : 0) < 0 || engine_connect(engine) < 0 ||
        engine_open_weights(engine, false) < 0)
        return -1;
    int status = feed_attach(engine->feed);
    if (status == 0) status = engine_data_update(engine, false);
    if (ranks_agree(ranks, status) < 0) return -1;
    log_model(engine);
    FeedResult result = engine_evaluate(engine, evaluations);
    if (result == FEED_CHANGED)
        return fail(EX_AGAIN, "the loader changed its dataset during the evaluation: run it again");
    if (result == FEED_STOPPED) return fail(EX_AGAIN, "stopped during the evaluation");
    if (result == FEED_ERROR) return -1;
    loop_print_evaluation(engine, evaluations, false);
    if (!isfinite(evaluations[SPLIT_TRAIN].loss) || !isfinite(evaluations[SPLIT_VAL].loss))
        return fail(EX_NONFINITE, "the loss is not finite");
    return 0;
}

static int evaluate_only(const Config *config) {
    static Engine engine;
    int result = stop_on_signals();
    if (result == 0) result = open_and_evaluate(&engine, config);
    engine_close(&engine);
    return result;
}

// ---- training

// Loads the best checkpoint if only the best ones are saved, as nanoGPT would sample from it.
static int use_best_checkpoint(Run *run) {
    const RunState *state = &run->engine.state;
    char path[PATH_MAX_BYTES];
    Config settings = run->engine.config;
    if (run->engine.config.always_save_checkpoint || !state->best_step || state->best_step == state->step) return 0;
    if (checkpoint_select(run->engine.config.out_dir, "best", path, &settings) <= 0) return -1;
    log_line("sampling from the best checkpoint, '%s'", path);
    if (checkpoint_load(engine_whole(&run->engine), path, false) < 0) return -1;
    ranks_copy_parameters(&run->engine.network, engine_whole(&run->engine));
    return 0;
}

typedef struct {
    const Run *run;
    Buffer *text;
} Sample;

// False when the rest of the time is needed for what follows the sample.
static bool add_text(void *context, Bytes text) {
    const Sample *sample = context;
    buffer_add(sample->text, text.data, text.size);
    return run_until_left(sample->run) > RUN_UNTIL_CLOSING_S;
}

// Samples a text from the trained model. A failure, as of a sample_start that is not in the vocabulary, is a warning. A
// text that a signal has cut is not recorded: the same command samples it again.
static int sample_trained(Run *run, Buffer *text) {
    const Config *config = &run->engine.config;
    if (!config->sample_tokens) return 0;
    if (use_best_checkpoint(run) < 0) return -1;
    const Sampler sampler = {.temperature = 0.8, .top_k = 200, .seed = (uint64_t)config->seed}; // as sample.py
    const Bytes start = {(const uint8_t *)config->sample_start, strlen(config->sample_start)};
    const Vocab *vocab = vocabulary_open(config);
    if (!vocab || sample_text(&run->engine.network, vocab, &sampler, start, (uint64_t)config->sample_tokens, "",
                              add_text, &(Sample){run, text}) < 0) {
        log_warn("no sample: %s", err_text());
        err_clear();
        text->size = 0;
    } else if (stop_requested) {
        log_line("the text was cut short by a signal: the same command samples it again");
        text->size = 0;
    } else {
        if (run_until_left(run) <= RUN_UNTIL_CLOSING_S) log_line("the text was cut at the time of the run");
        if (!log_quiet) printf("---------------\n%.*s\n---------------\n", (int)text->size, (const char *)text->data);
    }
    vocab_close(vocab);
    return 0;
}

// Whether the record has a sample of this step. A process that only ended the run writes it, too.
static bool has_sample(const Run *run) {
    json_t *line = metrics_last_with(run->engine.config.out_dir, "sample");
    const bool found = line && json_integer_value(json_object_get(line, "step")) == (json_int_t)run->engine.state.step;
    json_decref(line);
    return found;
}

// Prints a sample and the losses, and writes the report.
static int conclude(Run *run) {
    const char *out_dir = run->engine.config.out_dir;
    Buffer sample = {0};
    const int result = sample_trained(run, &sample);
    if (result == 0) {
        if (isfinite(run->engine.state.first_loss) && isfinite(run->engine.state.last_loss))
            printf("validation loss %.4f before training, %.4f after %llu steps\n", run->engine.state.first_loss,
                   run->engine.state.last_loss, (unsigned long long)run->engine.state.step);
        else if (isfinite(run->engine.state.last_loss))
            printf("validation loss %.4f after %llu steps\n", run->engine.state.last_loss,
                   (unsigned long long)run->engine.state.step);
        if (run->pace.step_seconds > 0)
            log_line("%.0f tok/s, the mean of the steps from %llu on", run->pace.step_tokens / run->pace.step_seconds,
                     (unsigned long long)run->pace.first_step + 1);
        log_line("report: %s%sreport.html", out_dir, out_dir[strlen(out_dir) - 1] == '/' ? "" : "/");
        loop_flush_lines();
        if (sample.size && !has_sample(run)) loop_record_sample(run, (Bytes){sample.data, sample.size});
        train_report(run);
    }
    buffer_close(&sample);
    return result;
}

static int train_and_conclude(Run *run, const ConfigReader *reader) {
    if (run_open(run, &reader->config, fresh, print_ranks) < 0) return -1;
    log_model(&run->engine);
    config_warn(reader);
    if (!run_is_complete(run)) schedule_warn(&reader->config);
    if (run_owns(run)) base_data_compare(&run->engine);
    if (train(run) < 0) return -1;
    if (!run_owns(run)) return 0;
    const int result = conclude(run);
    if (result == 0) run_until_warn_late(run);
    return result;
}

static int train_all(const ConfigReader *reader) {
    static Run run;
    stop_cooldown_on_usr1 = *reader->config.until;
    int result = stop_on_signals();
    if (result == 0) result = train_and_conclude(&run, reader);
    run_close(&run);
    return result;
}

static int run(int count, char **files) {
    ConfigReader reader;
    int result = config_read(&reader, count, files);
    const bool prints = result == 0 && print_config;
    if (result == 0 && !prints) result = until_check(reader.config.until);
    if (result == 0 && branch_from && fresh)
        result = fail(EX_USAGE, "--fresh and --branch_from: a branch begins in an out_dir without a run");
    if (result == 0 && branch_from && !prints) result = branch_open(&reader.config, branch_from);
    if (result == 0) result = model_config_resolve(&reader, !fresh);
    if (result == 0 && !print_config) result = vocabulary_resolve(&reader, NULL);
    if (prints) // also without the model of init_from
        config_print(&reader);
    else if (result == 0) {
        signal(SIGPIPE, SIG_IGN); // a closed stdout is an error of a write
        result = reader.config.eval_only ? evaluate_only(&reader.config) : train_all(&reader);
    }
    if (result < 0 && !prints) branch_withdraw(&reader.config);
    config_close(&reader);
    return result;
}

const Command trainer_train = {
    "train",        "[CONFIG...] [--key=value...]", "train a model, or resume the run in out_dir", options, run,
    &config_options};
