// Writing a dataset directory so that a kill at any moment loses no finished dataset and leaves no file.
//
// While shards are being written the directory holds .journal, which marks them as shards of an unfinished run; the
// manifest is written last. A finished dataset is replaced by building the new one in DIR/.new: only when its manifest
// is on disk are train/ and val/ renamed to .old-train and .old-val, the new ones moved up, and the old shards removed;
// files in them that are not shards stay there. An interrupted move is completed by the next dataset_build_open, or by
// the next program that reads the dataset.
#pragma once

#include "dataset/dataset.h"

typedef struct {
    const char *directory;       // borrowed
    char target[PATH_MAX_BYTES]; // the directory itself, or DIR/.new
    Lock lock;
    size_t existing;   // dir_existing before dataset_build_open
    bool has_manifest; // a finished dataset is there
} DatasetBuild;

// Creates and locks the directory (73 when another run holds it) and completes an interrupted replacement.
int dataset_build_open(DatasetBuild *build, const char *directory);
// Completes an interrupted replacement, if there is one: 73 when another process holds the lock.
int dataset_build_complete(const char *directory);
// Chooses and creates `target`. An unfinished DIR/.new stays for a run that continues it. 73 when there are shards that
// no manifest and no journal accounts for, unless `replace`.
int dataset_build_start(DatasetBuild *build, bool replace);
// Removes the files of an unfinished run from `target`, and starts an empty journal.
int dataset_build_clear(DatasetBuild *build);
// Instead, for a run that continues: removes the temporary files only.
int dataset_build_continue(DatasetBuild *build);
// -1 (73) when the directory was moved or removed, and the one at its path belongs to another run.
int dataset_build_check(const DatasetBuild *build);
// Writes the manifest of `dataset`, which was begun with `target`, and moves it into place.
int dataset_build_finish(DatasetBuild *build, Dataset *dataset);
// Removes the content of the new dataset, for a command that does not continue later.
void dataset_build_abandon(DatasetBuild *build);
// Unlocks, and removes a directory, and parents, that are new and still empty. Accepts a zeroed struct.
void dataset_build_close(DatasetBuild *build);
// Adds shard `index` of `from` to a dataset that is being built, as a hard link to its file, or as
// a copy, with a line, where the file system refuses the link.
int dataset_link_shard(Dataset *dataset, const Dataset *from, int split, uint64_t index);

// Calls `visit` for each file in train/ and val/ of a dataset directory, with its path relative to the directory.
// Directories are left out. Stops at a status other than 0 and returns it.
int dataset_files(const char *directory, int (*visit)(void *context, const char *file), void *context);
