// The directory of a run: its lock, and the files of an earlier run.
#include "trainer/run/run_directory.h"
#include "common/err.h"
#include "common/file/folder_probe.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

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
    int moved = 0;
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
