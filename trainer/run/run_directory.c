// The directory of a run: its lock, and the files of an earlier run.
#include "trainer/run/run_directory.h"
#include "common/err.h"
#include "common/file/folder_probe.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

// Moves the grades of an earlier run. Returns how many there were, or -1.
static int move_grades(const char *out_dir, const char *folder) {
    char pattern[PATH_MAX_BYTES], to[PATH_MAX_BYTES];
    glob_t found = {0};
    int moved = 0;
    glob(path_join(pattern, out_dir, "items-[0-9]*.jsonl"), 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc && moved >= 0; i++)
        moved = rename(found.gl_pathv[i], path_join(to, folder, "%s", strrchr(found.gl_pathv[i], '/') + 1)) == 0
                    ? moved + 1
                    : fail_errno("cannot move '%s' to '%s'", found.gl_pathv[i], folder);
    globfree(&found);
    return moved;
}

// Moves the files of an earlier run to out_dir/before-1, or the next free number.
static int move_aside(const char *out_dir) {
    char folder[PATH_MAX_BYTES];
    for (int i = 1;; i++) {
        if (mkdir(path_join(folder, out_dir, "before-%d", i), 0777) == 0) break;
        if (errno != EEXIST) return fail_create(folder);
    }
    uint64_t step;
    char from[PATH_MAX_BYTES], to[PATH_MAX_BYTES];
    static const char *const files[] = {"metrics.jsonl", "report.html"};
    int moved = move_grades(out_dir, folder);
    if (moved < 0) return -1;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (rename(path_join(from, out_dir, "%s", files[i]), path_join(to, folder, "%s", files[i])) == 0)
            moved++;
        else if (errno != ENOENT)
            return fail_errno("cannot move '%s' to '%s'", from, folder);
    }
    while (checkpoint_any(out_dir, from, &step)) {
        if (rename(from, path_join(to, folder, "ckpt-%08llu", (unsigned long long)step)) < 0)
            return fail_errno("cannot move '%s' to '%s'", from, folder);
        moved++;
    }
    if (!moved)
        rmdir(folder);
    else
        log_line("--fresh: the earlier run is now in '%s'", folder);
    return 0;
}

int run_directory_open(Lock *lock, const char *out_dir, bool fresh) {
    if (dir_make(out_dir) < 0 || lock_take(lock, out_dir, "another out_dir") < 0) return -1;
    dir_sweep(out_dir, NULL);
    return folder_check(out_dir, PROBE_LINKS) < 0 ? -1 : fresh ? move_aside(out_dir) : 0;
}
