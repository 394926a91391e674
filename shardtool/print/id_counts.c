// Counts of ids.
#include "shardtool/print/id_counts.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/vocabulary_options.h"
#include "tokenizer/tokenizer.h"
#include <stdlib.h>

typedef struct {
    uint64_t count;
    uint32_t id;
} Row;

static int most_first(const void *a, const void *b) {
    const Row *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

struct IdCounts {
    const Vocab *vocab; // of the first shard: GPT-2's, or the one in its dataset
    bool has_text;      // the shards are of this vocabulary; ids of another vocabulary are printed without their text
    Row ids[IDS_MAX];
};

static int add_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    IdCounts *counts = context;
    for (size_t i = 0; i < count; i++) counts->ids[id_at(ids, i, bytes)].count++;
    return 0;
}

IdCounts *id_counts_open(void) {
    IdCounts *counts = allocate_zeroed(1, sizeof *counts);
    counts->has_text = true;
    return counts;
}

void id_counts_close(IdCounts *counts) {
    vocab_close(counts->vocab);
    free(counts);
}

static int open_vocabulary(IdCounts *counts, const char *path) {
    char file[PATH_MAX_BYTES];
    if (counts->vocab) return 0;
    const bool is_kept = dataset_is(path) && dataset_vocabulary_in(file, path);
    counts->vocab = is_kept ? vocabulary_path_open(file, NULL) : vocab_open();
    return counts->vocab ? 0 : -1;
}

int id_counts_add(IdCounts *counts, const char *path, TokenReader *tokens) {
    if (open_vocabulary(counts, path) < 0) return -1;
    const ShardFile *shard = tokens->tokens ? token_reader_shard(tokens, 0) : NULL;
    if (shard && !vocab_has_fingerprint(counts->vocab, shard->vocab_fp)) counts->has_text = false;
    return token_reader_visit(tokens, 0, tokens->tokens, add_ids, counts);
}

static void print_row(const IdCounts *counts, const Row *row, RowPrinter *rows) {
    const bool has_text = counts->has_text && row->id < vocab_size(counts->vocab);
    row_begin(rows, NULL, NULL);
    row_add_number(rows, "id", 5, row->id);
    row_add_number(rows, "count", 12, row->count);
    row_add_quoted(rows, "token", has_text ? vocab_bytes(counts->vocab, row->id) : (Bytes){0});
    row_end(rows);
}

void id_counts_print(IdCounts *counts, RowPrinter *rows) {
    size_t used = 0;
    for (uint32_t i = 0; i < IDS_MAX; i++)
        if (counts->ids[i].count) counts->ids[used++] = (Row){counts->ids[i].count, i};
    qsort(counts->ids, used, sizeof *counts->ids, most_first);
    for (size_t i = 0; i < used; i++) print_row(counts, &counts->ids[i], rows);
}
