// Lengths of documents.
#include "shardtool/print/document_lengths.h"
#include "common/file/file.h"
#include <stdio.h>
#include <stdlib.h>

// A histogram of lengths in bounded memory: exact below 2^16, above it to 11 significant bits, an error below 0.1 %.
enum { EXACT = 1 << 16, PER_OCTAVE = 1 << 10, BUCKETS = EXACT + 48 * PER_OCTAVE };

static unsigned bucket_of(uint64_t length) {
    if (length < EXACT) return (unsigned)length;
    unsigned octave = 63 - (unsigned)__builtin_clzll(length); // 16 or more
    return EXACT + (octave - 16) * PER_OCTAVE + (unsigned)(length >> (octave - 10)) % PER_OCTAVE;
}

static uint64_t bucket_length(unsigned bucket) {
    if (bucket < EXACT) return bucket;
    unsigned octave = 16 + (bucket - EXACT) / PER_OCTAVE;
    return ((uint64_t)PER_OCTAVE + (bucket - EXACT) % PER_OCTAVE) << (octave - 10);
}

typedef struct {
    uint64_t *counts; // of each bucket
    uint64_t documents, empty, least, most;
} Lengths;

static const unsigned percents[] = {1, 5, 25, 50, 75, 95, 99};

// The length that `percent` of the documents do not exceed (nearest rank); long ones are rounded down by up to 0.1 %.
static uint64_t quantile(const Lengths *lengths, unsigned percent) {
    uint64_t rank = (uint64_t)(((unsigned __int128)lengths->documents * percent + 99) / 100), seen = 0;
    unsigned bucket = 0;
    while (bucket < BUCKETS - 1 && (seen += lengths->counts[bucket]) < rank) bucket++;
    const uint64_t length = bucket_length(bucket);
    return length < lengths->least ? lengths->least : length;
}

static int add_document(void *context, const Document *document) {
    Lengths *lengths = context;
    lengths->counts[bucket_of(document->tokens)]++;
    lengths->empty += document->tokens == 1 && document->has_end;
    if (!lengths->documents++ || document->tokens < lengths->least) lengths->least = document->tokens;
    if (document->tokens > lengths->most) lengths->most = document->tokens;
    return 0;
}

static uint64_t text_bytes(const TokenReader *tokens) {
    if (tokens->path) return tokens->shard.source_bytes;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < token_reader_shards(tokens); i++)
        bytes += tokens->dataset.shards[tokens->split][i].source_bytes;
    return bytes;
}

static void add_ratio(RowPrinter *rows, const char *key, uint64_t a, uint64_t b) {
    row_add_ratio(rows, key, b ? (double)a / (double)b : 0, 3, "");
}

static void print_row(RowPrinter *rows, const char *path, const TokenReader *tokens, const Lengths *lengths) {
    const char *split = tokens->path ? NULL : split_names[tokens->split];
    const uint64_t bytes = text_bytes(tokens);
    char name[PATH_MAX_BYTES + 8];
    snprintf(name, sizeof name, "%s%s%s", path, split ? ", " : "", split ? split : "");
    row_begin(rows, "path", rows->json ? path : name);
    if (rows->json && split) row_add_text(rows, "split", 0, split);
    row_add_number(rows, "documents", 0, lengths->documents);
    row_add_number(rows, "tokens", 0, tokens->tokens);
    row_add_number(rows, "empty_documents", 0, lengths->empty);
    row_add_number(rows, "text_bytes", 0, bytes);
    add_ratio(rows, "bytes_per_token", bytes, tokens->tokens);
    add_ratio(rows, "mean", tokens->tokens, lengths->documents);
    row_add_number(rows, "min", 0, lengths->least);
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        char key[8];
        snprintf(key, sizeof key, "p%u", percents[i]);
        row_add_number(rows, key, 0, quantile(lengths, percents[i]));
    }
    row_add_number(rows, "max", 0, lengths->most);
    row_end(rows);
}

int document_lengths_print(RowPrinter *rows, const char *path, TokenReader *tokens) {
    Lengths lengths = {.counts = allocate_zeroed(BUCKETS, sizeof(uint64_t))};
    int status = document_reader_visit(tokens, add_document, &lengths);
    if (status == 0) print_row(rows, path, tokens, &lengths);
    free(lengths.counts);
    return status;
}
