// Writes datasets from ids: opens the directory, feeds the shard sink, writes the manifest.
#include "shardtool/support/output.h"
#include "common/err.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/source_overlap.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

OutputOptions output_options = {.shard_tokens = 128 << 20};

// Everything that determines the bytes of the shards, beside the inputs, in one line; params_fp is its hash.
static void set_params(Output *output, const OutputPlan *plan) {
    ShardSinkOptions *shards = &output->shards;
    uint64_t frame_tokens = plan->params.frame_tokens,
             shard_tokens = output->to_stdout ? 0 : output_options.shard_tokens;
    shard_tokens += (frame_tokens - shard_tokens % frame_tokens) % frame_tokens;
    shards->threads = (unsigned)output_options.threads, shards->shard_tokens = shard_tokens;
    shards->params = plan->params;
    buffer_print(&output->line, "%s;%s%sframe_tokens=%" PRIu64 ";codec=", plan->command, plan->settings,
                 *plan->settings ? ";" : "", frame_tokens);
    shard_level_print(&output->line, plan->params.level);
    buffer_print(&output->line, ";shard_tokens=%" PRIu64 "\n", shard_tokens);
    sha256(output->line.data, output->line.size, shards->params.params_fp);
    output->line.data[output->line.size - 1] = '\0'; // drop the line end, which only the hash includes
}

static void begin_dataset(Output *output, const OutputPlan *plan, const char *path) {
    Dataset *dataset = &output->dataset;
    const ShardParams *params = &output->shards.params;
    dataset_begin(dataset, path);
    dataset->params = (const char *)output->line.data;
    dataset->history = (const char *)output->history.data;
    dataset->val = plan->val, dataset->val_seed = plan->val_seed;
    dataset->vocab_size = params->vocab_size, dataset->eot_id = params->eot_id;
    memcpy(dataset->vocab_fp, params->vocab_fp, 32);
    memcpy(dataset->params_fp, params->params_fp, 32);
    for (uint64_t i = 0; i < plan->inputs->argument_count; i++) {
        const InputArgument *argument = &plan->inputs->arguments[i];
        DatasetSource source = {.path = argument->path, .files = argument->files, .bytes = argument->bytes};
        memcpy(source.digest, argument->digest, sizeof source.digest);
        dataset_add_source(dataset, &source);
    }
}

// Whether this run would write the finished dataset again: same command, same inputs.
static int is_same(const Output *output, const char *path, bool *same) {
    Dataset old;
    if (dataset_open(&old, path) < 0) return fail_in("the directory already holds a dataset; --force replaces it");
    const Dataset *new = &output->dataset;
    *same = !strcmp(old.params, new->params) && old.source_count == new->source_count && !strcmp(old.val, new->val) &&
            !memcmp(old.vocab_fp, new->vocab_fp, 32);
    for (uint64_t i = 0; *same && i < old.source_count; i++)
        *same = !memcmp(old.sources[i].digest, new->sources[i].digest, sizeof old.sources[i].digest);
    dataset_close(&old);
    return 0;
}

static int open_directory(Output *output, const OutputPlan *plan, const char *path) {
    for (uint64_t i = 0; i < plan->inputs->argument_count; i++)
        if (refuse_as_output(plan->inputs->arguments[i].path, path) < 0) return -1;
    if (dataset_build_open(&output->build, path) < 0) return -1;
    begin_dataset(output, plan, path);
    bool same = false;
    if (output->build.has_manifest && !output_options.force) {
        if (is_same(output, path, &same) < 0) return -1;
        if (!same)
            return fail(EX_CREATE, "'%s' already holds another dataset: choose another directory, or --force", path);
        log_line("'%s' is already complete", path);
        return dataset_vocabulary_keep(path, output->vocab) < 0 ? -1 : 1; // if that run was killed before it did
    }
    dataset_close(&output->dataset);
    if (dataset_build_start(&output->build, output_options.force) < 0 || dataset_build_clear(&output->build) < 0)
        return -1;
    begin_dataset(output, plan, output->build.target);
    output->shards.build = &output->build;
    return 0;
}

// The manifest counts the bytes of the documents' text, if the vocabulary is known.
static void load_id_bytes(Output *output) {
    if (!output->vocab) return;
    output->id_lengths = allocate_zeroed(IDS_MAX, sizeof *output->id_lengths);
    for (unsigned id = 0; id < vocab_size(output->vocab); id++)
        if (!vocab_is_special(output->vocab, id))
            output->id_lengths[id] = (uint16_t)vocab_bytes(output->vocab, id).size;
}

int output_open(Output *output, const char *path, const OutputPlan *plan) {
    *output = (Output){.vocab = plan->vocab};
    if (!path) return fail(EX_USAGE, "missing -o DIR (-o - writes one shard to standard output)");
    if (jobs_check(output_options.threads) < 0) return -1;
    if (output_options.shard_tokens < 1) return fail(EX_USAGE, "--shard-tokens must be at least 1");
    output->to_stdout = !strcmp(path, "-");
    if (output->to_stdout && cli_refuse_terminal() != 0) return -1;
    if (!output->vocab && dataset_vocabulary_of(&output->vocab, plan->inputs, plan->params.vocab_fp) < 0) return -1;
    if (!output->vocab && !output->to_stdout)
        log_warn(
            "no input has the file of the vocabulary of its ids: before '%s' can be decoded, merged or trained on, put "
            "its " CHARACTERS_FILE " or " VOCAB_FILE " there",
            path);
    load_id_bytes(output);
    set_params(output, plan);
    lineage_make(&output->history, plan->command, plan->settings, plan->history);
    if (output->to_stdout)
        begin_dataset(output, plan, path); // collects the totals only
    else {
        int status = open_directory(output, plan, path);
        if (status) return status;
    }
    output->sink = shard_sink_open(&output->shards, plan->inputs, &output->dataset);
    if (!output->sink) return -1;
    progress_start(&output->progress, "writing", "tok", plan->tokens);
    return 0;
}

int output_add(Output *output, int split, const void *ids, size_t count, InputPosition position) {
    const unsigned width = id_bytes(output->shards.params.vocab_size);
    const uint8_t *from = ids;
    uint32_t eot = output->shards.params.eot_id;
    while (count) {
        size_t take = 0; // up to the end of a document
        uint64_t bytes = 0;
        bool has_end = false;
        while (take < count && !has_end) {
            const uint32_t id = id_at(from, take++, width);
            if (output->id_lengths) bytes += output->id_lengths[id];
            has_end = id == eot;
        }
        output->document_bytes += bytes;
        if (shard_sink_add(output->sink, split, from, take, position, has_end ? output->document_bytes : 0) < 0)
            return -1;
        if (has_end) output->document_bytes = 0;
        output->is_open[split] = !has_end;
        from += take * width, count -= take, output->added += take;
    }
    progress_update(&output->progress, output->added);
    return 0;
}

void output_row(Output *output, int split, Bytes row) { shard_sink_row(output->sink, split, row); }

int output_finish(Output *output) {
    int status = shard_sink_finish(output->sink);
    if (status == 0 && output->added == 0) status = fail(EX_NOINPUT, "no documents are left to write");
    if (status == 0 && !output->to_stdout) status = dataset_build_finish(&output->build, &output->dataset);
    if (status == 0 && !output->to_stdout) status = dataset_vocabulary_keep(output->build.directory, output->vocab);
    progress_finish(&output->progress);
    const Dataset *dataset = &output->dataset;
    uint64_t documents = dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL];
    if (status == 0)
        log_line("%" PRIu64 " document%s, %" PRIu64 " train and %" PRIu64 " val tokens", documents, PLURAL(documents),
                 dataset->tokens[SPLIT_TRAIN], dataset->tokens[SPLIT_VAL]);
    if (status == 0) output->build.target[0] = '\0'; // nothing to abandon
    return status;
}

void output_close(Output *output) {
    shard_sink_close(output->sink);
    if (output->build.target[0]) dataset_build_abandon(&output->build);
    dataset_build_close(&output->build);
    if (output->dataset.path) dataset_close(&output->dataset);
    buffer_close(&output->line);
    buffer_close(&output->history);
    free(output->id_lengths);
    vocab_close(output->vocab);
    *output = (Output){0};
}
