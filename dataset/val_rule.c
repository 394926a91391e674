// The rules of validation splits, compared and printed.
#include "dataset/val_rule.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char UNKNOWN[] = "mixed";

static bool is_share(const ValRule *rule, const char *share) { return !strcmp(rule->share, share); }

ValRule val_rule_of(const Dataset *dataset) {
    ValRule rule = {.seed = dataset->val_seed};
    if ((size_t)snprintf(rule.share, sizeof rule.share, "%s", dataset->val) >= sizeof rule.share ||
        (is_share(&rule, "0") && dataset->documents[SPLIT_VAL]))
        strcpy(rule.share, UNKNOWN);
    if (is_share(&rule, "0") || is_share(&rule, "1") || is_share(&rule, UNKNOWN)) rule.seed = 0; // it chooses nothing
    return rule;
}

bool val_rule_same(const ValRule *rule, const ValRule *other) {
    return !is_share(rule, UNKNOWN) && is_share(rule, other->share) && rule->seed == other->seed;
}

const char *val_rule_text(const ValRule *rule, char out[VAL_RULE_TEXT]) {
    if (is_share(rule, UNKNOWN))
        snprintf(out, VAL_RULE_TEXT, "no one --val and --seed");
    else
        snprintf(out, VAL_RULE_TEXT, "--val %s --seed %" PRIu64, rule->share, rule->seed);
    return out;
}
