// Multiple-choice items, as HellaSwag's: the ending of a context with the smallest loss.
#pragma once

#include "tokenizer/tokenizer.h"
#include "trainer/model/network.h"

enum { ENDINGS_MAX = 64 };

typedef struct {
    int label, endings;
    double losses[ENDINGS_MAX]; // the sum over an ending's tokens
    int tokens[ENDINGS_MAX];
    int by_sum, by_mean; // the ending with the smallest sum, and with the smallest mean over its tokens
} ChoicesItem;

// Calls `found` with each item of a JSONL file, "-" for standard input: {"ctx": TEXT, "endings": [TEXT, ...], "label":
// NUMBER} and other keys. A blank joins the context and an ending if neither has one, and the ids are the ids of both
// together, as in lm-evaluation-harness (read_ending); a longer text is cut to its last eval_block_size + 1 ids.
// `vocab` is the model's. Runs in the memory of the evaluation pass. -1 after fail(), with the line of a bad item (65).
int choices_evaluate(Network *network, const Vocab *vocab, const char *path,
                     void (*found)(void *context, const ChoicesItem *item), void *context);
