// ls: lists the shards of datasets, or their documents.
#include "common/json_write.h"
#include "dataset/document_reader.h"
#include "shardtool/support/option_rows.h"
#include "shardtool/support/path_visit.h"
#include "shardtool/support/row_printer.h"
#include <stdio.h>

static RowPrinter rows;
static bool documents;
static int split;

static const Option options[] = {
    {OPT_FLAG, "docs", &documents, NULL,
     "list the documents of one split: number, first token, tokens with end-of-text"},
    ROW_SPLIT(&split),
    ROW_JSON(&rows),
    ROW_END,
};

static void print_shard(const char *path, uint64_t tokens, uint64_t document_count, uint64_t bytes) {
    row_begin(&rows, "path", path);
    row_add_number(&rows, "tokens", 14, tokens);
    row_add_number(&rows, "documents", 12, document_count);
    row_add_number(&rows, "bytes", 14, bytes);
    row_end(&rows);
}

static int list_shards(void *context, const char *path, TokenReader *tokens) {
    (void)context;
    for (uint64_t i = 0; tokens->path && i < tokens->shard.member_count; i++) {
        const Shard *member = &tokens->shard.members[i];
        print_shard(path, member->tokens, member->documents, member->end - member->offset);
    }
    for (int s = 0; !tokens->path && s < SPLIT_COUNT; s++)
        for (uint64_t i = 0; i < tokens->dataset.shard_count[s]; i++) {
            const DatasetShard *shard = &tokens->dataset.shards[s][i];
            print_shard(shard->path, shard->tokens, shard->documents, shard->bytes);
        }
    return 0;
}

static int print_document(void *context, const Document *document) {
    (void)context;
    row_begin(&rows, NULL, !rows.json && !document->has_end ? "(no end-of-text)" : NULL);
    row_add_number(&rows, "document", 12, document->number);
    row_add_number(&rows, "first", 14, document->first);
    row_add_number(&rows, "tokens", 12, document->tokens);
    if (rows.json) json_add_bool(&rows.row, "ends", document->has_end);
    row_end(&rows);
    return 0;
}

static int list_documents(void *context, const char *path, TokenReader *tokens) {
    (void)path;
    return document_reader_visit(tokens, print_document, context);
}

static int run(int count, char **arguments) {
    if (!rows.json && count)
        printf(documents ? "    document          first       tokens\n"
                         : "        tokens    documents          bytes  shard\n");
    return paths_visit(count, arguments, split, documents ? list_documents : list_shards, NULL);
}

const Command shardtool_ls = {"ls", "PATH...", "list shards or documents", options, run, NULL};
