// stat: counts and lengths of documents, from the document indexes; no frame is decoded.
#include "common/err.h"
#include "common/json_write.h"
#include "shardtool/format/document_reader.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool json;

static const Option options[] = {
    {OPT_FLAG, "json", &json, NULL, "print one JSON object per split"},
    ROW_END,
};

// A histogram of lengths in bounded memory: exact below 2^16, above it to 11 significant bits, which is less than 0.1
// %.
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
    uint64_t documents, empty, tokens, text_bytes, least, most;
} Lengths;

static const unsigned percents[] = {1, 5, 25, 50, 75, 95, 99};

// The length that `percent` of the documents do not exceed (nearest rank).
static uint64_t quantile(const Lengths *lengths, unsigned percent) {
    uint64_t rank = (uint64_t)(((unsigned __int128)lengths->documents * percent + 99) / 100), seen = 0;
    unsigned bucket = 0;
    while (bucket < BUCKETS - 1 && (seen += lengths->counts[bucket]) < rank) bucket++;
    return bucket_length(bucket);
}

static int collect(Lengths *lengths, TokenReader *tokens) {
    DocumentReader reader = {0};
    Document document;
    int status;
    while ((status = document_reader_next(&reader, tokens, &document)) > 0) {
        lengths->counts[bucket_of(document.tokens)]++;
        lengths->empty += document.tokens == 1 && document.has_end;
        if (!lengths->documents++ || document.tokens < lengths->least) lengths->least = document.tokens;
        if (document.tokens > lengths->most) lengths->most = document.tokens;
    }
    document_reader_close(&reader);
    lengths->tokens = tokens->tokens;
    if (tokens->path) lengths->text_bytes = tokens->shard.source_bytes;
    for (uint64_t i = 0; !tokens->path && i < token_reader_shards(tokens); i++)
        lengths->text_bytes += tokens->dataset.shards[tokens->split][i].source_bytes;
    return status;
}

static void add_number(Buffer *out, const char *key, uint64_t value) {
    buffer_print(out, json ? ",\"%s\":%" PRIu64 : "%-16s %" PRIu64 "\n", key, value);
}

static void add_ratio(Buffer *out, const char *key, uint64_t a, uint64_t b) {
    buffer_print(out, json ? ",\"%s\":%.3f" : "%-16s %.3f\n", key, b ? (double)a / (double)b : 0);
}

static void print_lengths(const char *path, const char *split, const Lengths *lengths) {
    Buffer out = {0};
    if (json) {
        buffer_print(&out, "{\"path\":");
        json_add_string(&out, path);
        if (split) buffer_print(&out, ",\"split\":\"%s\"", split);
    } else
        buffer_print(&out, "%-16s %s%s%s\n", "path", path, split ? ", " : "", split ? split : "");
    add_number(&out, "documents", lengths->documents);
    add_number(&out, "tokens", lengths->tokens);
    add_number(&out, "empty_documents", lengths->empty);
    add_number(&out, "text_bytes", lengths->text_bytes);
    add_ratio(&out, "bytes_per_token", lengths->text_bytes, lengths->tokens);
    add_ratio(&out, "mean", lengths->tokens, lengths->documents);
    add_number(&out, "min", lengths->least);
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        char key[8];
        snprintf(key, sizeof key, "p%u", percents[i]);
        add_number(&out, key, quantile(lengths, percents[i]));
    }
    add_number(&out, "max", lengths->most);
    if (json) buffer_print(&out, "}\n");
    fwrite(out.data, 1, out.size, stdout);
    buffer_close(&out);
}

static int stat_split(const char *path, int split, bool is_dataset) {
    TokenReader tokens;
    if (token_reader_open(&tokens, path, split) < 0) return -1;
    Lengths lengths = {.counts = allocate_zeroed(BUCKETS, sizeof(uint64_t))};
    int status = collect(&lengths, &tokens);
    if (status == 0) print_lengths(path, is_dataset ? split_names[split] : NULL, &lengths);
    free(lengths.counts);
    token_reader_close(&tokens);
    return status;
}

static int run(int count, char **arguments) {
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset");
    int status = 0;
    for (int i = 0; status == 0 && i < count; i++) {
        bool is_dataset = dataset_is(arguments[i]);
        for (int split = 0; status == 0 && split < (is_dataset ? SPLIT_COUNT : 1); split++) {
            if (!json && (i || split)) printf("\n");
            status = stat_split(arguments[i], split, is_dataset);
        }
    }
    return status;
}

const Command shardtool_stat = {"stat", "PATH...", "count documents and their lengths in tokens", options, run, NULL};
