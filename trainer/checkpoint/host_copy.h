// A copy of parameters and optimizer state in host memory, as a network for checkpoint_save and checkpoint_load.
#pragma once

#include "trainer/model/network.h"

typedef struct {
    Network view; // arena NULL: there is no copy
    MemoryPlan plan;
    Backend ops;
    bool populated; // its pages were taken from the system
} HostCopy;

// Reserves it (plan->copy_bytes) if mem_limit has room for it, and the memory that the plan has left on this machine;
// if processes divide the state (plan->shards), takes its pages now, in any case. The network is borrowed.
void host_copy_open(HostCopy *copy, const Network *network, const Config *config, uint64_t left);
void host_copy_close(HostCopy *copy); // accepts a zeroed struct

// Copies the network's parameters and optimizer state. The first call takes the pages. False if there is no copy, or no
// longer room for it, which ends it.
bool host_copy_fill(HostCopy *copy, const Network *network);
