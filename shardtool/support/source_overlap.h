// Compares the paths of inputs with the output, and with the sources of the dataset that --append adds to.
#pragma once

#include "dataset/dataset.h"
#include "shardtool/ingest/inputs.h"

// Fails (2) when the input is the output or lies in it, as a command that is killed while it replaces its own input
// cannot be repeated. Fails also when the output lies in the input, a dataset, whose removal would remove both.
int refuse_as_output(const char *input, const char *output);

// Fails (2) when the output is a folder of the inputs or lies in one, where the next run would read it as an input. It
// may lie there when that run leaves its files out, because of a name that begins with a dot or by `filter`. `filter`
// may be NULL, `output` NULL or "-".
int refuse_within_inputs(const char *output, const Inputs *inputs, const InputFilter *filter);

// -1 (2) when an input is a source of `base` that has changed, is a source under another name, holds a source, or lies
// in a folder that was a source, unless the other files of that folder are exactly those that were read. Paths of
// sources are looked up from the current directory; those that do not exist any more are not compared.
int source_overlap_check(const Dataset *base, const Inputs *inputs, const InputFilter *filter);
