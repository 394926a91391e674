// trainer eval: the loss of a trained model on samples of each split, or its accuracy on multiple-choice
// items.
#include "common/err.h"
#include "trainer/config/config.h"
#include "trainer/inference/choices.h"
#include "trainer/inference/trained.h"
#include "trainer/records/evaluation.h"
#include "trainer/setup/loader_process.h"
#include "trainer/setup/vocabulary.h"
#include <math.h>
#include <stdio.h>

static bool json;
static const char *which = "", *choices, *wanted_split = "";
static const Option options[] = {
    {OPT_STRING, "ckpt", &which, TRAINED_WHICH, TRAINED_MEANING},
    {OPT_STRING, "split", &wanted_split, "train|val", "this split alone; without it both, or the one that has samples"},
    {OPT_STRING, "choices", &choices, "FILE",
     "accuracy on multiple-choice items instead: JSON lines of ctx, endings and label, as HellaSwag's; - is standard "
     "input"},
    {OPT_FLAG, "json", &json, NULL, "print JSON objects: one for each split, or each item and the accuracy"},
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

typedef struct {
    uint64_t items, right_by_sum, right_by_mean;
    bool finite;
} Score;

static void add_item(void *context, const ChoicesItem *item) {
    Score *score = context;
    score->right_by_sum += item->by_sum == item->label, score->right_by_mean += item->by_mean == item->label;
    if (json) printf("{\"item\": %llu, \"losses\": [", (unsigned long long)score->items);
    for (int i = 0; i < item->endings; i++) {
        score->finite &= isfinite(item->losses[i]);
        if (json && isfinite(item->losses[i])) printf("%s%.9g", i ? ", " : "", item->losses[i]);
        if (json && !isfinite(item->losses[i])) printf("%snull", i ? ", " : "");
    }
    if (json) printf("], \"tokens\": [");
    for (int i = 0; json && i < item->endings; i++) printf("%s%d", i ? ", " : "", item->tokens[i]);
    if (json) printf("], \"label\": %d, \"by_sum\": %d, \"by_mean\": %d}\n", item->label, item->by_sum, item->by_mean);
    score->items++;
}

static int print_accuracy(Trained *trained, const Config *config) {
    Score score = {.finite = true};
    const Vocab *vocab = vocabulary_open(config);
    const int result = vocab ? choices_evaluate(&trained->network, vocab, choices, add_item, &score) : -1;
    vocab_close(vocab);
    if (result < 0) return -1;
    const double by_sum = (double)score.right_by_sum / (double)score.items;
    const double by_mean = (double)score.right_by_mean / (double)score.items;
    if (json)
        printf("{\"items\": %llu, \"accuracy\": %.6f, \"accuracy_by_mean\": %.6f}\n", (unsigned long long)score.items,
               by_sum, by_mean);
    else
        printf("accuracy %.4f by the loss of an ending, %.4f by its mean over tokens, over %llu items\n", by_sum,
               by_mean, (unsigned long long)score.items);
    if (!score.finite) return fail(EX_NONFINITE, "the loss of an ending is not finite");
    return 0;
}

// A dataset of a configuration file may be the training run's.
static int check_options(const ConfigReader *reader) {
    static const int keys[] = {KEY_dataset, KEY_loader};
    if (*wanted_split && strcmp(wanted_split, "train") && strcmp(wanted_split, "val"))
        return fail(EX_USAGE, "--split is train or val, not '%s'", wanted_split);
    if (*wanted_split && choices) return fail(EX_USAGE, "--split and --choices, whose items are of no split");
    if (choices && !*choices) return fail(EX_USAGE, "--choices names no file");
    for (size_t i = 0; choices && i < sizeof keys / sizeof *keys; i++)
        if (!strncmp(reader->origin[keys[i]], "--", 2))
            return fail(EX_USAGE,
                        "%s and --choices, which evaluates the items of a file and no dataset: give one of the two",
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
    if (choices) config_flag(&reader, "loss_tokens=all"); // an ending is not an answer of a conversation
    if (result == 0 && !choices) result = loader_process_open(&loader_process, config, LOADER_CACHE_LEAST);
    config->sample_tokens = 0;
    if (result == 0) result = trained_open(&trained, &reader, which);
    if (result == 0)
        result = choices ? print_accuracy(&trained, config) : evaluate_with(&trained, config, &loader_process);
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
