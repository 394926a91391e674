// Whether the plan of a configuration fits the memory: for the choice of settings and for suggestions.
#pragma once

#include "trainer/plan/memory_plan.h"

// The memory for a plan, in bytes. 0: not known.
typedef struct {
    uint64_t arena, host;
    // Processes of this machine, one of which is rank 0; 0: it is elsewhere, or nothing is allocated here.
    unsigned copy_sharers;
} MemoryLimits;

// Memory that no plan has: the programs of trainer and loader, their threads, and the least cache of a loader.
enum { HOST_REST = 64 << 20 };

// arena: mem_limit or, if the arena is allocated on this machine (`here`), the free memory of the device, whichever is
// smaller; a card that is planned for counts as free. host: the free memory of this machine without HOST_REST, if
// `here`; the processes of a machine have equal parts, of which each leaves an equal part of rank 0's copy to rank 0.
MemoryLimits memory_limits(const Config *config, const Backend *backend, bool here);

// The memory of this machine that the plan needs, without copies for checkpoints.
uint64_t plan_host_bytes(const MemoryPlan *plan, const Backend *backend);
// The bytes that rank 0 needs besides for its copy of the divided state, if it is on this machine.
uint64_t plan_whole_bytes(const MemoryPlan *plan, const MemoryLimits *limits);
// The memory of this machine that the plan and the copy of rank 0 leave. UINT64_MAX: the free memory is not known.
uint64_t plan_host_left(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits);

bool plan_fits(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits);
// Returns the size of the arena of a training run, and whether its plan fits.
size_t plan_size(const Config *config, const Model *model, const Backend *backend, const MemoryLimits *limits,
                 bool *fits);

// The offload modes to try in this order, from fast to slow, until one fits.
enum { OFFLOAD_CHOICES = 3 };
extern const OffloadMode offload_choices[OFFLOAD_CHOICES];

// Whether several processes can train with this offload: they keep their gradients in the arena.
static inline bool offload_allowed(const Config *config, OffloadMode mode) {
    return config_world(config) == 1 || mode != OFFLOAD_ALL;
}
static inline bool is_offloaded(const Config *config) { return offload_includes(config, OFFLOAD_OPTIMIZER); }
