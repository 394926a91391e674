// trainer sample: text from a trained model. It has the options of nanoGPT's sample.py.
#include "common/err.h"
#include "trainer/config/config.h"
#include "trainer/inference/sample_text.h"
#include "trainer/inference/trained.h"
#include "trainer/setup/vocabulary.h"
#include <stdio.h>
#include <unistd.h>

static const char *start = "\n", *stop = "", *which = "";
static int64_t num_samples = 10, max_new_tokens = 500, top_k = 200;
static double temperature = 0.8, top_p = 1;
static bool turns;

static const Option options[] = {
    {OPT_STRING, "ckpt", &which, TRAINED_WHICH, TRAINED_MEANING},
    {OPT_STRING, "start", &start, "TEXT",
     "beginning of each text; FILE:path reads it from a file, '' is <|endoftext|>"},
    {OPT_INT, "num_samples", &num_samples, "N", "number of texts"},
    {OPT_INT, "max_new_tokens", &max_new_tokens, "N",
     "tokens to sample for each text, which ends before at <|endoftext|>"},
    {OPT_FLOAT, "temperature", &temperature, "X", "divides the logits; 0: always the most likely token"},
    {OPT_INT, "top_k", &top_k, "N", "sample from the N most likely tokens; 0: from all"},
    {OPT_FLOAT, "top_p", &top_p, "X", "and from the most likely of these whose probabilities sum to X"},
    {OPT_STRING, "stop", &stop, "TEXT", "end a sample before this text"},
    {OPT_FLAG, "turns", &turns, NULL,
     "read messages, a line each, and print the model's answers; /clear begins again (see docs/answers.md)"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static bool print_text(void *context, Bytes text) {
    (void)context;
    fwrite(text.data, 1, text.size, stdout);
    return fflush(stdout), true;
}

static int print_samples(Trained *trained, const Config *config, Bytes text) {
    const Vocab *vocab = vocabulary_open(config);
    int result = vocab ? 0 : -1;
    for (int64_t i = 0; i < num_samples && result == 0; i++) {
        const Sampler sampler = {temperature, (uint64_t)top_k, top_p, (uint64_t)config->seed, (uint64_t)i};
        result =
            sample_text(&trained->network, vocab, &sampler, text, (uint64_t)max_new_tokens, stop, print_text, NULL);
        if (result == 0) puts("\n---------------");
    }
    vocab_close(vocab);
    return result;
}

static void print_prompt(void) {
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) fputs("> ", stdout), fflush(stdout);
}

static int print_answers(Trained *trained, const Config *config) {
    const Sampler sampler = {temperature, (uint64_t)top_k, top_p, (uint64_t)config->seed, 0};
    if (!config->turns.known)
        return fail(
            EX_USAGE,
            "--turns is for models of conversations (millrace tokenize --turns), and the vocabulary of '%s' has "
            "no <|user|> and <|assistant|>",
            trained->path);
    const Vocab *vocab = vocabulary_open(config);
    if (!vocab) return -1;
    const int result = sample_turns(&trained->network, vocab, &sampler, (uint64_t)max_new_tokens, stdin, print_prompt,
                                    print_text, NULL);
    vocab_close(vocab);
    return result;
}

static int check_options(void) {
    const struct {
        const char *name;
        double value, low, high;
    } rows[] = {
        {"num_samples", (double)num_samples, 1, 1e9},
        {"max_new_tokens", (double)max_new_tokens, 1, 1 << 20},
        {"top_k", (double)top_k, 0, 1e9},
        {"temperature", temperature, 0, 1e9},
        {"top_p", top_p, 1e-9, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].value >= rows[i].low && rows[i].value <= rows[i].high))
            return fail(EX_USAGE, "--%s: %g is outside %g to %g", rows[i].name, rows[i].value, rows[i].low,
                        rows[i].high);
    if (turns && (strcmp(start, "\n") || num_samples != 10 || *stop))
        return fail(
            EX_USAGE,
            "--turns reads the messages from standard input and prints one answer to each, which ends where the "
            "model ends it: not with --start, --num_samples or --stop");
    return 0;
}

static int run(int count, char **files) {
    ConfigReader reader;
    Trained trained = {0};
    Buffer text = {0};
    int result = config_read(&reader, count, files);
    if (result == 0) result = check_options();
    if (result == 0 && !strncmp(start, "FILE:", 5))
        result = file_read_stream(&text, start + 5, 1 << 20);
    else
        buffer_add(&text, start, strlen(start));
    reader.config.eval_batch_size = 1;
    reader.config.sample_tokens = max_new_tokens;
    if (result == 0) result = trained_open(&trained, &reader, which);
    if (result == 0 && turns) result = print_answers(&trained, &reader.config);
    if (result == 0 && !turns) result = print_samples(&trained, &reader.config, (Bytes){text.data, text.size});
    trained_close(&trained);
    buffer_close(&text);
    config_close(&reader);
    return result;
}

const Command trainer_sample = {
    "sample",       "[CONFIG...] [--key=value...]", "print text from the newest checkpoint of out_dir", options, run,
    &config_options};
