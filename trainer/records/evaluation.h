// The evaluation of one split: of each source of a mixture apart, and their mean by weight; with a progress line.
//
// An evaluation reads samples 0 to n-1, in this order, of split train and then of val. T is eval_block_size, or
// block_size if that is 0. eval_order=random is mode permuted, with EVALUATE_SEED = 1337 whatever `seed` is; sequential
// is mode sequential. n is m, but at most (N - 1) / T, where m is eval_tokens / T, rounded up, or 200 *
// batch_size if eval_tokens is 0. If m is larger than (N - 1) / T, the last (N - 1) mod T targets of the split are
// counted too (mode rest of sampling.h).
//
// Each source of a mixture is read alone (WireGet.source), with its own N. A source takes part if it has a sample, and
// a weight that is not 0. w is its weight of 65,536 (mixture.h) for the next train sample, W the sum of these w. It has
// ceil(m w / W) samples, or all of its own. Rounding up gives each source a sample and keeps the samples of a smaller
// evaluation within the samples of a larger one. In the rule of mode rest, ceil(m w / W) stands for m. If none takes
// part, the mixture is read as one split, and its fingerprint is that of the dataset in eval_rule.
//
// The loss of a source is the mean over its targets that count, the loss of the split the mean of its sources by
// weight. Bits per byte are computed as in nanochat: the losses of the targets with a text, in bits, by the bytes of
// these texts. Special tokens, as the ends of texts, count in neither. Of a mixture they are the sum of w b / t over
// the sum of w y / t: b these losses of a source, y these bytes, t its targets that count.
//
// eval_rule is (x >> 1) | 1 in 16 hex digits. x is the first 8 bytes, little-endian, of the SHA-256 of these texts
// about the evaluation of val:
//
//   "O n T"              in decimal, n as above with the N of the whole split; O is 0 for random, 1 for sequential
//   " within documents"  only with document_mask
//   " of answers"        only with loss_tokens=answers
//   " to the end"        of the split, or of a source before its line, if targets of mode rest count
//   the dataset          its fingerprint, 32 bytes; or "\nNAME N w" for each source of a mixture that takes part, NAME
//                        as in metrics.jsonl; nothing if the split has no sample
#pragma once

#include "trainer/model/evaluate.h"

typedef struct {
    char name[80];   // of the source, unique in its mixture
    uint16_t source; // as in FeedRequest
    uint32_t weight;
    uint64_t samples, targets; // targets: that count
    uint32_t rest;             // targets after the last sample, if all samples of the split are read
    double loss;
} EvaluationPart;

typedef struct {
    uint8_t split;
    uint8_t mode;     // Sampling
    uint64_t rule;    // identifies order, size, data and weights: only losses of one rule are comparable. Not 0
    uint64_t tokens;  // of all parts
    uint64_t targets; // of these, that count
    double loss, bits_per_byte; // bits_per_byte is NAN when no target has a text
    double ema_loss;            // of the averaged weights, if the run has them
    unsigned part_count;        // 1: the whole split; more: sources of a mixture; 0: the split is too short
    EvaluationPart parts[FEED_SOURCES_MAX];
} Evaluation;

// The samples of an evaluation, by the weights that hold at a train sample. A mixture whose sources with a weight have
// no data in the split is evaluated as a whole.
void evaluation_init(Evaluation *evaluation, const Config *config, const Feed *feed, int split, uint64_t train_sample);

// Sets the losses. `token_bytes` as in EvaluateRequest.
FeedResult evaluation_run(Evaluation *evaluation, Network *network, const BatchSource *source,
                          const uint8_t *token_bytes);

// Appends `, "KEY": value` with that number of digits; null when the value is not finite.
void evaluation_add_value(Buffer *out, const char *key, double value, int digits);
// Appends `, "SPLIT/NAME": loss` for each source of a mixture.
void evaluation_add_sources(Buffer *out, const Evaluation *evaluation, int digits);
// Appends ", X bits per byte" and, of a mixture, " (NAME LOSS, NAME LOSS)".
void evaluation_add_text(Buffer *out, const Evaluation *evaluation);
