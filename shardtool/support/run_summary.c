// The summary of a tokenize run, as lines on stderr and as a JSON object on standard output.
#include "shardtool/support/run_summary.h"
#include "common/id_array.h"
#include "common/json_write.h"
#include "common/log.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static uint64_t peak_memory(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (uint64_t)usage.ru_maxrss * 1024;
}

// The counts that this run has added to the dataset that it appends to, or else all counts.
typedef struct {
    uint64_t documents, tokens[SPLIT_COUNT], source_bytes;
} Added;

static Added added(const Summary *summary) {
    const Dataset *now = summary->dataset, *base = summary->base;
    Added sums = {.source_bytes = now->source_bytes - (base ? base->source_bytes : 0)};
    for (int split = 0; split < SPLIT_COUNT; split++) {
        sums.documents += now->documents[split] - (base ? base->documents[split] : 0);
        sums.tokens[split] = now->tokens[split] - (base ? base->tokens[split] : 0);
    }
    return sums;
}

static void print_json(const Summary *summary, double seconds) {
    const Dataset *dataset = summary->dataset;
    const PipelineResult *result = summary->result;
    const double train = (double)dataset->tokens[SPLIT_TRAIN], val = (double)dataset->tokens[SPLIT_VAL];
    const double all = train + val > 0 ? train + val : 1;
    const uint64_t bytes = dataset_bytes(dataset, SPLIT_TRAIN) + dataset_bytes(dataset, SPLIT_VAL);
    Buffer out = {0};
    json_add_number(&out, "documents", dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL]);
    json_add_number(&out, "train_tokens", dataset->tokens[SPLIT_TRAIN]);
    json_add_number(&out, "val_tokens", dataset->tokens[SPLIT_VAL]);
    json_add_real(&out, "val_share", val / all, 6);
    json_add_number(&out, "source_bytes", dataset->source_bytes);
    json_add_number(&out, "bytes", bytes);
    const Added sums = added(summary);
    json_add_number(&out, "added_documents", sums.documents);
    json_add_number(&out, "added_train_tokens", sums.tokens[SPLIT_TRAIN]);
    json_add_number(&out, "added_val_tokens", sums.tokens[SPLIT_VAL]);
    json_add_number(&out, "added_source_bytes", sums.source_bytes);
    json_add_real(&out, "ratio", train + val > 0 ? (double)bytes / (id_bytes(dataset->vocab_size) * all) : 0, 4);
    json_add_key(&out, "inputs");
    buffer_print(&out, "{");
    const char *name;
    for (unsigned row = 0; (name = input_format_name(row)); row++)
        if (source_options.inputs_read[row]) json_add_number(&out, name, source_options.inputs_read[row]);
    buffer_print(&out, "}");
    json_add_bool(&out, "continued", summary->continued);
    json_add_bool(&out, "full", result->is_full);
    json_add_number(&out, "skipped", source_options.skips.count);
    json_add_number(&out, "null_texts", source_options.skips.nulls);
    json_add_number(&out, "left_out", source_options.left_out);
    json_add_number(&out, "left_out_files", source_options.about);
    json_add_number(&out, "replaced", result->replaced);
    json_add_number(&out, "replaced_inputs", result->replaced_inputs);
    json_add_key(&out, "replaced_in");
    buffer_print(&out, "[");
    for (size_t i = 0; i < REPLACED_INPUTS_MAX && i < result->replaced_inputs; i++) {
        char path[PATH_MAX_BYTES];
        buffer_print(&out, "%s", i ? "," : "");
        json_add_field(&out, "path",
                       input_path(summary->inputs, &summary->inputs->files[result->replaced_in[i].file], path));
        json_add_number(&out, "record", result->replaced_in[i].record);
        if (*result->replaced_in[i].member) {
            json_add_field(&out, "member", result->replaced_in[i].member);
            json_add_number(&out, "member_record", result->replaced_in[i].member_record);
        }
        json_add_number(&out, "places", result->replaced_in[i].places);
        buffer_print(&out, "}");
    }
    buffer_print(&out, "]");
    json_add_real(&out, "seconds", seconds, 3);
    json_add_number(&out, "peak_memory", peak_memory());
    printf("%.*s}\n", (int)out.size, (const char *)out.data);
    buffer_close(&out);
}

// "41 jsonl, 2 text"
static void list_inputs(Buffer *out) {
    const char *name;
    for (unsigned row = 0; (name = input_format_name(row)); row++)
        if (source_options.inputs_read[row])
            buffer_print(out, "%s%" PRIu64 " %s", out->size ? ", " : "", source_options.inputs_read[row], name);
    if (!out->size) buffer_print(out, "no inputs");
    buffer_add(out, "", 1);
}

// The option that cuts plain text into more documents.
static const char *more_documents(void) {
    const char *name;
    bool is_text = false;
    for (unsigned row = 0; (name = input_format_name(row)); row++)
        is_text = is_text || (source_options.inputs_read[row] && !strcmp(name, "text"));
    if (!is_text || source_options.docs == DOCS_LINES) return "";
    return source_options.docs == DOCS_FILE ? ": --docs paragraphs or lines makes more of the text"
                                            : ": --docs lines makes more of the text";
}

static void log_small_split(const Summary *summary, uint64_t documents) {
    enum { SMALL_TOKENS = 8192, FEW_DOCUMENTS = 20 };
    const uint64_t train = summary->dataset->tokens[SPLIT_TRAIN], val = summary->dataset->tokens[SPLIT_VAL];
    if (!(summary->val > 0) || summary->dataset->part || (train && val >= SMALL_TOKENS))
        return; // merge joins the parts
    if (documents < FEW_DOCUMENTS)
        log_line("%" PRIu64 " document%s as a whole (%" PRIu64 " train and %" PRIu64 " val tokens)%s", documents,
                 documents == 1 ? " goes to one split" : "s go to one split each", train, val, more_documents());
    else
        log_line("the %s split has only %" PRIu64 " tokens with --val %g: choose a %s share (equal documents are in "
                 "the same split)",
                 train ? "validation" : "training", train ? val : train, summary->val, train ? "larger" : "smaller");
}

// The keys beside conversations that no line of the run needed.
static void log_ignored(void) {
    Buffer keys = {0};
    const StringList *ignored = &source_options.ignored;
    for (size_t i = 0; i < ignored->count; i++) buffer_print(&keys, "%s%s", i ? ", " : "", ignored->items[i]);
    if (!keys.size) return;
    text_printable((char *)keys.data);
    log_line("ignored keys: %s%s", (const char *)keys.data, ignored->count < STRING_LIST_MAX ? "" : ", ...");
    buffer_close(&keys);
}

// "'a.txt' (200), 'b.tar' (42 from record 7 on, first in 'c.jsonl' record 2) and 3 more inputs"
static void list_replaced(const Summary *summary, Buffer *out) {
    enum { NAMED = 4 };
    const PipelineResult *result = summary->result;
    for (size_t i = 0; i < NAMED && i < result->replaced_inputs; i++) {
        char path[PATH_MAX_BYTES];
        input_path(summary->inputs, &summary->inputs->files[result->replaced_in[i].file], path);
        text_printable(path);
        const ReplacedInput *input = &result->replaced_in[i];
        buffer_print(out, "%s'%s' (%" PRIu64, i ? ", " : ": ", path, input->places);
        if (input->record) buffer_print(out, " from record %" PRIu64 " on", input->record);
        if (*input->member) buffer_print(out, ", first in '%s'", input->member);
        if (input->member_record) buffer_print(out, " record %" PRIu64, input->member_record);
        buffer_print(out, ")");
    }
    const uint64_t more = result->replaced_inputs > NAMED ? result->replaced_inputs - NAMED : 0;
    if (more) buffer_print(out, " and %" PRIu64 " more input%s", more, PLURAL(more));
}

void summary_print(const Summary *summary) {
    const Dataset *dataset = summary->dataset;
    const PipelineResult *result = summary->result;
    const uint64_t documents = dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL];
    const Added sums = added(summary);
    const uint64_t before = dataset->source_bytes - sums.source_bytes;
    const uint64_t read = dataset->source_bytes - (before > summary->done_before ? before : summary->done_before);
    const double seconds = (double)(clock_ns() - summary->started_ns) * 1e-9;
    char bytes[16], memory[16];
    Buffer inputs = {0};
    list_inputs(&inputs);
    log_line("%" PRIu64 " document%s, %" PRIu64 " train and %" PRIu64
             " val tokens from %s of text (%s%s) in %.1f s, %s of memory: %.1f MB/s of text",
             sums.documents, PLURAL(sums.documents), sums.tokens[SPLIT_TRAIN], sums.tokens[SPLIT_VAL],
             human_bytes(bytes, (double)sums.source_bytes), (const char *)inputs.data,
             summary->continued ? " in this run" : "", seconds, human_bytes(memory, (double)peak_memory()),
             seconds > 0 ? (double)read / seconds * 1e-6 : 0);
    buffer_close(&inputs);
    if (summary->base)
        log_line("the dataset now has %" PRIu64 " document%s, %" PRIu64 " train and %" PRIu64 " val tokens", documents,
                 PLURAL(documents), dataset->tokens[SPLIT_TRAIN], dataset->tokens[SPLIT_VAL]);
    if (summary->json) print_json(summary, seconds);
    if (result->is_full)
        log_line("ended at --max-tokens %" PRIu64 ": documents after that are left out", summary->max_tokens);
    if (source_options.left_out)
        log_line("%" PRIu64 " document%s not meet --where and %s left out", source_options.left_out,
                 source_options.left_out == 1 ? " does" : "s do", source_options.left_out == 1 ? "is" : "are");
    log_ignored();
    for (size_t i = 0; i < source_options.keep.count; i++)
        if (!(source_options.keep_found >> i & 1))
            log_warn("no document that was read has a value of --keep '%s'%s", source_options.keep.items[i],
                     strchr(source_options.keep.items[i], ',') ? ": repeat --keep for each key" : "");
    log_skips();
    inputs = (Buffer){0};
    list_replaced(summary, &inputs);
    log_replaced(result->replaced, sums.source_bytes, inputs.size ? (const char *)inputs.data : "");
    buffer_close(&inputs);
    log_small_split(summary, documents);
}
