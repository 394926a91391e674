// The flat range that an optimizer updates, slice by slice: all of it in place, or, where the optimizer's state is
// offloaded, slices that come through the slots of the arena while others are on their way.
#pragma once

#include "trainer/model/network.h"

// Elements first .. first + count - 1; pointers to the first of them.
typedef struct {
    size_t first, count;
    Par *params;
    const Grad *gradients;
    void *state[1 + MOMENTS]; // master (params, where they are their own), moments
} Slice;

// Calls `update` for each slice, in order. Waits for nothing: host memory holds the new state after a download.
void offload_update(const Network *network, void (*update)(const Network *network, const Slice *slice));
