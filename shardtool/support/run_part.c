// Chooses the part of a tokenize run that this process does, and puts parts in order for merge.
#include "shardtool/support/run_part.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/launch.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// A Slurm array of consecutive numbers, or with a constant step.
static int find_array(RunPart *part) {
    unsigned id, count, min, max, step = 1;
    int has_id = launch_number("SLURM_ARRAY_TASK_ID", &id), has_count = launch_number("SLURM_ARRAY_TASK_COUNT", &count);
    int has_min = launch_number("SLURM_ARRAY_TASK_MIN", &min), has_max = launch_number("SLURM_ARRAY_TASK_MAX", &max);
    if (has_id < 0 || has_count < 0 || has_min < 0 || has_max < 0) return -1;
    if (launch_number("SLURM_ARRAY_TASK_STEP", &step) < 0) return -1;
    if (has_id && has_count && count == 1)
        log_warn("this Slurm array has one task, which takes all inputs: to repeat one part, add --part I/N");
    if (!has_id || !has_count || count < 2) return 0;
    if (!has_min) min = 0;
    if (!has_max) max = min + (count - 1) * step;
    if (!step || id < min || id > max || (max - min) / step != count - 1)
        return fail(EX_USAGE,
                    "this Slurm array has gaps, so its tasks are not parts 1 to %u: name the part by --part I/N",
                    count);
    *part = (RunPart){.number = (id - min) / step + 1, .count = count, .from = "the Slurm array"};
    return 0;
}

static int find_part(RunPart *part) {
    Launch launch;
    if (find_array(part) < 0 || launch_find(&launch) < 0) return -1;
    if (launch.world < 2) return 0;
    if (part->count)
        return fail(EX_USAGE, "this is a task of %s in a Slurm array: name the part by --part I/N", launch.launcher);
    *part = (RunPart){.number = launch.rank + 1, .count = launch.world, .from = launch.launcher};
    return 0;
}

int part_parse(const char *option, unsigned *number, unsigned *count) {
    int end = 0;
    if (sscanf(option, "%6u/%7u%n", number, count, &end) == 2 && !option[end] && *number && *number <= *count &&
        *count <= PARTS_MAX)
        return 0;
    return fail(EX_USAGE, "--part '%s' is not I/N with 1 <= I <= N, as in 2/3", option);
}

int part_choose(RunPart *part, const char *option, const char *directory) {
    *part = (RunPart){.from = "--part"};
    if ((option ? part_parse(option, &part->number, &part->count) : find_part(part)) < 0) return -1;
    if (part->count == 1) part->count = 0;
    if (!part->count) return 0;
    const size_t size = sizeof part->output;
    int length = strcmp(directory, "-")
                     ? snprintf(part->output, size, "%s/part-%u-of-%u", directory, part->number, part->count)
                     : snprintf(part->output, size, "-");
    if (length >= (int)size) return fail(EX_USAGE, "path too long: '%.60s...'", directory);
    return 0;
}

int part_take(RunPart *part, Inputs *inputs) {
    uint64_t files = inputs->file_count;
    if (files < part->count)
        return fail(EX_USAGE,
                    "%u parts of %" PRIu64 " file%s: choose at most as many parts as files (--part 1/1: no parts)",
                    part->count, files, PLURAL(files));
    XXH64_hash_t hash = 0;
    for (uint64_t i = 0; i < files; i++) {
        char path[PATH_MAX_BYTES];
        input_path(inputs, &inputs->files[i], path);
        hash = XXH3_64bits_withSeed(path, strlen(path) + 1, hash);
        hash = XXH3_64bits_withSeed(&inputs->files[i].bytes, sizeof inputs->files[i].bytes, hash);
    }
    snprintf(part->text, sizeof part->text, "%u/%u %016" PRIx64, part->number, part->count, (uint64_t)hash);
    inputs_keep_every(inputs, part->number - 1, part->count);
    log_line("part %u of %u (from %s): %" PRIu64 " of %" PRIu64 " files, to '%s'", part->number, part->count,
             part->from, inputs->file_count, files, part->output);
    return 0;
}

// Splits "DIR/part-2-of-3/" into the length of "DIR/" and the numbers.
static bool parse_name(const char *path, size_t *folder, unsigned *number, unsigned *count) {
    size_t length = strlen(path);
    while (length && path[length - 1] == '/') length--;
    size_t name = length;
    while (name && path[name - 1] != '/') name--;
    int end = 0;
    *folder = name;
    return sscanf(path + name, "part-%7u-of-%7u%n", number, count, &end) == 2 && name + (size_t)end == length &&
           *number && *number <= *count && *count <= PARTS_MAX;
}

int part_check(const Dataset *part, const Dataset *first, int index) {
    const char *all = first->part ? strchr(first->part, '/') : NULL;
    const char *here = part->part ? strchr(part->part, '/') : NULL;
    if (!all && !here) return 0;
    if (!all || !here || strcmp(all, here))
        return fail(EX_USAGE,
                    "'%s' and '%s' are not parts of the same files: one has arrived, changed its size or was removed "
                    "between them, or their commands differ; make the parts again with --force",
                    first->path, part->path);
    if (strtoul(part->part, NULL, 10) != (unsigned long)index + 1)
        return fail(EX_USAGE, "'%s' holds part %.*s, its directory was renamed", part->path, (int)(here - part->part),
                    part->part);
    return 0;
}

int part_sort(char **paths, int count) {
    size_t folder, first_folder = 0;
    unsigned number, parts = 0, of;
    int named = 0, first = 0;
    for (int i = 0; i < count; i++) {
        if (!parse_name(paths[i], &folder, &number, &of)) continue;
        if (!named++) first = i, first_folder = folder, parts = of;
        if (parts != of || first_folder != folder || strncmp(paths[first], paths[i], folder))
            return fail(EX_USAGE, "'%s' and '%s' are parts of different runs: merge each run on its own first",
                        paths[first], paths[i]);
    }
    if (!named) return 0;
    if (named < count) return fail(EX_USAGE, "merge the parts of a run on their own first, then other datasets");

    char **sorted = allocate_zeroed(parts, sizeof *sorted);
    int status = 0;
    for (int i = 0; status == 0 && i < count; i++) {
        parse_name(paths[i], &folder, &number, &of);
        if (sorted[number - 1]) status = fail(EX_USAGE, "'%s' is named twice", paths[i]);
        sorted[number - 1] = paths[i];
    }
    Buffer missing = {0};
    for (unsigned i = 0; i < parts; i++)
        if (!sorted[i] || !dataset_is(sorted[i]))
            buffer_print(&missing, "%s%u (%s)", missing.size ? ", " : "", i + 1,
                         sorted[i] ? "not finished" : "missing");
    if (status == 0 && missing.size)
        status = fail(EX_NOINPUT, "of the %u parts in '%.*s', these are not there: %.*s", parts, (int)first_folder,
                      paths[0], (int)missing.size, (const char *)missing.data);
    if (status == 0) memcpy(paths, sorted, parts * sizeof *sorted);
    buffer_close(&missing);
    free(sorted);
    return status;
}
