// The update, slice by slice: in place, or, if the optimizer's state is offloaded, through the slots of the arena while
// the slices before and after are being copied.
#pragma once

#include "trainer/model/network.h"

// Calls `use` for each slice, in arena order, and does not wait: host memory holds the new state after the next
// download.
void offload_slices(const Network *network, void (*use)(const Network *network, const Slice *slice));
