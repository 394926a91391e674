// The data of a run: its feed, and changes of the loader's dataset.
#pragma once

#include "trainer/run/run.h"

// Connects to the loader. -1 after fail(): 76 when it serves another vocabulary, 2 when its dataset is too small.
int run_data_open(Run *run);

// Fails (2) when the run is complete and the loader has another dataset than that of its last step.
int run_data_check_complete(const Run *run);

// Makes the loader's dataset the current one, with its own count of consumed samples, and logs the change. 75 when
// on_dataset_change is stop; 2 when the dataset is too small.
int run_data_update(Run *run);
