// Multiple-choice items, as HellaSwag's: which ending of a context a model holds for the likeliest.
#pragma once

#include "trainer/model/network.h"

enum { ENDINGS_MAX = 64 };

typedef struct {
    int label, endings;
    double losses[ENDINGS_MAX]; // the sum over an ending's tokens
    int tokens[ENDINGS_MAX];
    int by_sum, by_mean; // the ending with the smallest sum, and with the smallest mean over its tokens
} ChoicesItem;

// Calls `found` with each item of a JSONL file, "-" for standard input: {"ctx": TEXT, "endings": [TEXT, ...], "label":
// NUMBER} and other keys. As common for GPT-2, the ids of the context and those of " " + ending are encoded apart; of a
// longer text the last eval_block_size + 1 ids count. Runs in the memory of the evaluation pass. -1 after fail(), bad
// items (65) with their line.
int choices_evaluate(Network *network, const char *path, void (*found)(void *context, const ChoicesItem *item),
                     void *context);
