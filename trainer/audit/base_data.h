// The data of the model that a run begins with, beside the run's own.
#pragma once

#include "trainer/engine/engine.h"

// Before the first step of a run that began with a checkpoint of another run, and of one that goes on with another
// dataset, as a branch may, compares their datasets: by fingerprint,
// else by the rules that chose their validation documents. The base's rule is read where the base's run read its
// dataset. Warns if the rules differ, because one run may then validate on a document on which the other trains; prints
// what cannot be compared. It compares no documents, and not the base of the base.
void base_data_compare(const Engine *engine);
