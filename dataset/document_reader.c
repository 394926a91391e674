// Walks the document indexes of shards.
#include "dataset/document_reader.h"
#include "common/err.h"
#include <inttypes.h>

// Reads the index of the next shard. 1, or 0 after the last shard.
static int next_index(DocumentReader *reader, TokenReader *tokens) {
    if (reader->number == token_reader_shards(tokens)) return 0;
    const ShardFile *shard = token_reader_shard(tokens, reader->number);
    if (!shard) return -1;
    const Shard *member = &shard->members[reader->member];
    reader->lengths.size = 0;
    if (shard_lengths(shard, member, &reader->lengths) < 0) return -1;
    if (member->tokens && !reader->lengths.size)
        return fail(EX_DATA, "shard '%s': the document index is empty: run verify", shard->path);
    reader->rest = cursor_init((Bytes){reader->lengths.data, reader->lengths.size});
    reader->left = member->tokens;
    reader->open_end = member->index.data[0] & SHARD_CONTINUES_AFTER;
    if (++reader->member == shard->member_count) reader->number++, reader->member = 0;
    return 1;
}

static int next_length(DocumentReader *reader, uint64_t *length) {
    *length = cursor_leb128(&reader->rest);
    if (*length && *length <= reader->left) {
        reader->left -= *length;
        if (reader->rest.at < reader->rest.end || !reader->left) return 0;
    }
    return fail(EX_DATA, "the document index before document %" PRIu64 " does not match its shard: run verify",
                reader->document);
}

int document_reader_next(DocumentReader *reader, TokenReader *tokens, Document *document) {
    *document = (Document){.number = reader->document, .first = reader->first};
    while (!document->has_end) {
        int status = 1;
        while (status > 0 && reader->rest.at == reader->rest.end) status = next_index(reader, tokens);
        if (status < 0) return -1;
        if (status == 0) break;
        uint64_t length;
        if (next_length(reader, &length) < 0) return -1;
        document->tokens += length;
        document->has_end = reader->rest.at < reader->rest.end || !reader->open_end;
    }
    if (document->tokens == 0) return 0;
    const bool begins = reader->document || !(tokens->shard.members[0].index.data[0] & SHARD_CONTINUES_BEFORE);
    document->is_cut = tokens->path && !(begins && document->has_end);
    reader->first += document->tokens;
    reader->document++;
    return 1;
}

void document_reader_close(DocumentReader *reader) {
    buffer_close(&reader->lengths);
    *reader = (DocumentReader){0};
}

int document_reader_visit(TokenReader *tokens, DocumentVisit *visit, void *context) {
    DocumentReader reader = {0};
    Document document;
    int status;
    while ((status = document_reader_next(&reader, tokens, &document)) > 0)
        if ((status = visit(context, &document)) != 0) break;
    document_reader_close(&reader);
    return status;
}
