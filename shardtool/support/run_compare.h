// Compares a tokenize run with the dataset that its directory holds already, and datasets with each other. `params` is
// the line of options.
#pragma once

#include "dataset/dataset.h"
#include "shardtool/ingest/inputs.h"

// Compares with a finished dataset: 1 when the run would produce the same dataset, -1 after fail() with the difference.
int compare_finished(const char *directory, const char *params, const ShardParams *shard_params, const Inputs *inputs);
// Names the difference from an unfinished run of other options or inputs, `other`, in `directory`: always -1.
int compare_unfinished(const char *directory, const char *other, const char *params, bool appends);
// Compares with the dataset to which the run appends: 1 when it has all inputs already, -1 when it has some, or other
// options.
int compare_base(const Dataset *base, const char *params, const ShardParams *shard_params, const Inputs *inputs);
// For merge: whether two datasets were made with the same options; if not, adds the first one that differs to `text`.
bool compare_options(const Dataset *dataset, const Dataset *other, Buffer *text);
// -1 (2) after naming the first option in which `what`, made with the options `old`, differs from this run.
int compare_params(const char *what, const char *old, const char *new, const char *advice);
