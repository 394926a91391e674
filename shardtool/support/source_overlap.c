// Compares the paths of inputs with those of a dataset's sources.
#include "shardtool/support/source_overlap.h"
#include "common/err.h"
#include <limits.h>
#include <stdlib.h>

static const char ADVICE[] = "put what is new in files or a folder of its own, and name only those";

// Whether `path` is `folder`, or lies in it. Both are real paths.
static bool is_within(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || path[length] == '\0' || length == 1);
}

// Whether the files of a source, without those within `real`, are the ones that were read.
static int is_unchanged_without(const DatasetSource *source, const char *real, const InputFilter *filter, bool *same) {
    Inputs inputs;
    char *argument[] = {(char *)(uintptr_t)source->path};
    const InputFilter names = {.include = filter->include, .exclude = filter->exclude};
    if (inputs_open(&inputs, 1, argument, &names) < 0) return -1;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < inputs.file_count; i++) {
        char path[PATH_MAX_BYTES], found[PATH_MAX];
        input_path(&inputs, &inputs.files[i], path);
        if (!realpath(path, found) || !is_within(found, real)) inputs.files[kept++] = inputs.files[i];
    }
    inputs.file_count = kept;
    int status = inputs_digest(&inputs);
    *same = !memcmp(inputs.arguments[0].digest, source->digest, sizeof source->digest);
    inputs_close(&inputs);
    return status;
}

static int check_pair(const Dataset *base, const DatasetSource *source, const char *path, const InputFilter *filter) {
    char real[PATH_MAX], source_real[PATH_MAX];
    if (!strcmp(path, source->path))
        return fail(EX_USAGE, "'%s' was read before and has changed since: %s", path, ADVICE);
    if (!realpath(path, real) || !realpath(source->path, source_real)) return 0;
    if (is_within(source_real, real))
        return fail(EX_USAGE, "'%s' %s '%s', which '%s' holds already: %s", path,
                    strcmp(source_real, real) ? "contains" : "is", source->path, base->path, ADVICE);
    bool same = base->part != NULL; // the digest of a part is not of all files of the folder
    if (same || !is_within(real, source_real)) return 0;
    if (is_unchanged_without(source, real, filter, &same) < 0) return -1;
    if (same) return 0;
    return fail(EX_USAGE, "'%s' lies in '%s', which '%s' holds already, in whole or in part: %s", path, source->path,
                base->path, ADVICE);
}

int source_overlap_check(const Dataset *base, const Inputs *inputs, const InputFilter *filter) {
    for (uint64_t i = 0; i < inputs->argument_count; i++)
        for (uint64_t k = 0; !inputs->arguments[i].stream && k < base->source_count; k++)
            if (check_pair(base, &base->sources[k], inputs->arguments[i].path, filter) < 0) return -1;
    return 0;
}
