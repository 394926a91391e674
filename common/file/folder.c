// Builds a directory beside its place and renames it.
#include "common/file/folder.h"
#include "common/err.h"
#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Refuses a directory with entries that this command did not write.
static int check_entries(const NewFolder *folder, bool force, const char *pattern) {
    DIR *directory = opendir(folder->path);
    if (!directory) return fail_errno("cannot open directory '%s'", folder->path);
    int status = 0;
    for (struct dirent *entry; status == 0 && (entry = readdir(directory));) {
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        if (!force)
            status = fail(EX_CREATE, "'%s' is not empty: choose another directory%s", folder->path,
                          pattern ? ", or --force" : "");
        else if (fnmatch(pattern, name, FNM_EXTMATCH))
            status =
                fail(EX_CREATE, "'%s' holds '%s', which is not an output of this command: choose another directory",
                     folder->path, name);
    }
    closedir(directory);
    return status;
}

int newfolder_open(NewFolder *folder, const char *path, bool force, const char *pattern) {
    *folder = (NewFolder){0};
    char parent[PATH_MAX_BYTES], temp[PATH_MAX_BYTES];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    if (length + 64 > sizeof folder->path) return fail(EX_CREATE, "path too long: '%.60s...'", path);
    snprintf(folder->path, sizeof folder->path, "%.*s", (int)length, path);
    struct stat st, link;
    folder->exists = stat(folder->path, &st) == 0;
    if (lstat(folder->path, &link) == 0 &&
        S_ISLNK(link.st_mode)) { // creates the directory that a link names, instead of replacing the link
        char target[PATH_MAX];
        if (!folder->exists) return fail(EX_CREATE, "'%s' is a link to a directory that does not exist", path);
        if (!realpath(folder->path, target)) return fail_errno("cannot resolve '%s'", path);
        if (strlen(target) + 64 > sizeof folder->path) return fail(EX_CREATE, "path too long: '%.60s...'", target);
        memcpy(folder->path, target, strlen(target) + 1);
    }
    if (folder->exists && !S_ISDIR(st.st_mode)) return fail(EX_CREATE, "'%s' is not a directory", path);
    if (folder->exists && check_entries(folder, force, pattern) < 0) return -1;
    const char *name = path_split(folder->path, parent);
    if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
        return fail(EX_USAGE, "'%s' has no name that a new directory could take", path);
    folder->existing = dir_existing(parent);
    if (dir_make(parent) < 0) return -1;
    dir_sweep(parent, name);
    if (temp_create(temp, folder->path, true) < 0) return fail_create(path);
    memcpy(folder->temp, temp, sizeof temp);
    return 0;
}

int newfolder_commit(NewFolder *folder) {
    char parent[PATH_MAX_BYTES];
    path_split(folder->path, parent);
    int status = dir_sync(folder->temp);
    // An exchange, so that the name always belongs to one of the two.
    if (status == 0 && renameat2(AT_FDCWD, folder->temp, AT_FDCWD, folder->path, folder->exists ? RENAME_EXCHANGE : 0))
        status = fail_errno("cannot rename '%s' to '%s'", folder->temp, folder->path);
    if (status == 0) status = dir_sync(parent);
    if (status < 0 || folder->exists) newfolder_abandon(folder); // after the exchange: the old files
    folder->temp[0] = '\0';
    return status;
}

void newfolder_abandon(NewFolder *folder) {
    char parent[PATH_MAX_BYTES];
    if (!folder->temp[0]) return;
    dir_remove(folder->temp);
    path_split(folder->path, parent);
    dir_unmake(parent, folder->existing);
    folder->temp[0] = '\0';
}
