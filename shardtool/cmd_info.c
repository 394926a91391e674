// info: prints the headers and totals of shards and datasets.
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "shardtool/format/dataset.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>
#include <stdio.h>

static bool json;

static const Option options[] = {
    {OPT_FLAG, "json", &json, NULL, "print one JSON object per line"},
    ROW_END,
};

// One row of the table, or one key of the JSON object. The first key is "path".
static void add_text(Buffer *out, const char *key, const char *value) {
    if (!json) {
        buffer_print(out, "%-13s %s\n", key, value);
        return;
    }
    buffer_print(out, "%s\"%s\":", !strcmp(key, "path") ? "{" : ",", key);
    json_add_string(out, value);
}

static void add_number(Buffer *out, const char *key, uint64_t value) {
    buffer_print(out, json ? ",\"%s\":%" PRIu64 : "%-13s %" PRIu64 "\n", key, value);
}

static void add_ratio(Buffer *out, uint64_t bytes, uint64_t tokens) {
    double ratio = tokens ? (double)bytes / (2 * (double)tokens) : 0;
    buffer_print(out, json ? ",\"%s\":%.4f" : "%-13s %.4f of the raw ids\n", "ratio", ratio);
}

static void add_hash(Buffer *out, const char *key, const void *hash, size_t size) {
    char hex[65];
    hex_encode(hex, hash, size);
    add_text(out, key, hex);
}

static int info_shard(Buffer *out, const char *path) {
    ShardFile shard;
    if (shard_file_open(&shard, path) < 0) return -1;
    add_text(out, "path", path);
    add_text(out, "kind", "shard");
    add_number(out, "tokens", shard.tokens);
    add_number(out, "documents", shard.documents);
    add_number(out, "source_bytes", shard.source_bytes);
    add_number(out, "bytes", shard.map.size);
    add_ratio(out, shard.map.size, shard.tokens);
    add_number(out, "frames", shard.frame_count);
    add_number(out, "frame_tokens", shard.frame_tokens);
    add_number(out, "members", shard.member_count);
    add_number(out, "vocab_size", shard.vocab_size);
    add_number(out, "eot_id", shard.eot_id);
    add_hash(out, "vocab_fp", shard.vocab_fp, 32);
    add_hash(out, "params_fp", shard.params_fp, 32);
    add_hash(out, "content_hash", shard.content_hash, 32);
    shard_file_close(&shard);
    return 0;
}

static int info_dataset(Buffer *out, const char *path) {
    Dataset dataset;
    if (dataset_open(&dataset, path) < 0) return -1;
    uint64_t bytes = 0;
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset.shard_count[split]; i++) bytes += dataset.shards[split][i].bytes;
    add_text(out, "path", path);
    add_text(out, "kind", "dataset");
    add_number(out, "train_tokens", dataset.tokens[SPLIT_TRAIN]);
    add_number(out, "val_tokens", dataset.tokens[SPLIT_VAL]);
    add_number(out, "train_documents", dataset.documents[SPLIT_TRAIN]);
    add_number(out, "val_documents", dataset.documents[SPLIT_VAL]);
    add_number(out, "train_shards", dataset.shard_count[SPLIT_TRAIN]);
    add_number(out, "val_shards", dataset.shard_count[SPLIT_VAL]);
    add_number(out, "source_bytes", dataset.source_bytes);
    add_number(out, "bytes", bytes);
    add_ratio(out, bytes, dataset.tokens[SPLIT_TRAIN] + dataset.tokens[SPLIT_VAL]);
    add_number(out, "vocab_size", dataset.vocab_size);
    add_number(out, "eot_id", dataset.eot_id);
    add_text(out, "params", dataset.params);
    add_hash(out, "fingerprint", dataset.fingerprint, 32);
    add_hash(out, "vocab_fp", dataset.vocab_fp, 32);
    dataset_close(&dataset);
    return 0;
}

static int run(int count, char **arguments) {
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset");
    Buffer out = {0};
    int status = 0;
    for (int i = 0; status == 0 && i < count; i++) {
        out.size = 0;
        status = dataset_is(arguments[i]) ? info_dataset(&out, arguments[i]) : info_shard(&out, arguments[i]);
        if (status < 0) break;
        if (json)
            buffer_print(&out, "}\n");
        else if (i + 1 < count)
            buffer_print(&out, "\n");
        fwrite(out.data, 1, out.size, stdout);
    }
    buffer_close(&out);
    return status;
}

const Command shardtool_info = {"info",  "PATH...", "print the headers and totals of shards and datasets",
                                options, run,       NULL};
