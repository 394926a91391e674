// Whether a model can be trained on a dataset: the vocabularies, and the tokens of the splits.
#include "trainer/setup/data_check.h"
#include "common/err.h"
#include "dataset/dataset.h"
#include "trainer/config/until.h"
#include "trainer/setup/loader_process.h"
#include "trainer/setup/vocabulary.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Advice for a split that is too small for a sequence of `block` tokens. The share that it names is twice the needed
// one, and the share of three documents, because the split of a document is a matter of chance.
static void advise(const FeedDataset *dataset, int split, uint64_t block, char text[160]) {
    enum { FEW_DOCUMENTS = 20 };
    const uint64_t documents = dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL];
    const double tokens = (double)(dataset->tokens[SPLIT_TRAIN] + dataset->tokens[SPLIT_VAL]);
    const double three = documents < FEW_DOCUMENTS ? 0 : 3 / (double)documents;
    const double share = ceil(100 * fmax(2 * (double)(block + 1) / tokens, three)) / 100;
    char cut[80] = "";
    if (documents < FEW_DOCUMENTS)
        snprintf(cut, sizeof cut, "--docs paragraphs (here %llu went to one split each as a whole) and ",
                 (unsigned long long)documents);
    if (share > 0.5)
        snprintf(text, 160, "tokenize more text, or set a smaller block_size");
    else if (split == SPLIT_TRAIN)
        snprintf(text, 160, "tokenize with %s--val %g or less", cut, 1 - share);
    else
        snprintf(text, 160, "tokenize with %s--val %g or more, or set eval_interval=0", cut, share);
}

int data_check(const Config *config, const FeedDataset *dataset) {
    static const char *const splits[] = {"training", "validation"};
    const bool evaluates = config->eval_interval || config->eval_only;
    if (vocabulary_check(config, dataset) < 0) return -1;
    for (int split = SPLIT_TRAIN; split <= (evaluates ? SPLIT_VAL : SPLIT_TRAIN); split++) {
        bool val = split == SPLIT_VAL;
        uint64_t block = (uint64_t)(val ? config_eval_block(config) : config->block_size);
        if (dataset->tokens[split] > block) continue;
        char advice[160];
        advise(dataset, split, block, advice);
        return fail(EX_USAGE, "the %s data of '%s' has %llu tokens, block_size %llu needs at least %llu: %s",
                    splits[split], dataset->name, (unsigned long long)dataset->tokens[split], (unsigned long long)block,
                    (unsigned long long)block + 1, advice);
    }
    return 0;
}

int data_check_pass(const Config *config, const FeedDataset *dataset, uint64_t step, uint64_t consumed) {
    const uint64_t samples = (dataset->tokens[SPLIT_TRAIN] - 1) / (uint64_t)config->block_size,
                   each = (uint64_t)(config->batch_size.value * config->gradient_accumulation_steps),
                   last = step + (samples > consumed ? (samples - consumed) / each : 0);
    char order[16];
    if (!sampling_ends((unsigned)config->sampling) || config->eval_only || (uint64_t)config->max_iters <= last)
        return 0;
    config_value(config, KEY_sampling, order, sizeof order);
    if (config->max_iters == UNTIL_STEPS)
        return fail(EX_USAGE,
                    "sampling=%s is one pass over the %llu samples of '%s', which ends at step %llu, and until needs "
                    "an order that does not end: set --max_iters=%llu with the command, or another sampling",
                    order, (unsigned long long)samples, dataset->name, (unsigned long long)last,
                    (unsigned long long)last);
    return fail(
        EX_USAGE,
        "sampling=%s is one pass over the %llu samples of '%s', which ends at step %llu, before max_iters %lld: set "
        "max_iters=%llu (and lr_decay_iters), or another sampling",
        order, (unsigned long long)samples, dataset->name, (unsigned long long)last, (long long)config->max_iters,
        (unsigned long long)last);
}

int data_check_find(const Config *config, FeedDataset *dataset) {
    char path[PATH_MAX_BYTES];
    Dataset found;
    *dataset = (FeedDataset){.source_count = 1};
    if (*config->loader || !*config->dataset) return 0;
    if (!loader_process_dataset(path, config)) return loader_process_no_dataset(config->dataset);
    const int result = dataset_open_manifest(&found, path);
    if (result == 0) {
        dataset->vocab_size = found.vocab_size, dataset->eot_id = found.eot_id;
        memcpy(dataset->fingerprint, found.fingerprint, sizeof dataset->fingerprint);
        memcpy(dataset->vocab_fp, found.vocab_fp, sizeof dataset->vocab_fp);
        memcpy(dataset->tokens, found.tokens, sizeof dataset->tokens);
        memcpy(dataset->documents, found.documents, sizeof dataset->documents);
        snprintf(dataset->name, sizeof dataset->name, "%s", found.name);
    }
    dataset_close(&found);
    return result < 0 ? -1 : 1;
}
