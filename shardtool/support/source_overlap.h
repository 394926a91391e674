// Finds inputs of an --append whose documents the dataset may hold already.
#pragma once

#include "shardtool/format/dataset.h"
#include "shardtool/ingest/inputs.h"

// -1 (2) when an input is a source of `base` that has changed, is a source under another name, holds a source, or lies
// in a folder that was a source, unless the other files of that folder are exactly those that were read. Paths of
// sources are looked up from the current directory; those that do not exist any more are not compared.
int source_overlap_check(const Dataset *base, const Inputs *inputs, const InputFilter *filter);
