// Evaluation: the mean loss over samples of a split, inside the memory of the training pass.
#pragma once

#include "common/log.h"
#include "loader/client/batch_stream.h"
#include "trainer/model/network.h"

// The order of an evaluation's samples. It is not a key: evaluations of different runs, and of runs with different
// seeds, read the same samples.
enum { EVALUATE_SEED = 1337 };

typedef struct {
    uint8_t split;
    uint8_t mode;               // SAMPLING_PERMUTED: spread over the whole split; SAMPLING_SEQUENTIAL: its beginning
    uint16_t source;            // as in FeedRequest
    uint64_t samples;           // the first of this order, so that a larger evaluation contains a smaller one
    uint32_t rest;              // and this many targets at the end of the split, fewer than a sample has
    const uint8_t *token_bytes; // the length of each id's text; NULL: not counted
    Progress *progress;         // advances by the tokens evaluated; may be NULL
} EvaluateRequest;

typedef struct {
    double loss;      // mean over the targets that count; NAN without any
    uint64_t targets; // that count
    double text_nats; // the sum of the losses of targets with a text; of all targets when no bytes are counted
    uint64_t bytes;   // of the texts of the targets
} EvaluateResult;

// Sums sequence by sequence in a fixed order, so that the loss does not depend on the evaluation batch size (on AVX2 it
// does in the last bits: products round there by their number of rows).
FeedResult evaluate(Network *network, const BatchSource *source, const EvaluateRequest *request, EvaluateResult *found);

// Runs the shapes of an evaluation of `samples` samples once, over zeros (see step_warm_up in step.h).
void evaluate_warm_up(Network *network, uint64_t samples);

// The number of samples of an evaluation: by the configuration, and in a split of `split_tokens` tokens.
uint64_t evaluate_samples_wanted(const Config *config);
uint64_t evaluate_samples_of(const Config *config, uint64_t split_tokens);
