// ls: lists the shards of datasets, or their documents.
#include "common/err.h"
#include "common/json_write.h"
#include "shardtool/format/document_reader.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>
#include <stdio.h>

static bool json, documents;
static int split;

static const Option options[] = {
    {OPT_FLAG, "docs", &documents, NULL,
     "list the documents of one split: number, first token, tokens with end-of-text"},
    ROW_SPLIT(&split),
    {OPT_FLAG, "json", &json, NULL, "print one JSON object per line"},
    ROW_END,
};

static void print_shard(const char *path, uint64_t tokens, uint64_t document_count, uint64_t bytes) {
    if (!json) {
        printf("%14" PRIu64 " %12" PRIu64 " %14" PRIu64 "  %s\n", tokens, document_count, bytes, path);
        return;
    }
    Buffer name = {0};
    json_add_string(&name, path);
    buffer_add(&name, "", 1);
    printf("{\"path\":%s,\"tokens\":%" PRIu64 ",\"documents\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n",
           (const char *)name.data, tokens, document_count, bytes);
    buffer_close(&name);
}

static int list_dataset(const char *path) {
    Dataset dataset;
    if (dataset_open(&dataset, path) < 0) return -1;
    for (int i = 0; i < SPLIT_COUNT; i++)
        for (uint64_t n = 0; n < dataset.shard_count[i]; n++) {
            const DatasetShard *shard = &dataset.shards[i][n];
            print_shard(shard->path, shard->tokens, shard->documents, shard->bytes);
        }
    dataset_close(&dataset);
    return 0;
}

static int list_shards(const char *path) {
    if (dataset_is(path)) return list_dataset(path);
    ShardFile shard;
    if (shard_file_open(&shard, path) < 0) return -1;
    for (uint64_t i = 0; i < shard.member_count; i++) {
        const Shard *member = &shard.members[i];
        print_shard(path, member->tokens, member->documents, member->end - member->offset);
    }
    shard_file_close(&shard);
    return 0;
}

static int list_documents(const char *path) {
    TokenReader tokens;
    if (token_reader_open(&tokens, path, split) < 0) return -1;
    DocumentReader reader = {0};
    Document document;
    int status;
    while ((status = document_reader_next(&reader, &tokens, &document)) > 0)
        printf(json ? "{\"document\":%" PRIu64 ",\"first\":%" PRIu64 ",\"tokens\":%" PRIu64 ",\"ends\":%s}\n"
                    : "%12" PRIu64 " %14" PRIu64 " %12" PRIu64 "%s\n",
               document.number, document.first, document.tokens,
               json ? (document.has_end ? "true" : "false") : (document.has_end ? "" : "  (no end-of-text)"));
    document_reader_close(&reader);
    token_reader_close(&tokens);
    return status;
}

static int run(int count, char **arguments) {
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset");
    if (!json)
        printf(documents ? "    document          first       tokens\n"
                         : "        tokens    documents          bytes  shard\n");
    int status = 0;
    for (int i = 0; status == 0 && i < count; i++)
        status = documents ? list_documents(arguments[i]) : list_shards(arguments[i]);
    return status;
}

const Command shardtool_ls = {"ls", "PATH...", "list shards or documents", options, run, NULL};
