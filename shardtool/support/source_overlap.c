// Compares real paths, so that links and other names of a folder are found.
#include "shardtool/support/source_overlap.h"
#include "common/err.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const char ADVICE[] = "put what is new in files or a folder of its own, and name only those";

// Whether `path` is `folder`, or lies in it. Both are real paths.
static bool is_within(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || path[length] == '\0' || length == 1);
}

// The real path of a directory that may not exist yet: its nearest parent's, and the rest. False when it is too
// long.
static bool resolve(const char *path, char real[PATH_MAX]) {
    char parent[PATH_MAX_BYTES], found[PATH_MAX];
    size_t length = strlen(path);
    snprintf(parent, sizeof parent, "%s", path);
    while (length && !realpath(parent, found)) {
        while (length && parent[length - 1] == '/') length--;
        while (length && parent[length - 1] != '/') length--;
        parent[length] = '\0';
    }
    if (!length && !realpath(".", found)) return false;
    const char *rest = path + length;
    return snprintf(real, PATH_MAX, "%s%s%s", found, *rest ? "/" : "", rest) < PATH_MAX;
}

int refuse_as_output(const char *input, const char *output) {
    char in[PATH_MAX], out[PATH_MAX];
    if (!realpath(input, in) || !resolve(output, out)) return 0;
    if (!strcmp(in, out)) return fail(EX_USAGE, "'%s' is both input and output", output);
    if (is_within(in, out)) return fail(EX_USAGE, "the input '%s' lies in the output '%s'", input, output);
    if (!is_within(out, in)) return 0;
    return fail(EX_USAGE, "the output '%s' lies in the input '%s': choose another directory", output, input);
}

int refuse_within_inputs(const char *output, const Inputs *inputs, const InputFilter *filter) {
    static const InputFilter everything;
    static const char *const files[] = {"/" DATASET_MANIFEST, "/train/000/000000.zst"};
    char out[PATH_MAX], in[PATH_MAX], below[PATH_MAX + 32];
    if (!output || !strcmp(output, "-") || !resolve(output, out)) return 0;
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        const InputArgument *argument = &inputs->arguments[i];
        if (argument->stream || !realpath(argument->path, in) || !is_within(out, in)) continue;
        const char *rest = out + (strlen(in) > 1 ? strlen(in) : 0);
        for (unsigned k = 0; k < sizeof files / sizeof *files && !strstr(rest, "/."); k++) {
            snprintf(below, sizeof below, "%s%s", rest, files[k]);
            if (input_is_wanted(filter ? filter : &everything, below + 1))
                return fail(EX_USAGE,
                            "the output '%s' lies in the input '%s', and the next run would read it: "
                            "choose another directory",
                            output, argument->path);
        }
    }
    return 0;
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
