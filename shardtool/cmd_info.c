// info: prints the headers and totals of shards and datasets, or what is in them.
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "dataset/lineage.h"
#include "dataset/provenance_reader.h"
#include "shardtool/print/id_counts.h"
#include "shardtool/print/lengths_printer.h"
#include "shardtool/similar/part_files.h"
#include "shardtool/support/option_rows.h"
#include "shardtool/support/path_visit.h"
#include <stdio.h>

static RowPrinter rows;
static bool shards, documents, frames, lengths, sources, ids;
static bool several;       // paths are named
static const char *listed; // the one whose documents are listed
static int split;

static const Option options[] = {
    {OPT_FLAG, "shards", &shards, NULL, "list the shards"},
    {OPT_FLAG, "docs", &documents, NULL,
     "list the documents of one split: number, first token, tokens with end-of-text"},
    {OPT_FLAG, "frames", &frames, NULL, "list the compressed frames of the shards of one split"},
    {OPT_FLAG, "lengths", &lengths, NULL,
     "count the documents of each split, and their lengths in tokens, with a histogram"},
    {OPT_FLAG, "sources", &sources, NULL,
     "list the arguments of the command that made a dataset, then its inputs with documents and tokens"},
    {OPT_FLAG, "ids", &ids, NULL, "count how often each id occurs in one split, the most frequent first"},
    ROW_SPLIT(&split),
    ROW_JSON(&rows),
    REMOTE_ROWS,
    ROW_END,
};

static void add_number(const char *key, uint64_t value) { row_add_number(&rows, key, 0, value); }

static void add_sizes(uint64_t source_bytes, uint64_t bytes, uint64_t tokens, uint32_t vocab_size) {
    add_number("source_bytes", source_bytes);
    add_number("bytes", bytes);
    const double raw = (double)id_bytes(vocab_size) * (double)tokens;
    row_add_ratio(&rows, "ratio", tokens ? (double)bytes / raw : 0, 4, " of the raw ids");
}

static void add_shard(const ShardFile *shard) {
    row_add_text(&rows, "kind", 0, "shard");
    add_number("tokens", shard->tokens);
    add_number("documents", shard->documents);
    add_sizes(shard->source_bytes, shard->map.size, shard->tokens, shard->vocab_size);
    add_number("frames", shard->frame_count);
    add_number("frame_tokens", shard->frame_tokens);
    add_number("members", shard->member_count);
    add_number("vocab_size", shard->vocab_size);
    add_number("eot_id", shard->eot_id);
    row_add_hex(&rows, "vocab_fp", shard->vocab_fp, 32);
    row_add_hex(&rows, "params_fp", shard->params_fp, 32);
    row_add_hex(&rows, "content_hash", shard->content_hash, 32);
}

// A tree of commands, as an object or with a line for each.
static void add_history(const Dataset *dataset) {
    Buffer lines = {0};
    if (rows.json && dataset->history) {
        json_add_key(&rows.row, "history");
        buffer_print(&rows.row, "%s", dataset->history);
    } else {
        lineage_print(dataset, "              ", &lines);
        if (lines.size) buffer_print(&rows.row, "%-13s %.*s", "history", (int)lines.size, (const char *)lines.data);
    }
    buffer_close(&lines);
}

static void add_dataset(const Dataset *dataset) {
    row_add_text(&rows, "kind", 0, "dataset");
    add_number("train_tokens", dataset->tokens[SPLIT_TRAIN]);
    add_number("val_tokens", dataset->tokens[SPLIT_VAL]);
    add_number("train_documents", dataset->documents[SPLIT_TRAIN]);
    add_number("val_documents", dataset->documents[SPLIT_VAL]);
    add_number("train_shards", dataset->shard_count[SPLIT_TRAIN]);
    add_number("val_shards", dataset->shard_count[SPLIT_VAL]);
    add_sizes(dataset->source_bytes, dataset_bytes(dataset, SPLIT_TRAIN) + dataset_bytes(dataset, SPLIT_VAL),
              dataset->tokens[SPLIT_TRAIN] + dataset->tokens[SPLIT_VAL], dataset->vocab_size);
    add_number("vocab_size", dataset->vocab_size);
    add_number("eot_id", dataset->eot_id);
    row_add_text(&rows, "params", 0, dataset->params);
    add_history(dataset);
    row_add_hex(&rows, "fingerprint", dataset->fingerprint, 32);
    row_add_hex(&rows, "vocab_fp", dataset->vocab_fp, 32);
}

static int print_totals(const char *path, TokenReader *tokens) {
    row_begin(&rows, "path", path);
    if (tokens->path)
        add_shard(&tokens->shard);
    else
        add_dataset(&tokens->dataset);
    row_end(&rows);
    return 0;
}

static void print_shard(const char *path, uint64_t tokens, uint64_t document_count, uint64_t bytes) {
    row_begin(&rows, "path", path);
    row_add_number(&rows, "tokens", 14, tokens);
    row_add_number(&rows, "documents", 12, document_count);
    row_add_number(&rows, "bytes", 14, bytes);
    row_end(&rows);
}

static int list_shards(const char *path, TokenReader *tokens) {
    for (uint64_t i = 0; tokens->path && i < tokens->shard.member_count; i++) {
        const Shard *member = &tokens->shard.members[i];
        print_shard(path, member->tokens, member->documents, member->end - member->offset);
    }
    for (int s = 0; !tokens->path && s < SPLIT_COUNT; s++)
        for (uint64_t i = 0; i < tokens->dataset.shard_count[s]; i++) {
            const DatasetShard *shard = &tokens->dataset.shards[s][i];
            print_shard(shard->path, shard->tokens, shard->documents, shard->bytes);
        }
    return 0;
}

// The last column of a document: where it came from.
static const char *place_text(Buffer *out, const Document *document, Bytes row) {
    out->size = 0;
    const char *without = !document->has_end ? "(no end-of-text)" : document->is_cut ? "(no beginning)" : NULL;
    if (without) buffer_print(out, row.size ? "%s " : "%s", without);
    provenance_add_text(out, row);
    if (!out->size) return NULL;
    buffer_add(out, "", 1);
    return (const char *)out->data;
}

static int print_document(void *context, const Document *document) {
    static Buffer place;
    Bytes row;
    if (provenance_at(context, document->number, &row) < 0) return -1;
    row_begin(&rows, "dataset", !rows.json ? place_text(&place, document, row) : several ? listed : NULL);
    row_add_number(&rows, "document", 12, document->number);
    row_add_number(&rows, "first", 14, document->first);
    row_add_number(&rows, "tokens", 12, document->tokens);
    if (rows.json) json_add_bool(&rows.row, "ends", document->has_end), provenance_add_json(&rows.row, "", row);
    row_end(&rows);
    return 0;
}

static int list_documents(const char *path, TokenReader *tokens) {
    listed = path;
    ProvenanceReader places = {.dataset = &tokens->dataset, .split = tokens->split};
    const int status = document_reader_visit(tokens, print_document, &places);
    provenance_reader_close(&places);
    return status;
}

static void list_frames_of(const ShardFile *shard) {
    for (uint64_t i = 0; i < shard->frame_count; i++) {
        const ShardFrame *frame = &shard->frames[i];
        char checksum[9];
        snprintf(checksum, sizeof checksum, "%08x", frame->checksum);
        row_begin(&rows, "shard", rows.json ? shard->path : NULL);
        row_add_number(&rows, "frame", 8, i);
        row_add_number(&rows, "offset", 14, frame->offset);
        row_add_number(&rows, "bytes", 10, frame->bytes);
        row_add_number(&rows, "first", 14, frame->first);
        row_add_number(&rows, "tokens", 8, frame->tokens);
        row_add_text(&rows, "xxh64", 8, checksum);
        row_end(&rows);
    }
}

static int list_frames(const char *path, TokenReader *tokens) {
    (void)path;
    for (uint64_t i = 0; i < token_reader_shards(tokens); i++) {
        const ShardFile *shard = token_reader_shard(tokens, i);
        if (!shard) return -1;
        if (!rows.json && !tokens->path) printf("%s\n", shard->path);
        if (!rows.json) printf("   frame         offset      bytes          first   tokens    xxh64\n");
        list_frames_of(shard);
    }
    return 0;
}

static int print_lengths(const char *path, TokenReader *tokens) { return lengths_print(&rows, path, tokens); }

static void list_inputs(const char *path, const InputCounts *counts) {
    if (!rows.json && counts->count) printf("\n   documents         tokens      %%  input of its documents\n");
    for (size_t i = 0; i < counts->count; i++) {
        const InputCount *input = &counts->inputs[i];
        char percent[16];
        snprintf(percent, sizeof percent, "%.1f", 100 * input->share);
        row_begin(&rows, "input", input->name || rows.json ? input->name : "not known");
        if (rows.json) row_add_text(&rows, "dataset", 0, path);
        row_add_number(&rows, "documents", 12, input->documents);
        row_add_number(&rows, "tokens", 14, input->tokens);
        if (rows.json) row_add_ratio(&rows, "share", input->share, 4, "");
        if (!rows.json) row_add_text(&rows, "%", 6, percent);
        row_end(&rows);
    }
}

// A source with its equals behind it, as parts of a run have them; false if there is an equal one before it.
static bool join_sources(const Dataset *dataset, uint64_t number, DatasetSource *joined) {
    *joined = dataset->sources[number];
    for (uint64_t i = 0; i < dataset->source_count; i++) {
        const DatasetSource *source = &dataset->sources[i];
        if (i == number || strcmp(source->path, joined->path) != 0) continue;
        if (i < number) return false;
        joined->files += source->files, joined->bytes += source->bytes;
    }
    return true;
}

// The arguments of the command that made the dataset, and the inputs of its documents.
static int list_sources(const char *path, TokenReader *tokens) {
    InputCounts counts;
    if (tokens->path) {
        log_line("'%s' is a shard alone, which has no sources: name its dataset", path);
        return 0;
    }
    if (!rows.json) printf("       files          bytes  argument of the command that made '%s'\n", path);
    for (uint64_t i = 0; i < tokens->dataset.source_count; i++) {
        DatasetSource source;
        if (!join_sources(&tokens->dataset, i, &source)) continue;
        row_begin(&rows, "source", source.path);
        if (rows.json) row_add_text(&rows, "dataset", 0, path);
        row_add_number(&rows, "files", 12, source.files);
        if (!strcmp(source.path, "-"))
            row_add_none(&rows, "bytes", 14);
        else
            row_add_number(&rows, "bytes", 14, source.bytes);
        row_end(&rows);
    }
    if (input_counts_read(&counts, path, SIZE_MAX) < 0) return -1;
    if (!counts.count) log_line("'%s' has no tables of documents: those of each input are not known", path);
    list_inputs(path, &counts);
    input_counts_close(&counts);
    return 0;
}

static IdCounts *id_counts;
static int count_ids(const char *path, TokenReader *tokens) { return id_counts_add(id_counts, path, tokens); }

typedef int Visit(const char *path, TokenReader *tokens);

// What is printed, by its option.
static const struct View {
    const bool *option;
    Visit *visit;
    int key_width; // of a list; 0: a table
    const char *heading;
} views[] = {
    {&shards, list_shards, 0, "        tokens    documents          bytes  shard\n"},
    {&documents, list_documents, 0, "    document          first       tokens\n"},
    {&frames, list_frames, 0, ""},
    {&lengths, print_lengths, 16, ""},
    {&sources, list_sources, 0, ""},
    {&ids, count_ids, 0, ""},
    {&(const bool){true}, print_totals, 13, ""}, // without an option
};

static int visit_path(void *view, const char *path, TokenReader *tokens) {
    return ((const struct View *)view)->visit(path, tokens);
}

static int print_ids(int count, char **arguments, const struct View *view) {
    if (paths_check_vocabulary(count, arguments) < 0) return -1;
    id_counts = id_counts_open();
    const int status = paths_visit(count, arguments, split, visit_path, (void *)(uintptr_t)view);
    if (status == 0) id_counts_print(id_counts, &rows);
    id_counts_close(id_counts);
    return status;
}

static int run(int count, char **arguments) {
    if (shards + documents + frames + lengths + sources + ids > 1)
        return fail(EX_USAGE, "--shards, --docs, --frames, --lengths, --sources and --ids exclude each other");
    const struct View *view = views;
    while (!*view->option) view++;
    rows.key_width = view->key_width, several = count > 1;
    if (ids) return print_ids(count, arguments, view);
    if (!rows.json && count) printf("%s", view->heading);
    const int status = paths_visit(count, arguments, lengths ? SPLIT_ALL : split, visit_path, (void *)(uintptr_t)view);
    return status < 0 && count == 1 && err_code() == EX_NOINPUT ? part_set_fail_in(arguments[0]) : status;
}

const Command shardtool_info = {"info",  "PATH...", "print the totals of shards and datasets, or list what is in them",
                                options, run,       NULL};
