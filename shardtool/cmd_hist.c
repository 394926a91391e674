// hist: counts how often each id occurs.
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/option_rows.h"
#include "shardtool/support/path_visit.h"
#include "shardtool/support/row_printer.h"
#include "shardtool/support/vocabulary_options.h"
#include "tokenizer/tokenizer.h"
#include <stdlib.h>

static RowPrinter rows;
static int split;
static uint64_t top;

static const Option options[] = {
    {OPT_SIZE, "n,top", &top, "N", "print the N most frequent ids, 0 = all"},
    ROW_SPLIT(&split),
    ROW_JSON(&rows),
    ROW_END,
};

typedef struct {
    uint64_t count;
    uint32_t id;
} Row;

static int most_first(const void *a, const void *b) {
    const Row *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

typedef struct {
    const Vocab *vocab; // of the first shard: GPT-2's, or the one in its dataset
    bool has_text;      // the shards are of this vocabulary; ids of another vocabulary are printed without their text
    Row ids[IDS_MAX];
} Histogram;

static int add_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    Histogram *histogram = context;
    for (size_t i = 0; i < count; i++) histogram->ids[id_at(ids, i, bytes)].count++;
    return 0;
}

static int open_vocabulary(Histogram *histogram, const char *path) {
    char file[PATH_MAX_BYTES];
    if (histogram->vocab) return 0;
    const bool is_kept = dataset_is(path) && dataset_vocabulary_in(file, path);
    histogram->vocab = is_kept ? vocabulary_path_open(file, NULL) : vocab_open();
    return histogram->vocab ? 0 : -1;
}

static int count_ids(void *context, const char *path, TokenReader *tokens) {
    Histogram *histogram = context;
    if (open_vocabulary(histogram, path) < 0) return -1;
    const ShardFile *shard = tokens->tokens ? token_reader_shard(tokens, 0) : NULL;
    if (shard && !vocab_has_fingerprint(histogram->vocab, shard->vocab_fp)) histogram->has_text = false;
    return token_reader_visit(tokens, 0, tokens->tokens, add_ids, histogram);
}

static void print_row(const Histogram *histogram, const Row *row) {
    const bool has_text = histogram->has_text && row->id < vocab_size(histogram->vocab);
    row_begin(&rows, NULL, NULL);
    row_add_number(&rows, "id", 5, row->id);
    row_add_number(&rows, "count", 12, row->count);
    row_add_quoted(&rows, "token", has_text ? vocab_bytes(histogram->vocab, row->id) : (Bytes){0});
    row_end(&rows);
}

static int run(int count, char **arguments) {
    static Histogram histogram; // 16 MiB of zeros, which the program's file does not hold
    histogram.has_text = true;
    int status = paths_check_vocabulary(count, arguments);
    if (status == 0) status = paths_visit(count, arguments, split, count_ids, &histogram);
    if (status == 0) {
        size_t used = 0;
        for (uint32_t i = 0; i < IDS_MAX; i++)
            if (histogram.ids[i].count) histogram.ids[used++] = (Row){histogram.ids[i].count, i};
        qsort(histogram.ids, used, sizeof *histogram.ids, most_first);
        for (uint64_t i = 0; i < used && (!top || i < top); i++) print_row(&histogram, &histogram.ids[i]);
    }
    vocab_close(histogram.vocab);
    return status;
}

const Command shardtool_hist = {"hist", "PATH...", "count how often each id occurs", options, run, NULL};
