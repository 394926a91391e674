// Part I of N of a tokenize run, which as many processes or machines do side by side: every N-th file, to a dataset of
// its own in DIR/part-I-of-N. merge joins the parts.
#pragma once

#include "common/file/file.h"
#include "dataset/dataset.h"
#include "shardtool/ingest/inputs.h"

enum { PARTS_MAX = 1000000 };

typedef struct {
    unsigned number, count;      // 1 to count; count 0: the whole
    const char *from;            // who chose it, for messages
    char output[PATH_MAX_BYTES]; // "DIR/part-2-of-3"; "-" for standard output
    char text[64];               // for the manifest: "2/3 HASH", over the paths and sizes of the files of all parts
} RunPart;

// Reads I/N of --part: 2 unless 1 <= I <= N.
int part_parse(const char *option, unsigned *number, unsigned *count);

// From --part I/N or, when `option` is NULL, from the Slurm array or launcher that started this process, if it started
// more than one. -1 after fail() (2).
int part_choose(RunPart *part, const char *option, const char *directory);

// Sets `text`, removes the files of the other parts from the inputs, and prints which part this is. 2 when there are
// fewer files than parts.
int part_take(RunPart *part, Inputs *inputs);

// For merge: 2 when the part at `index` of the sorted parts was made from other files than the first, or has another
// number.
int part_check(const Dataset *part, const Dataset *first, int index);

// For merge: sorts datasets that --part made by their number. Fails with 2 or 66 when parts of the run are missing or
// have not finished, and names them all. Leaves datasets with other names as they are.
int part_sort(char **paths, int count);
