// The evaluation of one split, source by source. See evaluation.h.
#include "trainer/records/evaluation.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Adds `wanted` samples of a split or source of `tokens` tokens, or all of it.
static void add_part(Evaluation *evaluation, const Config *config, const char *name, unsigned source, uint32_t weight,
                     uint64_t wanted, uint64_t tokens) {
    const uint64_t T = (uint64_t)config_eval_block(config), most = evaluate_samples_of(config, tokens);
    EvaluationPart *part = &evaluation->parts[evaluation->part_count++];
    *part = (EvaluationPart){.source = (uint16_t)source, .weight = weight, .samples = wanted < most ? wanted : most};
    if (wanted > most) part->rest = (uint32_t)((tokens - 1) % T);
    evaluation->tokens += part->samples * T + part->rest;
    snprintf(part->name, sizeof part->name, "%s", name);
    for (const EvaluationPart *other = evaluation->parts; other < part; other++) // datasets of one name
        if (!strcmp(other->name, name)) snprintf(part->name, sizeof part->name, "%s (%u)", name, source);
}

static void add_sources(Evaluation *evaluation, const Config *config, const Feed *feed, uint64_t train_sample) {
    const FeedDataset *dataset = feed_dataset(feed);
    const uint64_t wanted = evaluate_samples_wanted(config);
    uint64_t sum = 0;
    for (unsigned i = 0; i < dataset->source_count; i++)
        if (evaluate_samples_of(config, dataset->sources[i].tokens[evaluation->split]))
            sum += feed_weight(feed, i, train_sample);
    for (unsigned i = 0; i < dataset->source_count; i++) {
        const uint32_t weight = feed_weight(feed, i, train_sample);
        const uint64_t tokens = dataset->sources[i].tokens[evaluation->split];
        if (!weight || !evaluate_samples_of(config, tokens)) continue;
        const uint64_t samples = (uint64_t)(((unsigned __int128)wanted * weight + sum - 1) / sum);
        add_part(evaluation, config, dataset->sources[i].name, i + 1, weight, samples, tokens);
    }
}

static uint64_t rule_of(const Evaluation *evaluation, const Config *config, const FeedDataset *dataset,
                        uint64_t samples) {
    Buffer text = {0};
    uint8_t hash[32];
    uint64_t rule;
    buffer_print(&text, "%d %llu %lld", (int)config->eval_order, (unsigned long long)samples,
                 (long long)config_eval_block(config));
    if (config->document_mask) buffer_print(&text, " within documents");
    if (config->loss_tokens != LOSS_ALL)
        buffer_print(&text, " of %s", config_word(KEY_loss_tokens, (int)config->loss_tokens));
    for (unsigned i = 0; i < evaluation->part_count; i++) {
        const EvaluationPart *part = &evaluation->parts[i];
        if (part->rest) buffer_print(&text, " to the end");
        if (part->source)
            buffer_print(&text, "\n%s %llu %u", part->name,
                         (unsigned long long)dataset->sources[part->source - 1].tokens[evaluation->split],
                         (unsigned)part->weight);
        else
            buffer_add(&text, dataset->fingerprint, sizeof dataset->fingerprint);
    }
    sha256(text.data, text.size, hash);
    memcpy(&rule, hash, sizeof rule);
    buffer_close(&text);
    return rule >> 1 | 1; // state.json has signed integers
}

void evaluation_init(Evaluation *evaluation, const Config *config, const Feed *feed, int split, uint64_t train_sample) {
    const FeedDataset *dataset = feed_dataset(feed);
    const uint64_t tokens = dataset->tokens[split], wanted = evaluate_samples_wanted(config);
    const uint64_t most = evaluate_samples_of(config, tokens);
    *evaluation = (Evaluation){.split = (uint8_t)split,
                               .mode = config->eval_order == EVAL_SEQUENTIAL ? SAMPLING_SEQUENTIAL : SAMPLING_PERMUTED};
    if (dataset->source_count > 1) add_sources(evaluation, config, feed, train_sample);
    if (!evaluation->part_count && most) add_part(evaluation, config, "", 0, 1, wanted, tokens);
    evaluation->rule = rule_of(evaluation, config, dataset, wanted < most ? wanted : most);
}

static void warn_of_sources(const Evaluation *evaluation) {
    for (unsigned i = 0; i < evaluation->part_count; i++)
        if (!evaluation->parts[i].targets)
            log_warn("no target of '%s' counts with loss_tokens=answers: the loss of the mixture is that of the others",
                     evaluation->parts[i].name);
}

// Few targets that count are most often a mistake.
static int check_targets(const Evaluation *evaluation) {
    static const char *const splits[SPLIT_COUNT] = {"train", "val"};
    static bool told;
    const double share = 100 * (double)evaluation->targets / (double)evaluation->tokens;
    if (!evaluation->targets)
        return fail(
            EX_DATA,
            "no target of the evaluation of split %s counts with loss_tokens=answers: it has no answer, or prompts are "
            "longer than a sequence",
            splits[evaluation->split]);
    if (!told) warn_of_sources(evaluation);
    if (!told && share < 2)
        log_warn("%.2f %% of the targets count: prompts may be longer than a sequence (block_size)", share);
    else if (!told)
        log_line("%.1f %% of the targets are of answers, and count", share);
    told = true;
    return 0;
}

FeedResult evaluation_run(Evaluation *evaluation, Network *network, const BatchSource *source,
                          const uint8_t *token_bytes) {
    static const char *const verbs[SPLIT_COUNT] = {"evaluating on training data", "evaluating on validation data"};
    double weight = 0, loss = 0, nats = 0, bytes = 0;
    FeedResult result = FEED_BATCH;
    Progress progress;
    progress_start(&progress, verbs[evaluation->split], "tok", evaluation->tokens);
    for (unsigned i = 0; i < evaluation->part_count && result == FEED_BATCH; i++) {
        EvaluationPart *part = &evaluation->parts[i];
        const EvaluateRequest request = {evaluation->split, evaluation->mode, part->source, part->samples,
                                         part->rest,        token_bytes,      &progress};
        EvaluateResult found;
        result = evaluate(network, source, &request, &found);
        part->loss = found.loss, part->targets = found.targets;
        evaluation->targets += found.targets;
        if (!found.targets) continue;
        weight += part->weight, loss += part->weight * found.loss;
        const double targets = (double)found.targets;
        nats += part->weight * (found.text_nats / targets), bytes += part->weight * ((double)found.bytes / targets);
    }
    progress_finish(&progress);
    if (result == FEED_BATCH && network->plan->answers && evaluation->part_count && check_targets(evaluation) < 0)
        return FEED_ERROR;
    evaluation->loss = evaluation->part_count == 1 ? evaluation->parts[0].loss : loss / weight;
    evaluation->bits_per_byte = bytes > 0 ? nats / (M_LN2 * bytes) : NAN;
    return result;
}

// ---- text

void evaluation_add_value(Buffer *out, const char *key, double value, int digits) {
    buffer_print(out, ", ");
    json_add_string(out, key);
    buffer_print(out, ": ");
    if (isfinite(value))
        buffer_print(out, "%.*g", digits, value);
    else
        buffer_print(out, "null");
}

void evaluation_add_sources(Buffer *out, const Evaluation *evaluation, int digits) {
    for (unsigned i = 0; i < evaluation->part_count && evaluation->parts[i].source; i++) {
        const EvaluationPart *part = &evaluation->parts[i];
        char key[sizeof part->name + 8];
        snprintf(key, sizeof key, "%s/%s", evaluation->split == SPLIT_VAL ? "val" : "train", part->name);
        evaluation_add_value(out, key, part->loss, digits);
    }
}

void evaluation_add_text(Buffer *out, const Evaluation *evaluation) {
    const EvaluationPart *part = evaluation->parts;
    if (isfinite(evaluation->bits_per_byte)) buffer_print(out, ", %.4f bits per byte", evaluation->bits_per_byte);
    for (unsigned i = 0; i < evaluation->part_count && part->source; i++, part++)
        buffer_print(out, "%s%s %.4f", i ? ", " : " (", part->name, part->loss);
    if (evaluation->part_count && evaluation->parts[0].source) buffer_print(out, ")");
}
