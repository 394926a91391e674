// Silent corruption: a micro-batch that is computed twice must give the same bits.
#pragma once

#include "trainer/model/network.h"

// Computes the first micro-batch of a step again and compares the loss and every gradient with the first run. Call it
// after that run; the gradients are then from the second. -1 (80) when a bit differs, with `step` in the message. Waits
// for the device and copies the gradients to the host.
int recheck_first_micro_batch(Network *network, float scale, uint64_t step);
