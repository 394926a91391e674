// info: prints the headers and totals of shards and datasets.
#include "common/err.h"
#include "common/id_array.h"
#include "shardtool/support/option_rows.h"
#include "shardtool/support/path_visit.h"
#include "shardtool/support/row_printer.h"
#include <stdio.h>

static RowPrinter rows = {.key_width = 13};

static const Option options[] = {
    ROW_JSON(&rows),
    REMOTE_ROWS,
    ROW_END,
};

static void add_number(const char *key, uint64_t value) { row_add_number(&rows, key, 0, value); }

static void add_sizes(uint64_t source_bytes, uint64_t bytes, uint64_t tokens, uint32_t vocab_size) {
    add_number("source_bytes", source_bytes);
    add_number("bytes", bytes);
    const double raw = (double)id_bytes(vocab_size) * (double)tokens;
    row_add_ratio(&rows, "ratio", tokens ? (double)bytes / raw : 0, 4, " of the raw ids");
}

static void add_shard(const ShardFile *shard) {
    row_add_text(&rows, "kind", 0, "shard");
    add_number("tokens", shard->tokens);
    add_number("documents", shard->documents);
    add_sizes(shard->source_bytes, shard->map.size, shard->tokens, shard->vocab_size);
    add_number("frames", shard->frame_count);
    add_number("frame_tokens", shard->frame_tokens);
    add_number("members", shard->member_count);
    add_number("vocab_size", shard->vocab_size);
    add_number("eot_id", shard->eot_id);
    row_add_hex(&rows, "vocab_fp", shard->vocab_fp, 32);
    row_add_hex(&rows, "params_fp", shard->params_fp, 32);
    row_add_hex(&rows, "content_hash", shard->content_hash, 32);
}

static void add_dataset(const Dataset *dataset) {
    row_add_text(&rows, "kind", 0, "dataset");
    add_number("train_tokens", dataset->tokens[SPLIT_TRAIN]);
    add_number("val_tokens", dataset->tokens[SPLIT_VAL]);
    add_number("train_documents", dataset->documents[SPLIT_TRAIN]);
    add_number("val_documents", dataset->documents[SPLIT_VAL]);
    add_number("train_shards", dataset->shard_count[SPLIT_TRAIN]);
    add_number("val_shards", dataset->shard_count[SPLIT_VAL]);
    add_sizes(dataset->source_bytes, dataset_bytes(dataset, SPLIT_TRAIN) + dataset_bytes(dataset, SPLIT_VAL),
              dataset->tokens[SPLIT_TRAIN] + dataset->tokens[SPLIT_VAL], dataset->vocab_size);
    add_number("vocab_size", dataset->vocab_size);
    add_number("eot_id", dataset->eot_id);
    row_add_text(&rows, "params", 0, dataset->params);
    row_add_hex(&rows, "fingerprint", dataset->fingerprint, 32);
    row_add_hex(&rows, "vocab_fp", dataset->vocab_fp, 32);
}

static int print_path(void *context, const char *path, TokenReader *tokens) {
    (void)context;
    row_begin(&rows, "path", path);
    if (tokens->path)
        add_shard(&tokens->shard);
    else
        add_dataset(&tokens->dataset);
    row_end(&rows);
    return 0;
}

static int run(int count, char **arguments) { return paths_visit(count, arguments, SPLIT_TRAIN, print_path, NULL); }

const Command shardtool_info = {"info",  "PATH...", "print the headers and totals of shards and datasets",
                                options, run,       NULL};
