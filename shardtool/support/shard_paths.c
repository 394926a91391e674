// Resolves datasets to their shards.
#include "shardtool/support/shard_paths.h"
#include "shardtool/format/dataset.h"

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
