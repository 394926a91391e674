// The shards behind an argument of a command.
#pragma once

// Calls `visit` with the path of each shard: those of one split of a dataset, in order, or the path itself. Stops at a
// status other than 0 and returns it.
int shards_visit(const char *path, int split, int (*visit)(void *context, const char *shard), void *context);
