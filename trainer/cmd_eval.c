// trainer eval: the loss of a trained model on samples of each split, or its grade by items.
#include "common/err.h"
#include "common/log.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/config/config.h"
#include "trainer/inference/trained.h"
#include "trainer/items/grade.h"
#include "trainer/records/evaluation.h"
#include "trainer/setup/loader_process.h"
#include "trainer/setup/vocabulary.h"
#include <math.h>
#include <stdio.h>

static bool json;
static const char *which = "", *items, *wanted_split = "";
static const Option options[] = {
    {OPT_STRING, "ckpt", &which, TRAINED_WHICH, TRAINED_MEANING},
    {OPT_STRING, "split", &wanted_split, "train|val", "this split alone; without it both, or the one that has samples"},
    {OPT_STRING, "items", &items, "FILE",
     "grade by the items of a file instead: items, texts to continue, answers (JSON lines, docs/grade.md); - is "
     "standard input"},
    {OPT_FLAG, "json", &json, NULL, "print JSON objects: one for each split, or each item"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

// `answers`: only some of the targets count.
static void print_evaluation(const Evaluation *evaluation, const char *name, bool answers) {
    enum { DIGITS = 9 };
    Buffer text = {0};
    if (json) {
        evaluation_add_value(&text, "loss", evaluation->loss, DIGITS);
        evaluation_add_value(&text, "bpb", evaluation->bits_per_byte, DIGITS);
        buffer_print(&text, ", \"tokens\": %llu", (unsigned long long)evaluation->tokens);
        if (answers) buffer_print(&text, ", \"targets\": %llu", (unsigned long long)evaluation->targets);
        evaluation_add_sources(&text, evaluation, DIGITS);
        printf("{\"split\": \"%s\"%s}\n", name, (const char *)text.data);
    } else {
        evaluation_add_text(&text, evaluation);
        printf("%-5s loss %.4f over %llu tokens%.*s\n", name, evaluation->loss,
               (unsigned long long)(answers ? evaluation->targets : evaluation->tokens), (int)text.size,
               (const char *)text.data);
    }
    buffer_close(&text);
}

static int evaluate_split(Trained *trained, const Config *config, Feed *feed, const uint8_t *token_bytes, int split) {
    const BatchSource source = source_of_feed(feed);
    Evaluation evaluation;
    uint64_t consumed;
    if (trained_consumed(trained, feed_dataset(feed), &consumed) < 0) return -1;
    evaluation_init(&evaluation, config, feed, split, consumed);
    if (!evaluation.part_count)
        return fail(EX_USAGE, "the %s data has no more than %lld tokens, the length of a sequence", split_names[split],
                    (long long)config_eval_block(config));
    FeedResult result = evaluation_run(&evaluation, &trained->network, &source, token_bytes);
    if (result == FEED_CHANGED)
        return fail(EX_AGAIN, "the loader changed its dataset during the evaluation: run it again");
    if (result != FEED_BATCH) return -1;
    print_evaluation(&evaluation, split_names[split], trained->plan.answers);
    if (!isfinite(evaluation.loss))
        return fail(EX_NONFINITE, "the loss of the %s data is not finite", split_names[split]);
    return 0;
}

// Without --split, a split that is too short for a sample is left out if the other is not.
static bool is_wanted(const Config *config, const FeedDataset *dataset, int split) {
    if (*wanted_split) return !strcmp(wanted_split, split_names[split]);
    if (evaluate_samples_of(config, dataset->tokens[split]) || !evaluate_samples_of(config, dataset->tokens[!split]))
        return true;
    log_line("no %s data: it has no more than %lld tokens, the length of a sequence", split_names[split],
             (long long)config_eval_block(config));
    return false;
}

static int evaluate_with(Trained *trained, const Config *config, LoaderProcess *loader_process) {
    FeedConfig wanted = {
        .vocab_size = (uint32_t)trained->model.shape.vocab,
        .sequence_tokens = (uint32_t)config->block_size,
        .max_rows = (uint32_t)trained->plan.eval.rows,
    };
    loader_process_configure(loader_process, config, &wanted);
    static uint8_t token_bytes[IDS_MAX];
    if (vocabulary_fingerprint(config, wanted.vocab_fp) < 0 || vocabulary_token_bytes(config, token_bytes) < 0)
        return -1;
    Feed *feed = feed_open(&wanted);
    int result = feed && vocabulary_check(config, feed_dataset(feed)) == 0 && feed_attach(feed) == 0 ? 0 : -1;
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL && result == 0; split++)
        if (is_wanted(config, feed_dataset(feed), split))
            result = evaluate_split(trained, config, feed, token_bytes, split);
    feed_close(feed);
    return result;
}

static void print_line(void *self, Bytes line) {
    (void)self;
    fwrite(line.data, 1, line.size, stdout);
}

// The steps of a checkpoint, -1 of another model.
static int64_t steps_of(const char *path) {
    SavedState saved;
    const int64_t step = saved_state_read(&saved, path) == 0 ? (int64_t)saved.state.step : -1;
    saved_state_close(&saved);
    err_clear();
    return step;
}

static int grade_with(Trained *trained, const Vocab *vocab) {
    Grading grading = {.network = &trained->network, .vocab = vocab, .model = trained->path, .ema = trained->average};
    ItemsFile file;
    Grade grade = {0};
    Buffer table = {0};
    grading.step = steps_of(trained->path), grading.write = json ? print_line : NULL;
    int result = items_open(&file, items);
    if (result == 0) result = grade_items(&grade, &grading, &file);
    if (result == 0) {
        grade_print(&table, &grade);
        if (!json || !log_quiet) fwrite(table.data, 1, table.size, json ? stderr : stdout);
        grade_warn(&grade);
        result = grade_check_finite(&grade);
    }
    grade_free(&grade), items_close(&file), buffer_close(&table);
    return result;
}

static int grade_trained(Trained *trained, const Config *config) {
    const Vocab *vocab = vocabulary_open(config);
    const int result = vocab ? grade_with(trained, vocab) : -1;
    vocab_close(vocab);
    return result;
}

// A dataset of a configuration file may be the training run's.
static int check_options(const ConfigReader *reader) {
    static const int keys[] = {KEY_dataset, KEY_loader};
    if (*wanted_split && strcmp(wanted_split, "train") && strcmp(wanted_split, "val"))
        return fail(EX_USAGE, "--split is train or val, not '%s'", wanted_split);
    if (*wanted_split && items) return fail(EX_USAGE, "--split and --items, whose items are of no split");
    if (items && !*items) return fail(EX_USAGE, "--items names no file");
    for (size_t i = 0; items && i < sizeof keys / sizeof *keys; i++)
        if (!strncmp(reader->origin[keys[i]], "--", 2))
            return fail(EX_USAGE,
                        "%s and --items, which evaluates the items of a file and no dataset: give one of the two",
                        reader->origin[keys[i]]);
    return 0;
}

static int run(int count, char **files) {
    ConfigReader reader;
    Trained trained = {0};
    LoaderProcess loader_process = {0};
    Config *config = &reader.config;
    int result = config_read(&reader, count, files);
    if (result == 0) result = check_options(&reader);
    if (items) config_flag(&reader, "loss_tokens=all"); // all scored tokens count
    if (result == 0 && !items) result = loader_process_open(&loader_process, config, LOADER_CACHE_LEAST);
    config->sample_tokens = 0;
    if (result == 0) result = trained_open(&trained, &reader, which);
    if (result == 0)
        result = items ? grade_trained(&trained, config) : evaluate_with(&trained, config, &loader_process);
    loader_process_close(&loader_process);
    trained_close(&trained);
    config_close(&reader);
    return result;
}

const Command trainer_eval = {"eval",
                              "[CONFIG...] [--key=value...]",
                              "loss of the newest checkpoint of out_dir on a dataset",
                              options,
                              run,
                              &config_options};
