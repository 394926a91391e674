// Opens the datasets of --old, walks the files of their parts, and reads single texts.
#include "shardtool/similar/old_datasets.h"
#include "common/err.h"
#include "shardtool/support/source_overlap.h"
#include <stdlib.h>
#include <xxhash.h>

static int open_dataset(OldDataset *dataset, const char *path, PartKind kind, const char *rules) {
    char *paths[] = {(char *)(uintptr_t)path};
    const char *const similar = kind == PART_BANDS ? " --similar 0.8" : "";
    if (strstr(path, "://"))
        return fail(EX_USAGE,
                    "--old '%s' is not a directory of this machine, which has its parts: copy it by filter -o", path);
    if (!dataset_is(path)) return fail(EX_NOINPUT, "--old '%s' is not a dataset", path);
    if (output_options.path && refuse_as_output(path, output_options.path) < 0) return -1;
    if (documents_open(&dataset->inputs, 1, paths) < 0) return -1;
    dataset->parts = (PartSet){.directory = path, .kind = kind, .rules = rules, .inputs = &dataset->inputs};
    if (part_set_find(&dataset->parts) < 0) return fail_in("--old");
    if (dataset->parts.count) return 0;
    return fail(EX_NOINPUT, "the documents of --old '%s' are not signed: do that once, by dedup%s --part 1/1 -o %s %s",
                path, similar, path, path);
}

int old_datasets_open(OldDatasets *old, const StringList *paths, PartKind kind, const char *rules) {
    int status = 0;
    *old = (OldDatasets){.datasets = allocate_zeroed(paths->count + 1, sizeof *old->datasets)};
    while (status == 0 && old->count < paths->count) {
        OldDataset *dataset = &old->datasets[old->count];
        dataset->first = old->documents;
        status = open_dataset(dataset, paths->items[old->count++], kind, rules);
        old->documents += dataset->inputs.documents[SPLIT_TRAIN] + dataset->inputs.documents[SPLIT_VAL];
    }
    if (status < 0) old_datasets_close(old);
    return status;
}

void old_datasets_close(OldDatasets *old) {
    if (old->is_open) token_reader_close(&old->tokens);
    for (unsigned i = 0; i < old->count; i++) documents_close(&old->datasets[i].inputs);
    free(old->datasets);
    buffer_close(&old->ids);
    *old = (OldDatasets){0};
}

int old_datasets_check(const OldDatasets *old, const DocumentInputs *inputs) {
    const ShardParams *params = &inputs->params;
    for (unsigned i = 0; i < old->count; i++) {
        const ShardParams *other = &old->datasets[i].inputs.params;
        if (memcmp(params->vocab_fp, other->vocab_fp, 32) || params->eot_id != other->eot_id)
            return dataset_fail_vocabularies(old->datasets[i].parts.directory, other->vocab_fp, other->vocab_size,
                                             inputs->inputs.arguments[0].path, params->vocab_fp, params->vocab_size);
    }
    return 0;
}

uint64_t old_datasets_digest(const OldDatasets *old) {
    uint64_t digest = 0;
    for (unsigned i = 0; i < old->count; i++)
        digest = XXH3_64bits_withSeed(old->datasets[i].inputs.inputs.arguments[0].digest, 16, digest);
    return digest;
}

typedef struct {
    uint64_t first;
    int (*visit)(void *context, PartFile *file, uint64_t number);
    void *context;
} OldVisit;

static int visit_document(void *context, PartFile *file, uint64_t number) {
    const OldVisit *each = context;
    return each->visit(each->context, file, each->first + number);
}

int old_datasets_visit(const OldDatasets *old, int (*visit)(void *context, PartFile *file, uint64_t number),
                       void *context) {
    int status = 0;
    for (unsigned i = 0; status == 0 && i < old->count; i++) {
        OldVisit each = {old->datasets[i].first, visit, context};
        status = part_set_visit(&old->datasets[i].parts, visit_document, &each);
    }
    return status;
}

static int add_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    return buffer_add(context, ids, count * bytes), 0;
}

int old_datasets_text(OldDatasets *old, const OldPlace *place, const Vocab *vocab, Buffer *text) {
    if (!old->is_open || old->open_dataset != place->dataset || old->open_split != place->split) {
        if (old->is_open) token_reader_close(&old->tokens);
        old->is_open = false;
        if (token_reader_open(&old->tokens, old->datasets[place->dataset].parts.directory, place->split) < 0) return -1;
        old->is_open = true, old->open_dataset = place->dataset, old->open_split = place->split;
    }
    old->ids.size = 0;
    if (token_reader_visit(&old->tokens, place->first, place->first + place->tokens, add_ids, &old->ids) < 0) return -1;
    return vocab_decode(vocab, old->ids.data, place->tokens, text);
}

const OldDataset *old_datasets_find(const OldDatasets *old, uint64_t number, int *split, uint64_t *document) {
    unsigned i = old->count - 1;
    while (old->datasets[i].first > number) i--;
    const OldDataset *dataset = &old->datasets[i];
    const uint64_t within = number - dataset->first, train = dataset->inputs.documents[SPLIT_TRAIN];
    *split = within < train ? SPLIT_TRAIN : SPLIT_VAL;
    *document = within < train ? within : within - train;
    return dataset;
}
