// The rule that chooses the validation documents of a dataset (dataset.h), as its manifest records it.
#pragma once

#include "dataset/dataset.h"

typedef struct {
    char share[32]; // val_share; "mixed" if no rule is known: of merged datasets, and of imported ones with a val split
    uint64_t seed;
} ValRule;

ValRule val_rule_of(const Dataset *dataset);
bool val_rule_same(const ValRule *rule, const ValRule *other); // false also if one is not known
enum { VAL_RULE_TEXT = 80 };
const char *val_rule_text(const ValRule *rule, char out[VAL_RULE_TEXT]); // "--val 0.1 --seed 0"
