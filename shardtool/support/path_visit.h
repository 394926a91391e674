// The PATH arguments of commands that read: shards, and datasets with their splits.
#pragma once

#include "dataset/token_reader.h"

enum { SPLIT_ALL = SPLIT_COUNT };

// Opens each path, a shard or one split of a dataset, and calls `visit`; with SPLIT_ALL once for each split of a
// dataset. Stops at a status other than 0 and returns it. -1 after fail() (2) when there is no path.
typedef int PathVisit(void *context, const char *path, TokenReader *tokens);
int paths_visit(int count, char **paths, int split, PathVisit *visit, void *context);

// For commands that treat the ids of several paths as one sequence: 65 when two have different vocabularies.
int paths_check_vocabulary(int count, char **paths);

// Calls `visit` with the path of each shard of one split of a dataset, in order, or the path itself. Stops at a
// status other than 0 and returns it.
int shards_visit(const char *path, int split, int (*visit)(void *context, const char *shard), void *context);

// 1 when the path is a dataset or begins as a shard, 0 when not, -1 after fail(). What it read of a pipe on standard
// input ("-") is in *head: a shard is spooled, and the reader of anything else has to begin with it (SourceOptions).
int path_is_tokens(const char *path, Bytes *head);
