// merge: joins datasets into one. Its shards are hard links to the existing files, or copies where there are no links.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "dataset/dataset_build.h"
#include "dataset/lineage.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/documents.h"
#include "shardtool/support/option_rows.h"
#include "shardtool/support/run_compare.h"
#include "shardtool/support/run_part.h"
#include "shardtool/support/source_overlap.h"
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

static const char *output;
static bool force, allow_duplicates;

static const Option options[] = {
    {OPT_STRING, "o,output", &output, "DIR", "dataset directory to create"},
    {OPT_FLAG, "allow-duplicates", &allow_duplicates, NULL, "merge datasets that hold the same data"},
    ROW_REPLACE(&force),
    ROW_END,
};

// A dataset that was made with several options is one of no options, to which nothing is appended.
static void mix_options(Dataset *whole, const Dataset *part, const char *difference) {
    if (strcmp(whole->params, "merge")) log_line("the options differ (%s)", difference);
    whole->params = "merge";
    sha256("merge\n", strlen("merge\n"), whole->params_fp);
    const ValRule rule = val_rule_of(whole), other = val_rule_of(part);
    if (!val_rule_same(&rule, &other)) whole->val = "mixed";
    if (!val_rule_same(&rule, &other) || whole->val_seed != part->val_seed) whole->val_seed = 0;
}

// Checks that a part fits the first one, and adds its options, sources and history.
static int take_part(Dataset *whole, const Dataset *part, const Dataset *first, Buffer *history) {
    Buffer difference = {0};
    int status = 0;
    if (memcmp(part->vocab_fp, first->vocab_fp, 32))
        status = dataset_fail_vocabularies(first->path, first->vocab_fp, first->vocab_size, part->path, part->vocab_fp,
                                           part->vocab_size);
    else if (!compare_options(first, part, &difference) && part->part)
        status =
            fail(EX_USAGE, "%s: make the parts again with the same options and --force", (const char *)difference.data);
    else if (difference.size)
        mix_options(whole, part, (const char *)difference.data);
    buffer_close(&difference);
    for (uint64_t i = 0; status == 0 && i < part->source_count; i++) dataset_add_source(whole, &part->sources[i]);
    lineage_add(history, part);
    return status;
}

static uint64_t document_count(const Dataset *dataset) {
    return dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL];
}

// The same data twice is hardly ever intended. `fingerprints` has the fingerprints of earlier parts.
static int refuse_duplicate(const Dataset *part, char **paths, int index, uint8_t (*fingerprints)[32]) {
    memcpy(fingerprints[index], part->fingerprint, 32);
    for (int i = 0; i < index && !allow_duplicates && document_count(part); i++)
        if (!memcmp(fingerprints[i], part->fingerprint, 32))
            return fail(EX_USAGE, "'%s' and '%s' hold the same data: --allow-duplicates merges them", paths[i],
                        paths[index]);
    return 0;
}

// The path of the last dataset so far with shards of a split, if its last document has no end-of-text id.
typedef struct {
    const char *paths[SPLIT_COUNT];
} OpenEnds;

static int find_open_end(OpenEnds *ends, const Dataset *part, const char *path, int split) {
    const uint64_t count = part->shard_count[split];
    ShardFile shard;
    if (!count) return 0;
    if (ends->paths[split])
        return fail(
            EX_DATA,
            "the last document of '%s' has no end-of-text id, so that it and the first of '%s' would become one: "
            "name '%s' last",
            ends->paths[split], path, ends->paths[split]);
    if (shard_file_open(&shard, part->shards[split][count - 1].path) < 0) return -1;
    const Bytes index = shard.members[shard.member_count - 1].index;
    ends->paths[split] = index.size && index.data[0] & SHARD_CONTINUES_AFTER ? path : NULL;
    shard_file_close(&shard);
    return 0;
}

static int link_shards(Dataset *whole, const Dataset *part, const char *path, OpenEnds *ends) {
    for (int split = 0; split < SPLIT_COUNT; split++) {
        if (find_open_end(ends, part, path, split) < 0) return -1;
        for (uint64_t i = 0; i < part->shard_count[split]; i++)
            if (dataset_link_shard(whole, part, split, i) < 0) return -1;
    }
    return 0;
}

// Joins the lists of skipped files of a run's parts into the list of one run over all files.
static int join_skips(const char *directory, int count, char **paths) {
    char path[PATH_MAX_BYTES];
    Buffer lines = {0};
    int status = 0;
    for (int i = 0; i < count && status == 0; i++) {
        dataset_skips_path(path, paths[i]);
        if (access(path, F_OK) == 0) status = file_read(&lines, path, SIZE_MAX / 2);
    }
    dataset_skips_path(path, directory);
    if (status == 0 && lines.size) status = file_write(path, (Bytes){lines.data, lines.size});
    buffer_close(&lines);
    return status;
}

static void begin_whole(Dataset *whole, const Dataset *first, const char *directory) {
    dataset_begin(whole, directory);
    whole->params = arena_copy_string(&whole->arena, first->params);
    whole->val = arena_copy_string(&whole->arena, first->val);
    if (first->part && first->names_from) whole->names_from = arena_copy_string(&whole->arena, first->names_from);
    whole->val_seed = first->val_seed;
    whole->vocab_size = first->vocab_size, whole->eot_id = first->eot_id;
    memcpy(whole->vocab_fp, first->vocab_fp, 32);
    memcpy(whole->params_fp, first->params_fp, 32);
}

static int check_splits(int count, char **paths) {
    DocumentInputs inputs;
    if (allow_duplicates) return 0;
    int status = documents_open(&inputs, count, paths);
    if (status == 0) status = documents_check_splits(&inputs);
    documents_close(&inputs);
    return status;
}

static int merge_locked(DatasetBuild *build, int count, char **paths) {
    Dataset whole = {0}, first = {0};
    if (build->has_manifest && !force)
        return fail(EX_CREATE, "'%s' already holds a dataset; --force replaces it", output);
    if (dataset_build_start(build, force) < 0 || dataset_build_clear(build) < 0 || dataset_open(&first, paths[0]) < 0)
        return -1;
    char vocabulary[PATH_MAX_BYTES];
    begin_whole(&whole, &first, build->target);
    uint8_t(*fingerprints)[32] = allocate_zeroed((size_t)count, sizeof *fingerprints);
    int status = dataset_vocabulary_find(vocabulary, &first);
    OpenEnds ends = {{0}};
    Buffer inputs = {0}, history = {0};
    for (int i = 0; status == 0 && i < count; i++) {
        Dataset part;
        status = dataset_open(&part, paths[i]);
        if (status < 0) break;
        status = part_check(&part, &first, i);
        if (status == 0) status = refuse_duplicate(&part, paths, i, fingerprints);
        if (status == 0) status = take_part(&whole, &part, &first, &inputs);
        if (status == 0) status = link_shards(&whole, &part, paths[i], &ends);
        dataset_close(&part);
    }
    if (status == 0 && !document_count(&whole)) status = fail(EX_NOINPUT, "no part of '%s' has a document", output);
    if (status == 0) status = check_splits(count, paths);
    if (status == 0) status = join_skips(build->target, count, paths);
    if (first.part) // as one run over all files
        lineage_make(&history, "tokenize", first.params, NULL);
    else
        lineage_make(&history, "merge", "", &inputs);
    whole.history = (const char *)history.data;
    if (status == 0) status = dataset_build_finish(build, &whole);
    if (status == 0) status = dataset_vocabulary_copy(output, vocabulary);
    if (status == 0)
        log_line("%d dataset%s, %" PRIu64 " train and %" PRIu64 " val tokens", count, PLURAL(count),
                 whole.tokens[SPLIT_TRAIN], whole.tokens[SPLIT_VAL]);
    else
        dataset_build_abandon(build);
    free(fingerprints);
    buffer_close(&inputs);
    buffer_close(&history);
    dataset_close(&whole);
    dataset_close(&first);
    return status;
}

static int run(int count, char **arguments) {
    if (count == 0) return fail(EX_USAGE, "missing DIR of a dataset to merge");
    if (!output) return fail(EX_USAGE, "missing -o DIR");
    if (part_sort(arguments, count) < 0) return -1;
    for (int i = 0; i < count; i++) {
        if (strstr(arguments[i], "://"))
            return fail(EX_USAGE, "merge links files, and '%s' is not on this file system: copy it by millrace filter",
                        arguments[i]);
        struct stat status;
        if (stat(arguments[i], &status)) return fail_errno("cannot open '%s'", arguments[i]);
        if (!dataset_is(arguments[i]))
            return fail(EX_NOINPUT, "'%s' is not a dataset: it has no dataset.jsonl", arguments[i]);
        if (refuse_as_output(arguments[i], output) < 0) return -1;
    }
    DatasetBuild build;
    int status = dataset_build_open(&build, output);
    if (status == 0) status = merge_locked(&build, count, arguments);
    dataset_build_close(&build);
    return status;
}

const Command shardtool_merge = {"merge", "DIR...", "join datasets without copying", options, run, NULL};
