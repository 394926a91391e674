// Rebuilds the tables of a shard from its undamaged frames. They are found through the old seek table, and if that is
// damaged by reading from the start up to the first damaged frame.
#pragma once

// Copies the undamaged frames of the shard at `path` to `output`, with new tables. 65 when there is none.
int shard_rebuild(const char *path, const char *output);
