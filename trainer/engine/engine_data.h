// The data of a run: its feed, and changes of the loader's dataset.
#pragma once

#include "trainer/engine/engine.h"

// Connects to the loader. -1 after fail(): 76 when it serves another vocabulary, 2 when its dataset is too small.
int engine_data_open(Engine *engine);

// Makes the loader's dataset the current one, with its own count of consumed samples, logs and records the change. 75
// when on_dataset_change is stop; 2 when the dataset is too small, or one that `trains` runs out of samples.
int engine_data_update(Engine *engine, bool trains);
