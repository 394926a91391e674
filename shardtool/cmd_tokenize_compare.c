// Compares a tokenize run with the dataset that its directory holds already.
#include "shardtool/cmd_tokenize_compare.h"
#include "common/err.h"
#include "common/log.h"

static const char REPLACE[] = "choose another directory, or replace it with --force";
static const char REPEAT[] = "--append needs the options with which the dataset was made";

// Finds the first "key=value" of two option lines that differs.
static int fail_params(const Dataset *old, const char *params, const char *advice) {
    const char *a = old->params, *b = params;
    for (;;) {
        size_t a_length = strcspn(a, ";"), b_length = strcspn(b, ";");
        if (a_length != b_length || memcmp(a, b, a_length) || !a[a_length] || !b[b_length])
            return fail(EX_USAGE, "'%s' was made with %.*s, this run has %.*s: %s", old->path, (int)a_length, a,
                        (int)b_length, b, advice);
        a += a_length + 1, b += b_length + 1;
    }
}

static int fail_source(const Dataset *old, const char *what, const char *path) {
    return fail(EX_USAGE, "'%s' was made from other inputs: '%s' %s; %s", old->path, path, what, REPLACE);
}

static int compare_sources(const Dataset *old, const Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->argument_count || i < old->source_count; i++) {
        if (i == inputs->argument_count) return fail_source(old, "is missing from this command", old->sources[i].path);
        const InputArgument *now = &inputs->arguments[i];
        if (now->stream) return fail_source(old, "is a stream and cannot be compared", now->path);
        if (i == old->source_count) return fail_source(old, "is new", now->path);
        const DatasetSource *then = &old->sources[i];
        if (!memcmp(now->digest, then->digest, sizeof now->digest)) continue; // it covers the path
        int order = strcmp(now->path, then->path);
        if (order > 0) return fail_source(old, "is missing from this command", then->path);
        return fail_source(old, order < 0 ? "is new" : "has changed", now->path);
    }
    return 0;
}

int compare_finished(const char *directory, const char *params, const ShardParams *shard_params, const Inputs *inputs) {
    Dataset old;
    if (dataset_open(&old, directory) < 0) return fail_in("the directory already holds a dataset; --force replaces it");
    int status = 0;
    if (memcmp(old.vocab_fp, shard_params->vocab_fp, 32))
        status = fail(EX_USAGE, "'%s' was made with another vocabulary", directory);
    else if (strcmp(old.params, params))
        status = fail_params(&old, params, REPLACE);
    else
        status = compare_sources(&old, inputs);
    dataset_close(&old);
    return status < 0 ? -1 : 1;
}

static bool has_source(const Dataset *dataset, const InputArgument *argument) {
    for (uint64_t i = 0; !argument->stream && i < dataset->source_count; i++)
        if (!memcmp(dataset->sources[i].digest, argument->digest, sizeof argument->digest)) return true;
    return false;
}

int compare_base(const Dataset *base, const char *params, const ShardParams *shard_params, const Inputs *inputs) {
    if (memcmp(base->vocab_fp, shard_params->vocab_fp, 32))
        return fail(EX_USAGE, "'%s' was made with another vocabulary", base->path);
    if (strcmp(base->params, params)) return fail_params(base, params, REPEAT);
    uint64_t known = 0;
    const char *twice = NULL, *last = base->source_count ? base->sources[base->source_count - 1].path : "";
    for (uint64_t i = 0; i < inputs->argument_count; i++)
        if (has_source(base, &inputs->arguments[i])) known++, twice = inputs->arguments[i].path;
    if (known == inputs->argument_count) return 1;
    if (known) return fail(EX_USAGE, "'%s' holds '%s' already: name only new inputs", base->path, twice);
    if (strcmp(last, inputs->arguments[0].path) > 0)
        log_line("the documents of '%s' come after those of '%s', where one run over both would sort them by name",
                 inputs->arguments[0].path, last);
    return 0;
}
