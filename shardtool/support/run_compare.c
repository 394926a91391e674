// Compares a tokenize run with the dataset that its directory holds already.
#include "shardtool/support/run_compare.h"
#include "common/err.h"
#include "common/log.h"
#include <stdio.h>
#include <sys/stat.h>

static const char REPLACE[] = "choose another directory, or replace it with --force";
static const char REPEAT[] = "--append needs the options with which the dataset was made; with others, tokenize to a "
                             "directory of its own and merge the two";

// The option of each key in an option line.
static const char *const option_names[][2] = {{"frame_tokens", "--frame-tokens"},
                                              {"codec", "(--level) codec"},
                                              {"invalid", "--invalid-utf8"},
                                              {"docs", "--docs"},
                                              {"field", "--text-field"},
                                              {"format", "--format"},
                                              {"column", "--text-column"},
                                              {"where", "--where"},
                                              {"max_tokens", "--max-tokens"},
                                              {"val", "--val"},
                                              {"val_seed", "--seed"},
                                              {"shard_tokens", "--shard-tokens"},
                                              {"vocab_size", "--vocab-size"},
                                              {"pattern", "--pattern"},
                                              {"special", "--special"},
                                              {"min_count", "--min-count"},
                                              {"max_bytes", "--max-bytes"}};
enum { OPTION_COUNT = sizeof option_names / sizeof *option_names };

// The item "key=value" of a line with the key of `item`, or NULL.
static const char *find_item(const char *line, const char *item) {
    size_t key = strcspn(item, "=;");
    for (; *line; line += strcspn(line, ";"), line += *line == ';')
        if (strcspn(line, "=;") == key && !memcmp(line, item, key)) return line;
    return NULL;
}

// "--val=0.1" for the item "val=0.1" of `line`, "no --val" when the line lacks it.
static void describe(char text[128], const char *line, const char *item) {
    char key[64];
    size_t length = strcspn(item, "=;");
    snprintf(key, sizeof key, "%.*s", (int)length, item);
    const char *name = key, *found = find_item(line, item);
    for (int i = 0; i < OPTION_COUNT; i++)
        if (!strcmp(key, option_names[i][0])) name = option_names[i][1];
    if (found)
        snprintf(text, 128, "%s%.*s", name, (int)strcspn(found + length, ";"), found + length);
    else
        snprintf(text, 128, "no %s", name);
}

// The first item of `line` that `other` lacks or has with another value, or NULL.
static const char *find_difference(const char *line, const char *other) {
    for (; *line; line += strcspn(line, ";"), line += *line == ';') {
        const char *found = find_item(other, line);
        size_t length = strcspn(line, ";");
        if (!found || strcspn(found, ";") != length || memcmp(found, line, length)) return line;
    }
    return NULL;
}

static void describe_difference(char then[128], char now[128], const char *old, const char *new) {
    const char *item = find_difference(old, new);
    if (!item) item = find_difference(new, old);
    if (!item) item = old; // the same items in another order: a ; in a value
    describe(then, old, item);
    describe(now, new, item);
}

bool compare_options(const Dataset *dataset, const Dataset *other, Buffer *text) {
    if (!strcmp(dataset->params, other->params)) return true;
    char first[128], second[128];
    describe_difference(first, second, dataset->params, other->params);
    buffer_print(text, "'%s' was made with %s, '%s' with %s", dataset->path, first, other->path, second);
    return false;
}

int compare_params(const char *what, const char *old, const char *new, const char *advice) {
    char then[128], now[128];
    describe_difference(then, now, old, new);
    return fail(EX_USAGE, "%s was made with %s, this run has %s: %s", what, then, now, advice);
}

static int fail_dataset(const Dataset *old, const char *params, const char *advice) {
    char what[PATH_MAX_BYTES + 2];
    snprintf(what, sizeof what, "'%s'", old->path);
    return compare_params(what, old->params, params, advice);
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

// The digest of an input covers its size, its beginning and its end only.
static void warn_modified(const Dataset *dataset, const Inputs *inputs) {
    char manifest[PATH_MAX_BYTES];
    struct stat st;
    if (snprintf(manifest, sizeof manifest, "%s/" DATASET_MANIFEST, dataset->path) >= (int)sizeof manifest) return;
    if (stat(manifest, &st)) return;
    for (uint64_t i = 0; i < inputs->argument_count; i++)
        if (inputs->arguments[i].newest_ns > file_modified_ns(&st))
            log_warn("'%s' was modified after '%s' was made from it, and has the same size, beginning and end: --force "
                     "makes the dataset again",
                     inputs->arguments[i].path, dataset->path);
}

int compare_finished(const char *directory, const char *params, const ShardParams *shard_params, const Inputs *inputs) {
    Dataset old;
    if (dataset_open(&old, directory) < 0) return fail_in("the directory already holds a dataset; --force replaces it");
    int status = 0;
    if (memcmp(old.vocab_fp, shard_params->vocab_fp, 32))
        status = fail(EX_USAGE, "'%s' was made with another vocabulary", directory);
    else if (strcmp(old.params, params))
        status = fail_dataset(&old, params, REPLACE);
    else
        status = compare_sources(&old, inputs);
    if (status == 0) warn_modified(&old, inputs);
    dataset_close(&old);
    return status < 0 ? -1 : 1;
}

int compare_unfinished(const char *directory, const char *other, const char *params, bool appends) {
    char what[PATH_MAX_BYTES + 32], advice[PATH_MAX_BYTES + 64];
    snprintf(what, sizeof what, "the unfinished run in '%s'", directory);
    snprintf(advice, sizeof advice,
             appends ? "repeat that command, or remove '%s/" DATASET_JOURNAL "' to start over"
                     : "repeat that command, or start over with --force",
             directory);
    if (strcmp(other, params)) return compare_params(what, other, params, advice);
    return fail(EX_USAGE, "%s has other inputs, or they have changed: %s", what, advice);
}

static bool has_source(const Dataset *dataset, const InputArgument *argument) {
    for (uint64_t i = 0; !argument->stream && i < dataset->source_count; i++)
        if (!memcmp(dataset->sources[i].digest, argument->digest, sizeof argument->digest)) return true;
    return false;
}

int compare_base(const Dataset *base, const char *params, const ShardParams *shard_params, const Inputs *inputs) {
    if (memcmp(base->vocab_fp, shard_params->vocab_fp, 32))
        return fail(EX_USAGE, "'%s' was made with another vocabulary", base->path);
    if (strcmp(base->params, params)) return fail_dataset(base, params, REPEAT);
    uint64_t known = 0;
    const char *twice = NULL, *last = base->source_count ? base->sources[base->source_count - 1].path : "";
    for (uint64_t i = 0; i < inputs->argument_count; i++)
        if (has_source(base, &inputs->arguments[i])) known++, twice = inputs->arguments[i].path;
    if (known == inputs->argument_count) {
        log_line("'%s' holds '%s'%s already: there is nothing to append", base->path, twice,
                 known > 1 ? " and the other inputs" : "");
        return warn_modified(base, inputs), 1;
    }
    if (known) return fail(EX_USAGE, "'%s' holds '%s' already: name only new inputs", base->path, twice);
    if (strcmp(last, inputs->arguments[0].path) > 0)
        log_line("'%s' sorts before '%s': the result differs from one run over both", inputs->arguments[0].path, last);
    return 0;
}
