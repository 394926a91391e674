// Finds the shard and its table.
#include "dataset/provenance_reader.h"
#include "common/err.h"
#include "dataset/document_reader.h"
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>

int provenance_at(ProvenanceReader *reader, uint64_t document, Bytes *row) {
    *row = (Bytes){0};
    if (!reader->dataset->path) return 0;
    const DatasetShard *shards = reader->dataset->shards[reader->split];
    uint64_t shard = reader->shard, first = reader->first;
    if (document < first) shard = first = 0;
    while (shard < reader->dataset->shard_count[reader->split] && document >= first + shards[shard].documents)
        first += shards[shard++].documents;
    if (shard == reader->dataset->shard_count[reader->split])
        return fail(EX_DATA, "dataset '%s': document %" PRIu64 " is beyond those of the manifest: run verify",
                    reader->dataset->path, document);
    if (!reader->is_open || shard != reader->shard) {
        provenance_table_close(&reader->table);
        reader->is_open = false, reader->shard = shard, reader->first = first;
        if (!shards[shard].docs.bytes) return 0;
        dataset_docs_path(reader->path, reader->dataset->path, reader->split, shard);
        if (provenance_table_read(&reader->table, &reader->bytes, reader->path, &shards[shard].docs,
                                  shards[shard].documents) < 0)
            return -1;
        reader->is_open = true;
    }
    if (provenance_table_row(&reader->table, document - first, &reader->row) < 0) return -1;
    *row = (Bytes){reader->row.data, reader->row.size};
    return 0;
}

void provenance_reader_close(ProvenanceReader *reader) {
    provenance_table_close(&reader->table);
    buffer_close(&reader->bytes);
    buffer_close(&reader->row);
    *reader = (ProvenanceReader){0};
}

// ---- counts: by the full name of each input in a search tree, then joined by folders

typedef struct {
    InputCounts *counts;
    ProvenanceReader rows;
    void *tree;
    Buffer all; // InputCount *, in the tree
    InputCount *last, *unknown;
} CountPass;

static int by_name(const void *a, const void *b) {
    return strcmp(((const InputCount *)a)->name, ((const InputCount *)b)->name);
}

static InputCount *add_input(CountPass *pass, const char *name) {
    InputCount *input = arena_push(&pass->counts->arena, sizeof *input);
    buffer_add(&pass->all, &input, sizeof input);
    if (name) input->name = arena_copy_string(&pass->counts->arena, name);
    return input;
}

static InputCount *find_input(CountPass *pass, Bytes row) {
    Provenance read;
    if (!provenance_parse(row, &read)) {
        if (!pass->unknown) pass->unknown = add_input(pass, NULL);
        return pass->unknown;
    }
    if (pass->last && !strcmp(pass->last->name, read.input)) return pass->last;
    const InputCount wanted = {.name = read.input};
    InputCount *const *found = tfind(&wanted, &pass->tree, by_name);
    if (found) return pass->last = *found;
    pass->last = add_input(pass, read.input);
    if (!tsearch(pass->last, &pass->tree, by_name)) die(EX_MEMORY, "no memory for the names of inputs");
    return pass->last;
}

static int count_document(void *context, const Document *document) {
    CountPass *pass = context;
    Bytes row;
    if (provenance_at(&pass->rows, document->number, &row) < 0) return -1;
    InputCount *input = find_input(pass, row);
    input->documents++, input->tokens += document->tokens;
    return 0;
}

static int count_split(CountPass *pass, const char *path, int split) {
    TokenReader tokens = {0};
    int status = token_reader_open(&tokens, path, split);
    pass->rows = (ProvenanceReader){.dataset = &tokens.dataset, .split = split};
    if (status == 0) status = document_reader_visit(&tokens, count_document, pass);
    provenance_reader_close(&pass->rows);
    token_reader_close(&tokens);
    return status;
}

// The bytes of the folder that all names share, with its slash.
static size_t shared_folder(InputCount *const *all, size_t count) {
    const char *first = NULL;
    size_t shared = 0;
    for (size_t i = 0; i < count; i++) {
        if (!all[i]->name) continue;
        if (!first) first = all[i]->name, shared = strlen(first);
        for (size_t k = 0; k < shared; k++)
            if (all[i]->name[k] != first[k]) shared = k;
    }
    while (shared && first[shared - 1] != '/') shared--;
    return shared;
}

static int by_folder(const void *a, const void *b) {
    const InputCount *one = a, *other = b;
    return one->name && other->name ? by_name(a, b) : !one->name - !other->name;
}

static int by_tokens(const void *a, const void *b) {
    const InputCount *one = a, *other = b;
    return one->tokens == other->tokens ? by_folder(a, b) : one->tokens < other->tokens ? 1 : -1;
}

static void add(InputCount *sum, const InputCount *part) {
    sum->documents += part->documents, sum->tokens += part->tokens;
}

static void join_folders(InputCounts *counts, InputCount *const *all, size_t count) {
    const size_t shared = shared_folder(all, count);
    counts->inputs = arena_push(&counts->arena, (count + !count) * sizeof *counts->inputs);
    for (size_t i = 0; i < count; i++) {
        counts->inputs[i] = *all[i];
        if (all[i]->name)
            counts->inputs[i].name =
                arena_print(&counts->arena, "%.*s", (int)(shared + strcspn(all[i]->name + shared, "/")), all[i]->name);
    }
    qsort(counts->inputs, count, sizeof *counts->inputs, by_folder);
    for (size_t i = 0; i < count; i++) {
        InputCount *last = counts->count ? &counts->inputs[counts->count - 1] : NULL;
        if (last && !by_folder(last, &counts->inputs[i]))
            add(last, &counts->inputs[i]);
        else
            counts->inputs[counts->count++] = counts->inputs[i];
    }
    qsort(counts->inputs, counts->count, sizeof *counts->inputs, by_tokens);
}

static void finish(InputCounts *counts, size_t most, uint64_t tokens) {
    if (counts->count > most) {
        InputCount *others = &counts->inputs[most - 1];
        others->name = arena_print(&counts->arena, "%zu others", counts->count - most + 1);
        while (counts->count > most) add(others, &counts->inputs[--counts->count]);
    }
    for (size_t i = 0; i < counts->count; i++)
        counts->inputs[i].share = tokens ? (double)counts->inputs[i].tokens / (double)tokens : 0;
}

static bool has_tables(const Dataset *dataset) {
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset->shard_count[split]; i++)
            if (dataset->shards[split][i].docs.bytes) return true;
    return false;
}

static void leave(void *input) { (void)input; } // the arena frees it

int input_counts_read(InputCounts *counts, const char *path, size_t most) {
    CountPass pass = {.counts = counts};
    Dataset dataset;
    *counts = (InputCounts){0};
    if (dataset_open(&dataset, path) < 0) return -1;
    const uint64_t tokens = dataset.tokens[SPLIT_TRAIN] + dataset.tokens[SPLIT_VAL];
    const bool known = has_tables(&dataset);
    dataset_close(&dataset);
    int status = 0;
    for (int split = 0; known && status == 0 && split < SPLIT_COUNT; split++) status = count_split(&pass, path, split);
    if (known && status == 0) {
        join_folders(counts, (InputCount *const *)(void *)pass.all.data, pass.all.size / sizeof(InputCount *));
        finish(counts, most, tokens);
    }
    tdestroy(pass.tree, leave);
    buffer_close(&pass.all);
    if (status < 0) input_counts_close(counts);
    return status;
}

void input_counts_close(InputCounts *counts) {
    arena_close(&counts->arena);
    *counts = (InputCounts){0};
}
