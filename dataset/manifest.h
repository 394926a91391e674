// The name and the first bytes of a dataset's manifest, by which readers of other files recognize it.
#pragma once

#define DATASET_MANIFEST "dataset.jsonl"
#define DATASET_BEGIN    "{\"format\":\"SHRDSET" // the version follows
