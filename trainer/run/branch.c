// The files of a branch.
#include "trainer/run/branch.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/run/run.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char member[] = "branched_from";
static bool is_branch, made_folder; // of branch_open, for branch_withdraw

typedef struct {
    char run[PATH_MAX_BYTES], checkpoint[PATH_MAX_BYTES]; // absolute
    RunState state;
} Origin;

// Whether a path is RUN/ckpt-STEP; its parts.
static bool is_checkpoint(const char *path, char run[PATH_MAX_BYTES], uint64_t *step) {
    char again[PATH_MAX_BYTES];
    unsigned long long number;
    if (sscanf(path_split(path, run), "ckpt-%llu", &number) != 1) return false;
    checkpoint_path(again, run, *step = number);
    return !strcmp(path, again);
}

static int find_origin(Origin *origin, const char *from) {
    char given[PATH_MAX_BYTES];
    uint64_t step;
    if (!realpath(from, given)) return fail(EX_NOINPUT, "cannot read '%s': %s", from, strerror(errno));
    const bool named = is_checkpoint(given, origin->run, &step);
    if (!named) strcpy(origin->run, given);
    const int found = named ? checkpoint_of_step(origin->run, step, origin->checkpoint, &origin->state)
                            : checkpoint_newest(origin->run, NULL, origin->checkpoint, &origin->state);
    return found ? found : fail(EX_NOINPUT, "there is no checkpoint in '%s', and it is not RUN/ckpt-STEP", from);
}

static int link_or_copy(const char *from, const char *to) {
    Bytes map;
    if (link(from, to) == 0) return 0;
    if (file_map(&map, from) < 0) return -1;
    const int result = file_write(to, map);
    file_unmap(&map);
    return result;
}

static int copy_files(const char *from, const char *to) {
    DIR *directory = opendir(from);
    char path[PATH_MAX_BYTES], copy[PATH_MAX_BYTES];
    int result = directory ? 0 : fail_errno("cannot read '%s'", from);
    for (struct dirent *entry; result == 0 && (entry = readdir(directory));)
        if (*entry->d_name != '.')
            result = link_or_copy(path_join(path, from, "%s", entry->d_name), path_join(copy, to, "%s", entry->d_name));
    if (directory) closedir(directory);
    return result < 0 ? -1 : dir_sync(to);
}

// The checkpoint of a step appears whole, or is there already: another process of this run may be faster.
static int copy_checkpoint(const char *out_dir, const char *run, uint64_t step) {
    char from[PATH_MAX_BYTES], to[PATH_MAX_BYTES], temp[PATH_MAX_BYTES];
    checkpoint_path(from, run, step), checkpoint_path(to, out_dir, step);
    if (temp_create(temp, to, true) < 0) return fail_create(to);
    int result = copy_files(from, temp);
    if (result == 0 && rename(temp, to) < 0 && errno != EEXIST && errno != ENOTEMPTY)
        result = fail_errno("cannot rename '%s' to '%s'", temp, to);
    dir_remove(temp);
    return result < 0 ? -1 : dir_sync(out_dir);
}

// The best checkpoint and that of the highest grade come along if the run has kept them. Runs that save nothing else
// need the best one at their end.
static int copy_kept(const Config *config, const Origin *origin, uint64_t step, bool needed) {
    char path[PATH_MAX_BYTES];
    if (!step || step == origin->state.step) return 0;
    checkpoint_path(path, origin->run, step);
    if (access(path, F_OK) == 0) return copy_checkpoint(config->out_dir, origin->run, step);
    if (!needed) return 0;
    return fail(EX_NOINPUT,
                "'%s' was the best up to step %llu and is gone: a branch with always_save_checkpoint=True "
                "can do without it",
                path, (unsigned long long)origin->state.step);
}

// The record comes first: a run with a checkpoint has its lines.
static int copy_run(const Config *config, const Origin *origin) {
    Buffer note = {0};
    buffer_print(&note, ", \"%s\": ", member);
    json_add_string(&note, origin->checkpoint);
    buffer_print(&note, ", \"until\": \"\""); // the time of the other run is not that of the branch
    int result = dir_make(config->out_dir);
    if (result == 0)
        result =
            metrics_copy(config->out_dir, origin->run, run_metrics_end(&origin->state), (Bytes){note.data, note.size});
    buffer_close(&note);
    if (result == 0) result = copy_kept(config, origin, metrics_graded(config->out_dir, origin->state.step), false);
    if (result == 0) result = copy_kept(config, origin, origin->state.best_step, !config->always_save_checkpoint);
    return result < 0 ? -1 : copy_checkpoint(config->out_dir, origin->run, origin->state.step);
}

// A branch that goes on needs the other run no more.
static int check_branch(const char *out_dir, const char *from) {
    char given[PATH_MAX_BYTES], run[PATH_MAX_BYTES];
    json_t *line = metrics_last_with(out_dir, member);
    const char *was = json_string_value(json_object_get(line, member));
    int result = 0;
    if (!was)
        result = fail(EX_USAGE, "the run in '%s' is not a branch: another out_dir starts one", out_dir);
    else if (realpath(from, given) && strcmp(given, was) && (path_split(was, run), strcmp(given, run)))
        result = fail(EX_USAGE, "the run in '%s' is a branch of '%s', not of '%s': another out_dir starts one", out_dir,
                      was, from);
    json_decref(line);
    return result;
}

// A branch has the weights of the other run, whose init_from may be given again.
static int check_init_from(const Config *config, const Origin *origin) {
    char model[PATH_MAX_BYTES];
    const char *given = config->init_from, *first = origin->state.init_from;
    if (!strcmp(given, "scratch") || !strcmp(given, "resume")) return 0;
    model_path(model, given, config->out_dir);
    if (!strncmp(model, first, sizeof origin->state.init_from - 1)) return 0;
    return fail(
        EX_USAGE,
        "--branch_from and init_from='%s': a branch has weights, optimizer and step of '%s', whose run began from "
        "'%s'; leave init_from out, or --branch_from to begin at step 0 with the weights of '%s'",
        given, origin->checkpoint, *first ? first : "scratch", given);
}

int branch_open(const Config *config, const char *from) {
    char path[PATH_MAX_BYTES];
    uint64_t step;
    Origin origin = {0};
    if (checkpoint_any(config->out_dir, path, &step)) {
        is_branch = check_branch(config->out_dir, from) == 0;
        return is_branch ? 0 : -1;
    }
    if (find_origin(&origin, from) < 0 || check_init_from(config, &origin) < 0) return -1;
    const Cooldown *cooldown = &origin.state.cooldown;
    if (cooldown->begun && origin.state.step >= cooldown->from + cooldown->steps)
        return fail(EX_USAGE, "'%s' has cooled down: --branch_from=%s/ckpt-%08llu begins before that",
                    origin.checkpoint, origin.run, (unsigned long long)cooldown->begun);
    log_line("a branch of '%s' at step %llu", origin.run, (unsigned long long)origin.state.step);
    is_branch = true, made_folder = access(config->out_dir, F_OK) < 0;
    return copy_run(config, &origin);
}

// Whether the record ends with the line of copy_run.
static bool has_recorded_nothing(const char *out_dir) {
    json_t *line = metrics_last_with(out_dir, "step");
    const bool found = json_object_get(line, member);
    json_decref(line);
    return found;
}

void branch_withdraw(const Config *config) {
    const char *out_dir = config->out_dir;
    char path[PATH_MAX_BYTES];
    uint64_t step;
    Lock lock;
    Error error;
    if (!is_branch || !has_recorded_nothing(out_dir)) return;
    err_take(&error);
    if (lock_take(&lock, out_dir, "") == 0) {
        while (checkpoint_any(out_dir, path, &step)) dir_remove(path);
        unlink(path_join(path, out_dir, "metrics.jsonl"));
        if (made_folder) dir_remove(out_dir);
        lock_drop(&lock);
    }
    err_clear();
    err_give(&error);
}
