// Writes the ids and the documents of a split to the files of another tool.
#include "shardtool/interchange/exporter.h"
#include "common/err.h"
#include "common/log.h"
#include <inttypes.h>
#include <stdio.h>

enum { STEP_TOKENS = 1 << 16 };

int exporter_open(Exporter *exporter, const char *end) {
    char path[PATH_MAX_BYTES];
    if (snprintf(path, sizeof path, "%s/%s%s", exporter->folder, exporter->name, end) >= (int)sizeof path)
        return fail(EX_CREATE, "path too long: '%.60s...'", exporter->folder);
    return newfile_open(&exporter->file, path);
}

// With eot_before, id 0 is an end-of-text id and id i is token i-1.
int exporter_add(Exporter *exporter, uint64_t count) {
    int status = 0;
    for (uint64_t end = exporter->at + count; status == 0 && exporter->at < end;) {
        size_t step = end - exporter->at < STEP_TOKENS ? (size_t)(end - exporter->at) : STEP_TOKENS, put = 0;
        const unsigned bytes = exporter->tokens->id_bytes;
        uint8_t *ids = exporter->block.data;
        uint64_t first = exporter->at;
        if (exporter->eot_before && first == 0) id_put(ids, put++, bytes, exporter->eot_id);
        if (exporter->eot_before && first > 0) first--;
        status = token_reader_get(exporter->tokens, first, step - put, ids + put * bytes);
        if (status == 0) status = newfile_write(&exporter->file, ids, step * bytes);
        exporter->at += step;
    }
    return status;
}

int exporter_write(Exporter *exporter, const char *end, Bytes header, uint64_t count) {
    if (exporter_open(exporter, end) < 0 || newfile_write(&exporter->file, header.data, header.size) < 0 ||
        exporter_add(exporter, count) < 0)
        return -1;
    return newfile_commit(&exporter->file);
}

typedef struct {
    Exporter *exporter;
    AddDocument add;
    Buffer out;
    uint64_t documents;
} DocumentWriter;

static int write_document(void *context, const Document *document) {
    DocumentWriter *writer = context;
    writer->documents++;
    if (writer->add(writer->exporter, &writer->out, document) < 0) return -1;
    if (writer->out.size < STEP_TOKENS) return 0;
    int status = newfile_write(&writer->exporter->file, writer->out.data, writer->out.size);
    writer->out.size = 0;
    return status;
}

int exporter_add_documents(Exporter *exporter, AddDocument add, uint64_t *documents) {
    DocumentWriter writer = {exporter, add, {0}, 0};
    int status = document_reader_visit(exporter->tokens, write_document, &writer);
    if (status == 0) status = newfile_write(&exporter->file, writer.out.data, writer.out.size);
    *documents = writer.documents;
    buffer_close(&writer.out);
    return status;
}

int exporter_run(Exporter *exporter, int (*write)(Exporter *exporter)) {
    TokenReader *tokens = exporter->tokens;
    const ShardFile *shard = token_reader_shard(tokens, token_reader_shards(tokens) - 1);
    uint32_t last = 0;
    if (!shard || token_reader_get(tokens, tokens->tokens - 1, 1, &last) < 0) return -1;
    last = id_at(&last, 0, tokens->id_bytes);
    exporter->eot_id = shard->eot_id;
    exporter->count = tokens->tokens;
    // The end-of-text id of the last document moves before the first one.
    if (exporter->eot_before && last != exporter->eot_id) exporter->count++;
    buffer_reserve(&exporter->block, (size_t)STEP_TOKENS * tokens->id_bytes);
    int status = write(exporter);
    if (status < 0) newfile_abandon(&exporter->file);
    buffer_close(&exporter->block);
    if (status == 0) log_line("%s: %" PRIu64 " ids", exporter->name, exporter->count);
    return status;
}
