// The summary of a tokenize run, as lines on stderr and as a JSON object on standard output.
#include "shardtool/support/run_summary.h"
#include "common/log.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

static uint64_t stored_bytes(const Dataset *dataset) {
    uint64_t bytes = 0;
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset->shard_count[split]; i++) bytes += dataset->shards[split][i].bytes;
    return bytes;
}

static uint64_t peak_memory(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (uint64_t)usage.ru_maxrss * 1024;
}

static void print_json(const Summary *summary, double seconds) {
    const Dataset *dataset = summary->dataset;
    const PipelineResult *result = summary->result;
    uint64_t train = dataset->tokens[SPLIT_TRAIN], validation = dataset->tokens[SPLIT_VAL], all = train + validation;
    uint64_t bytes = stored_bytes(dataset);
    printf("{\"documents\":%" PRIu64 ",\"train_tokens\":%" PRIu64 ",\"val_tokens\":%" PRIu64
           ",\"val_share\":%.6f,\"source_bytes\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"ratio\":%.4f,\"inputs\":{",
           dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL], train, validation,
           all ? (double)validation / (double)all : 0, dataset->source_bytes, bytes,
           all ? (double)bytes / (2 * (double)all) : 0);
    const char *name, *comma = "";
    for (unsigned row = 0; (name = input_format_name(row)); row++)
        if (source_options.inputs_read[row])
            printf("%s\"%s\":%" PRIu64, comma, name, source_options.inputs_read[row]), comma = ",";
    printf("},\"continued\":%s,\"full\":%s,\"skipped\":%" PRIu64 ",\"replaced\":%" PRIu64
           ",\"seconds\":%.3f,\"peak_memory\":%" PRIu64 "}\n",
           summary->done_before ? "true" : "false", result->is_full ? "true" : "false", source_options.skips.count,
           result->replaced, seconds, peak_memory());
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

void summary_print(const Summary *summary) {
    const Dataset *dataset = summary->dataset;
    const PipelineResult *result = summary->result;
    uint64_t documents = dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL];
    double seconds = (double)(clock_ns() - summary->started_ns) * 1e-9, size = (double)dataset->source_bytes;
    char bytes[16], memory[16];
    Buffer inputs = {0};
    list_inputs(&inputs);
    log_line("%" PRIu64 " document%s, %" PRIu64 " train and %" PRIu64
             " val tokens from %s of text (%s%s) in %.1f s, %s of memory: %.1f MB/s",
             documents, PLURAL(documents), dataset->tokens[SPLIT_TRAIN], dataset->tokens[SPLIT_VAL],
             human_bytes(bytes, size), (const char *)inputs.data, summary->done_before ? " in this run" : "", seconds,
             human_bytes(memory, (double)peak_memory()),
             seconds > 0 ? (size - (double)summary->done_before) / seconds * 1e-6 : 0);
    buffer_close(&inputs);
    if (summary->json) print_json(summary, seconds);
    if (result->is_full)
        log_line("ended at --max-tokens %" PRIu64 ": documents after that are left out", summary->max_tokens);
    log_skips();
    log_replaced(result->replaced, dataset->source_bytes);
    if (summary->val > 0 && dataset->tokens[SPLIT_VAL] < 8192)
        log_line("the validation split has only %" PRIu64 " tokens with --val %g: choose a larger share",
                 dataset->tokens[SPLIT_VAL], summary->val);
}
