// Opens the shards and datasets that a command line names.
#include "shardtool/support/path_visit.h"
#include "common/err.h"

static int visit_split(const char *path, int split, PathVisit *visit, void *context) {
    TokenReader tokens;
    if (token_reader_open(&tokens, path, split) < 0) return -1;
    int status = visit(context, path, &tokens);
    token_reader_close(&tokens);
    return status;
}

// For a dataset its manifest's, with which its shards are compared when they are read.
static int read_vocabulary(const char *path, uint32_t *size, uint8_t fingerprint[32]) {
    const bool is_dataset = dataset_is(path);
    Dataset dataset;
    ShardFile shard;
    if ((is_dataset ? dataset_open(&dataset, path) : shard_file_open(&shard, path)) < 0) return -1;
    *size = is_dataset ? dataset.vocab_size : shard.vocab_size;
    memcpy(fingerprint, is_dataset ? dataset.vocab_fp : shard.vocab_fp, 32);
    if (is_dataset)
        dataset_close(&dataset);
    else
        shard_file_close(&shard);
    return 0;
}

int paths_check_vocabulary(int count, char **paths) {
    uint32_t first = 0, other;
    uint8_t of_first[32], of_other[32];
    for (int i = 0; count > 1 && i < count; i++) {
        if (read_vocabulary(paths[i], i ? &other : &first, i ? of_other : of_first) < 0) return -1;
        if (i && (other != first || memcmp(of_first, of_other, sizeof of_first)))
            return fail(EX_DATA, "'%s' and '%s' have different vocabularies", paths[0], paths[i]);
    }
    return 0;
}

int paths_visit(int count, char **paths, int split, PathVisit *visit, void *context) {
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset");
    int status = 0;
    for (int i = 0; status == 0 && i < count; i++) {
        const bool all = split == SPLIT_ALL && dataset_is(paths[i]);
        status = visit_split(paths[i], split == SPLIT_ALL ? SPLIT_TRAIN : split, visit, context);
        if (status == 0 && all) status = visit_split(paths[i], SPLIT_VAL, visit, context);
    }
    return status;
}

int shards_visit(const char *path, int split, int (*visit)(void *context, const char *shard), void *context) {
    if (!dataset_is(path)) return visit(context, path);
    Dataset dataset;
    if (dataset_open(&dataset, path) < 0) return -1;
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < dataset.shard_count[split]; i++)
        status = visit(context, dataset.shards[split][i].path);
    dataset_close(&dataset);
    return status;
}
