// The evaluation of one split: of each source of a mixture apart, and their mean by weight; with a progress line.
//
// A source of weight w of the sum W gets ceil(n w / W) of the n samples of an evaluation, or all that it has. Rounding
// up gives each source a sample and keeps the samples of a smaller evaluation within those of a larger one. The loss is
// the mean of the sources' losses by weight. Bits per byte are those of nanochat: the losses of the targets with a
// text, in bits, by the bytes of these texts. Special tokens, as the ends of texts, count in neither.
#pragma once

#include "trainer/model/evaluate.h"

typedef struct {
    char name[80];   // of the source, unique in its mixture
    uint16_t source; // as in FeedRequest
    uint32_t weight;
    uint64_t samples, targets; // targets: that count
    double loss;
} EvaluationPart;

typedef struct {
    uint8_t split;
    uint8_t mode;     // Sampling
    uint64_t rule;    // identifies order, size, data and weights: only losses of one rule are comparable. Not 0
    uint64_t tokens;  // of all parts
    uint64_t targets; // of these, that count
    double loss, bits_per_byte; // bits_per_byte is NAN when no target has a text
    unsigned part_count;        // 1: the whole split; more: sources of a mixture; 0: the split is too short
    EvaluationPart parts[FEED_SOURCES_MAX];
} Evaluation;

// The samples of an evaluation, by the weights that hold at a train sample. A mixture whose sources with a weight have
// no data in the split is evaluated as a whole.
void evaluation_init(Evaluation *evaluation, const Config *config, const Feed *feed, int split, uint64_t train_sample);

// Sets the losses. `token_bytes` and `stop` as in EvaluateRequest.
FeedResult evaluation_run(Evaluation *evaluation, Network *network, const BatchSource *source,
                          const uint8_t *token_bytes, const atomic_int *stop);

// Appends `, "KEY": value` with that number of digits; null when the value is not finite.
void evaluation_add_value(Buffer *out, const char *key, double value, int digits);
// Appends `, "SPLIT/NAME": loss` for each source of a mixture.
void evaluation_add_sources(Buffer *out, const Evaluation *evaluation, int digits);
// Appends ", X bits per byte" and, of a mixture, " (NAME LOSS, NAME LOSS)".
void evaluation_add_text(Buffer *out, const Evaluation *evaluation);
