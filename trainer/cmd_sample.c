// trainer sample: text from a trained model, with nanoGPT's options.
#include "common/err.h"
#include "tokenizer/tokenizer.h"
#include "trainer/model/sample.h"
#include "trainer/trainer_commands.h"
#include <stdio.h>
#include <stdlib.h>

static const char *start = "\n";
static int64_t num_samples = 10, max_new_tokens = 500, top_k = 200;
static double temperature = 0.8;

static const Option options[] = {
    {OPT_STRING, "start",          &start,          "TEXT", "what the text begins with; FILE:path reads a file"      },
    {OPT_INT,    "num_samples",    &num_samples,    "N",    "how many texts"                                         },
    {OPT_INT,    "max_new_tokens", &max_new_tokens, "N",    "tokens of each"                                         },
    {OPT_FLOAT,  "temperature",    &temperature,    "X",    "below 1 bolder, above 1 wilder; 0: always the likeliest"},
    {OPT_INT,    "top_k",          &top_k,          "N",    "choose among the N likeliest; 0: all"                   },
    {OPT_END,    NULL,             NULL,            NULL,   NULL                                                     },
};

// Ids of `text`, with room for `more`. NULL after fail().
static uint16_t *encode_start(const Vocab *vocab, const char *text, uint64_t more, size_t *count) {
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE, NULL);
    Bytes bytes = {(const uint8_t *)text, strlen(text)};
    uint16_t *ids = malloc((encoder_ids_max(bytes.size) + more + 1) * sizeof *ids);
    if (!ids) die(EX_MEMORY, "no memory for the text");
    ssize_t length = encoder_encode(encoder, bytes, ids);
    encoder_close(encoder);
    if (length < 0) return free(ids), NULL;
    if (!length) ids[length++] = TOKEN_END_OF_TEXT; // an empty start is the start of a document
    *count = (size_t)length;
    return ids;
}

int sample_text(Network *network, const char *text, uint64_t tokens, double warmth, uint64_t best, uint64_t seed,
                uint64_t stream, Buffer *out) {
    const Vocab *vocab = vocab_open();
    if (!vocab) return -1;
    const Sampler sampler = {warmth, best, seed, stream};
    size_t length;
    uint16_t *ids = encode_start(vocab, text, tokens, &length);
    int result = -1;
    if (ids) {
        size_t first = *text ? 0 : 1;
        length = sample(network, &sampler, ids, length, tokens, NULL, NULL);
        if (length > first && ids[length - 1] == TOKEN_END_OF_TEXT) length--;
        result = vocab_decode(vocab, ids + first, length - first, out);
    }
    free(ids);
    vocab_close(vocab);
    return result;
}

static int print_samples(Trained *trained, const char *text, uint64_t seed) {
    for (int64_t i = 0; i < num_samples; i++) {
        Buffer out = {0};
        int result = sample_text(&trained->network, text, (uint64_t)max_new_tokens, temperature, (uint64_t)top_k, seed,
                                 (uint64_t)i, &out);
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
    if (result == 0) result = trained_open(&trained, &reader.config);
    if (result == 0) result = print_samples(&trained, (const char *)text.data, (uint64_t)reader.config.seed);
    trained_close(&trained);
    buffer_close(&text);
    config_close(&reader);
    return result;
}

const Command cmd_sample = {
    "sample",       "[CONFIG...] [--key=value...]", "text from the newest checkpoint of out_dir", options, run,
    &config_options};
