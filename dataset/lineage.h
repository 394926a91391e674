// How a dataset came about: the member `history` of its manifest, a tree of commands.
#pragma once

#include "dataset/dataset.h"

// Each adds one input of a command to a list, which is zeroed at first: a dataset with its own history, a shard, whose
// history is not known, or documents that a command made.
void lineage_add(Buffer *inputs, const Dataset *from);
void lineage_add_shard(Buffer *inputs, const char *path, const ShardFile *from);
void lineage_add_run(Buffer *inputs, const char *command, const char *settings, uint64_t tokens, uint64_t documents);

// Adds the history of a dataset that a command makes of these inputs, as Dataset.history, with its NUL. Of `settings`,
// "a=1;b=2", those of the storage are left out.
void lineage_make(Buffer *history, const char *command, const char *settings, const Buffer *inputs);

// Whether a dataset was made of other inputs than datasets, as far as is known.
bool lineage_is_plain(const Dataset *dataset);

// Adds a line for each command: the dataset's own, then below it those of what it read, each with its share of their
// tokens, after `indent` and two spaces a level. Nothing without a history.
void lineage_print(const Dataset *dataset, const char *indent, Buffer *out);
