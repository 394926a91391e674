// A dataset's description in Croissant 1.1 (https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html), JSON-LD:
// the manifest and the files of each split, splits and shards as records, and the sources. What only its owner can say,
// license, url, creator and datePublished, is left out.
#pragma once

#include "dataset/dataset.h"

int croissant_print(const Dataset *dataset, Buffer *out); // -1 after fail(): the manifest cannot be read
