// trainer sample: text from a trained model. The options are those of nanoGPT's sample.py.
#include "common/err.h"
#include "trainer/run/sample_text.h"
#include "trainer/run/trained.h"
#include "trainer/trainer_commands.h"
#include <stdio.h>

static const char *start = "\n", *which = "";
static int64_t num_samples = 10, max_new_tokens = 500, top_k = 200;
static double temperature = 0.8;

static const Option options[] = {
    {OPT_STRING, "ckpt",           &which,          "newest|best|STEP",
     "checkpoint; without it the newest, or the best if only the best are saved"                                                },
    {OPT_STRING, "start",          &start,          "TEXT",             "beginning of each text; FILE:path reads it from a file"},
    {OPT_INT,    "num_samples",    &num_samples,    "N",                "number of texts"                                       },
    {OPT_INT,    "max_new_tokens", &max_new_tokens, "N",                "tokens to sample for each text"                        },
    {OPT_FLOAT,  "temperature",    &temperature,    "X",                "divides the logits; 0: always the most likely token"   },
    {OPT_INT,    "top_k",          &top_k,          "N",                "sample from the N most likely tokens; 0: from all"     },
    {OPT_END,    NULL,             NULL,            NULL,               NULL                                                    },
};

static int print_samples(Trained *trained, const char *text, uint64_t seed) {
    for (int64_t i = 0; i < num_samples; i++) {
        Buffer out = {0};
        const Sampler sampler = {temperature, (uint64_t)top_k, seed, (uint64_t)i};
        int result = sample_text(&trained->network, &sampler, text, (uint64_t)max_new_tokens, &out);
        if (result == 0) fwrite(out.data, 1, out.size, stdout), puts("\n---------------");
        buffer_close(&out);
        if (result < 0) return -1;
    }
    return 0;
}

static int run(int count, char **files) {
    ConfigReader reader;
    Trained trained = {0};
    Buffer text = {0};
    int result = config_read(&reader, count, files);
    if (result == 0 && (num_samples < 1 || max_new_tokens < 1 || top_k < 0 || !(temperature >= 0)))
        result =
            fail(EX_USAGE, "'num_samples' and 'max_new_tokens' are at least 1, 'top_k' and 'temperature' at least 0");
    if (result == 0 && !strncmp(start, "FILE:", 5))
        result = file_read(&text, start + 5, 1 << 20);
    else
        buffer_add(&text, start, strlen(start));
    buffer_add(&text, "", 1);
    reader.config.eval_batch_size = 1;
    if (result == 0) result = trained_open(&trained, &reader, which);
    if (result == 0) result = print_samples(&trained, (const char *)text.data, (uint64_t)reader.config.seed);
    trained_close(&trained);
    buffer_close(&text);
    config_close(&reader);
    return result;
}

const Command trainer_sample = {
    "sample",       "[CONFIG...] [--key=value...]", "print text from the newest checkpoint of out_dir", options, run,
    &config_options};
