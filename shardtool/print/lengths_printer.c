// Prints the lengths of documents.
#include "shardtool/print/lengths_printer.h"
#include "common/file/file.h"
#include "common/json_write.h"
#include "dataset/document_lengths.h"
#include <inttypes.h>
#include <stdio.h>

enum { BAR_SIGNS = 40 };

static void add_ratio(RowPrinter *rows, const char *key, uint64_t a, uint64_t b) {
    if (!b) return row_add_none(rows, key, 0); // nothing has no mean and no shortest length
    row_add_ratio(rows, key, (double)a / (double)b, 3, "");
}

static void add_length(RowPrinter *rows, const char *key, uint64_t length) {
    if (!length) return row_add_none(rows, key, 0); // every document has a token
    row_add_number(rows, key, 0, length);
}

static double percent(uint64_t part, uint64_t all) { return all ? 100 * (double)part / (double)all : 0; }

static void add_json_octave(Buffer *row, unsigned octave, const DocumentLengths *lengths) {
    buffer_print(row, "%s", octave > lengths->first_octave ? "," : "");
    json_add_number(row, "from", (uint64_t)1 << octave);
    json_add_number(row, "documents", lengths->octaves[octave].documents);
    json_add_number(row, "tokens", lengths->octaves[octave].tokens);
    buffer_print(row, "}");
}

static void add_text_octave(Buffer *row, unsigned octave, const DocumentLengths *lengths) {
    const uint64_t from = (uint64_t)1 << octave, documents = lengths->octaves[octave].documents;
    const int signs = (int)((unsigned __int128)documents * BAR_SIGNS / lengths->highest);
    char range[48];
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, from, from + (from - 1));
    buffer_print(row, "%16s %12" PRIu64 " %6.1f %12.1f  %.*s\n", range, documents,
                 percent(documents, lengths->documents), percent(lengths->octaves[octave].tokens, lengths->tokens),
                 documents && !signs ? 1 : signs, "########################################");
}

// A line for each octave of lengths: its documents, their share and that of their tokens, and a bar for the documents.
static void add_histogram(RowPrinter *rows, const DocumentLengths *lengths) {
    Buffer *row = &rows->row;
    if (rows->json) json_add_key(row, "histogram");
    if (rows->json || lengths->documents)
        buffer_print(row, rows->json ? "[" : "\n          tokens    documents      %%  %% of tokens\n");
    for (unsigned i = lengths->first_octave; i < lengths->octave_end; i++)
        if (rows->json)
            add_json_octave(row, i, lengths);
        else
            add_text_octave(row, i, lengths);
    if (rows->json) buffer_print(row, "]");
}

int lengths_print(RowPrinter *rows, const char *path, TokenReader *tokens) {
    const char *split = tokens->path ? NULL : split_names[tokens->split];
    DocumentLengths lengths;
    if (document_lengths_read(&lengths, tokens) < 0) return -1;
    char name[PATH_MAX_BYTES + 8];
    snprintf(name, sizeof name, "%s%s%s", path, split ? ", " : "", split ? split : "");
    row_begin(rows, "path", rows->json ? path : name);
    if (rows->json && split) row_add_text(rows, "split", 0, split);
    row_add_number(rows, "documents", 0, lengths.documents);
    if (tokens->path) row_add_number(rows, "cut_documents", 0, lengths.cut);
    row_add_number(rows, "tokens", 0, lengths.tokens);
    if (tokens->path) row_add_number(rows, "cut_tokens", 0, lengths.cut_tokens);
    row_add_number(rows, "empty_documents", 0, lengths.empty);
    row_add_number(rows, "text_bytes", 0, lengths.text_bytes);
    add_ratio(rows, "bytes_per_token", lengths.text_bytes, tokens->tokens);
    add_ratio(rows, "mean", lengths.tokens, lengths.documents);
    add_length(rows, "min", lengths.least);
    for (size_t i = 0; i < LENGTH_PERCENTS; i++) {
        char key[8];
        snprintf(key, sizeof key, "p%u", length_percents[i]);
        add_length(rows, key, lengths.quantiles[i]);
    }
    add_length(rows, "max", lengths.most);
    add_histogram(rows, &lengths);
    row_end(rows);
    return 0;
}
