// The page about datasets: what `info --lengths` and `info --sources` print.
#include "trainer/records/dataset_page.h"
#include "common/file/file.h"
#include "dataset/document_lengths.h"
#include "dataset/provenance_reader.h"
#include "trainer/records/html.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double share(uint64_t part, uint64_t all) { return all ? 100 * (double)part / (double)all : 0; }

static void print_row(Buffer *out, const char *name, const uint64_t values[SPLIT_COUNT]) {
    buffer_print(out, "<tr><th>%s</th>", name);
    for (int split = 0; split < SPLIT_COUNT; split++) buffer_print(out, "<td>%" PRIu64 "</td>", values[split]);
    buffer_print(out, "</tr>\n");
}

static void print_totals(Buffer *out, const DocumentLengths lengths[SPLIT_COUNT]) {
#define BOTH(field) (uint64_t[]){lengths[SPLIT_TRAIN].field, lengths[SPLIT_VAL].field}
    buffer_print(out, "<table><tr><th></th><th>training</th><th>validation</th></tr>\n");
    print_row(out, "documents", BOTH(documents));
    print_row(out, "tokens", BOTH(tokens));
    print_row(out, "empty documents", BOTH(empty));
    print_row(out, "bytes of text", BOTH(text_bytes));
    print_row(out, "shortest, in tokens", BOTH(least));
    for (size_t i = 0; i < LENGTH_PERCENTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%u %% have at most", length_percents[i]);
        print_row(out, name, BOTH(quantiles[i]));
    }
    print_row(out, "longest", BOTH(most));
    buffer_print(out, "</table>\n");
#undef BOTH
}

static void print_histogram(Buffer *out, const char *title, const DocumentLengths *lengths) {
    if (!lengths->documents) return;
    buffer_print(
        out,
        "<h3>%s</h3>\n<table class=\"bars\"><tr><th>tokens</th><th>documents</th><th>%%</th><th>%% of tokens</th></tr>\n",
        title);
    for (unsigned i = lengths->first_octave; i < lengths->octave_end; i++) {
        const uint64_t from = (uint64_t)1 << i, documents = lengths->octaves[i].documents;
        buffer_print(out,
                     "<tr><td>%" PRIu64 "-%" PRIu64 "</td><td>%" PRIu64 "</td><td>%.1f</td><td>%.1f</td>"
                     "<td><hr style=\"width:%.1fem\"></td></tr>\n",
                     from, from + (from - 1), documents, share(documents, lengths->documents),
                     share(lengths->octaves[i].tokens, lengths->tokens), share(documents, lengths->highest) * 0.2);
    }
    buffer_print(out, "</table>\n");
}

static void print_sources(Buffer *out, const Dataset *dataset) {
    uint64_t all = 0;
    for (uint64_t i = 0; i < dataset->source_count; i++) all += dataset->sources[i].bytes;
    buffer_print(out, "<h3>Sources</h3>\n<table><tr><th>source</th><th>files</th><th>bytes</th><th>%%</th></tr>\n");
    for (uint64_t i = 0; i < dataset->source_count; i++) {
        const DatasetSource *source = &dataset->sources[i];
        buffer_print(out, "<tr><td>");
        html_string(out, source->path);
        buffer_print(out, "</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%.1f</td></tr>\n", source->files,
                     source->bytes, share(source->bytes, all));
    }
    buffer_print(out, "</table>\n");
}

enum { INPUTS_MOST = 100 };

static int print_inputs(Buffer *out, const char *path) {
    InputCounts counts;
    if (input_counts_read(&counts, path, INPUTS_MOST) < 0) return -1;
    buffer_print(out, counts.count ? "<table><tr><th>input</th><th>documents</th><th>tokens</th><th>%%</th></tr>\n"
                                   : "<p>The documents and tokens of each input are not known.</p>\n");
    for (size_t i = 0; i < counts.count; i++) {
        const InputCount *input = &counts.inputs[i];
        buffer_print(out, "<tr><td>");
        html_string(out, input->name ? input->name : "not known");
        buffer_print(out, "</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%.1f</td></tr>\n", input->documents,
                     input->tokens, 100 * input->share);
    }
    if (counts.count) buffer_print(out, "</table>\n");
    input_counts_close(&counts);
    return 0;
}

static int print_dataset(Buffer *out, const char *path) {
    DocumentLengths lengths[SPLIT_COUNT] = {{0}};
    TokenReader tokens = {0};
    int status = 0;
    for (int split = 0; status == 0 && split < SPLIT_COUNT; split++) {
        token_reader_close(&tokens);
        status = token_reader_open(&tokens, path, split);
        if (status == 0) status = document_lengths_read(&lengths[split], &tokens);
    }
    if (status == 0) {
        buffer_print(out, "<h2>");
        html_string(out, path);
        buffer_print(out, "</h2>\n");
        print_totals(out, lengths);
        print_histogram(out, "Training documents", &lengths[SPLIT_TRAIN]);
        print_histogram(out, "Validation documents", &lengths[SPLIT_VAL]);
        print_sources(out, &tokens.dataset);
        status = print_inputs(out, path);
    }
    token_reader_close(&tokens);
    return status;
}

int dataset_page_write(const char *path, char **datasets, int count) {
    Buffer page = {0};
    int status = 0;
    html_begin(&page, "Datasets");
    for (int i = 0; status == 0 && i < count; i++) status = print_dataset(&page, datasets[i]);
    buffer_print(&page, "</html>\n");
    if (status == 0) status = file_write_over(path, (Bytes){page.data, page.size}, strlen("<!doctype html>"));
    buffer_close(&page);
    return status;
}
