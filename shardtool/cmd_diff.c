// diff: compares two shards or datasets. Exit code 0 when equal, 1 with the first difference on stdout.
#include "common/err.h"
#include "dataset/token_reader.h"
#include "remote/url_map.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define NOT_IDS ", and hold the same ids: --ids compares only these"
enum { STEP_TOKENS = 1 << 16 };

static bool ids;
static int wanted; // 0 = all splits, else the split + 1

static const Option options[] = {
    {OPT_FLAG, "ids", &ids, NULL, "compare the ids only, not how they are cut into frames and shards"},
    {OPT_WORD, "split", &wanted, "all|" SPLIT_WORDS, "split of the datasets"},
    ROW_END,
};

static bool is_wanted(int split) { return wanted == 0 || wanted - 1 == split; }

// The split of a dataset that is compared with a shard, which has one sequence of ids.
static int choose_split(const char *path) {
    if (wanted) return wanted - 1;
    Dataset dataset;
    if (dataset_open(&dataset, path) < 0) return -1;
    bool has_train = dataset.tokens[SPLIT_TRAIN] > 0, has_val = dataset.tokens[SPLIT_VAL] > 0;
    dataset_close(&dataset);
    if (!has_train || !has_val) return has_val ? SPLIT_VAL : SPLIT_TRAIN;
    return fail(EX_USAGE, "'%s' has two splits: choose the one to compare with --split train or --split val", path);
}

// Compares ids only, independent of frames and shards. 1 when they differ.
static int diff_ids(const char *a_path, const char *b_path, int split, const char *label) {
    static uint32_t a_ids[STEP_TOKENS], b_ids[STEP_TOKENS]; // of a.id_bytes, b.id_bytes each
    TokenReader a, b = {0};
    if (token_reader_open(&a, a_path, split) < 0) return -1;
    int status = token_reader_open(&b, b_path, split);
    uint64_t common = a.tokens < b.tokens ? a.tokens : b.tokens;
    for (uint64_t at = 0; status == 0 && at < common; at += STEP_TOKENS) {
        size_t take = common - at < STEP_TOKENS ? (size_t)(common - at) : STEP_TOKENS;
        if (token_reader_get(&a, at, take, a_ids) < 0 || token_reader_get(&b, at, take, b_ids) < 0) status = -1;
        for (size_t i = 0; status == 0 && i < take; i++) {
            const uint32_t a_id = id_at(a_ids, i, a.id_bytes), b_id = id_at(b_ids, i, b.id_bytes);
            if (a_id == b_id) continue;
            printf("%stoken %" PRIu64 " is %u in '%s' and %u in '%s'\n", label, at + i, a_id, a_path, b_id, b_path);
            status = EX_NO;
        }
    }
    if (status == 0 && a.tokens != b.tokens) {
        printf("%s'%s' has %" PRIu64 " tokens, '%s' has %" PRIu64 "\n", label, a_path, a.tokens, b_path, b.tokens);
        status = EX_NO;
    }
    token_reader_close(&a);
    token_reader_close(&b);
    return status;
}

static int diff_bytes(const char *a_path, const char *b_path) {
    Bytes a, b = {0};
    if (url_map_file(&a, a_path) < 0) return -1;
    int status = url_map_file(&b, b_path);
    size_t common = a.size < b.size ? a.size : b.size, at = 0;
    while (status == 0 && at < common && a.data[at] == b.data[at]) at++;
    if (status == 0 && (at < common || a.size != b.size)) {
        printf("'%s' and '%s' differ at byte %zu of %zu and %zu\n", a_path, b_path, at, a.size, b.size);
        status = EX_NO;
    }
    file_unmap(&a);
    file_unmap(&b);
    return status;
}

static int diff_manifests(const Dataset *a, const Dataset *b) {
    for (int split = 0; split < SPLIT_COUNT; split++) {
        if (!is_wanted(split)) continue;
        if (a->shard_count[split] != b->shard_count[split]) {
            printf("'%s' has %" PRIu64 " %s shards, '%s' has %" PRIu64 "%s\n", a->path, a->shard_count[split],
                   split_names[split], b->path, b->shard_count[split],
                   a->tokens[split] == b->tokens[split] ? " (--ids compares the ids)" : "");
            return EX_NO;
        }
        for (uint64_t i = 0; i < a->shard_count[split]; i++)
            if (memcmp(a->shards[split][i].stored_hash, b->shards[split][i].stored_hash, 16)) {
                const DatasetShard *one = &a->shards[split][i], *other = &b->shards[split][i];
                const bool same_ids = !memcmp(one->content_hash, other->content_hash, sizeof one->content_hash);
                printf("'%s' and '%s' differ%s\n", one->path, other->path, same_ids ? NOT_IDS : "");
                return EX_NO;
            }
    }
    return 0;
}

static int diff_datasets(const char *a_path, const char *b_path) {
    static const char *const labels[SPLIT_COUNT] = {"train: ", "val: "};
    for (int split = 0; ids && split < SPLIT_COUNT; split++) {
        int status = is_wanted(split) ? diff_ids(a_path, b_path, split, labels[split]) : 0;
        if (status) return status;
    }
    if (ids) return 0;
    Dataset a, b = {0};
    if (dataset_open(&a, a_path) < 0) return -1;
    int status = dataset_open(&b, b_path);
    if (status == 0) status = diff_manifests(&a, &b);
    dataset_close(&a);
    dataset_close(&b);
    return status;
}

static int run(int count, char **arguments) {
    if (count != 2) return fail(EX_USAGE, "expected exactly two arguments, shards or datasets");
    const char *a = arguments[0], *b = arguments[1], *dataset = dataset_is(a) ? a : dataset_is(b) ? b : NULL;
    if (dataset_is(a) && dataset_is(b)) return diff_datasets(a, b);
    if (dataset) {
        const char *other = dataset == a ? b : a;
        struct stat status;
        if (strcmp(other, "-") && stat(other, &status)) return fail_errno("cannot open '%s'", other);
        if (strcmp(other, "-") && S_ISDIR(status.st_mode)) return diff_datasets(a, b); // which names what is missing
        if (!ids) return fail(EX_USAGE, "'%s' is a dataset and '%s' is not: compare them with --ids", dataset, other);
    }
    int split = dataset ? choose_split(dataset) : SPLIT_TRAIN;
    if (split < 0) return -1;
    if (ids) return diff_ids(a, b, split, "");
    return diff_bytes(a, b);
}

const Command shardtool_diff = {"diff", "A B", "compare two shards or datasets", options, run, NULL};
