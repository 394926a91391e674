// Whether the plan of a configuration fits the memory.
#include "trainer/plan/plan_fit.h"
#include "common/machine/host_memory.h"

const OffloadMode offload_choices[] = {OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_ALL};

MemoryLimits memory_limits(const Config *config, const Backend *backend, bool here) {
    const unsigned processes = config->local_world ? config->local_world : 1;
    const uint64_t part = (here ? host_memory_free(NULL) : 0) / processes;
    MemoryLimits limits = {.arena = config->mem_limit,
                           .host = part > HOST_REST ? part - HOST_REST : part > 0,
                           .copy_sharers = here && config->local_first == 0 ? processes : 0};
    const uint64_t left = backend->in_host_memory ? limits.host : here || backend->is_planned ? backend->free_bytes : 0;
    if (left && (!limits.arena || left < limits.arena)) limits.arena = left;
    return limits;
}

uint64_t plan_host_bytes(const MemoryPlan *plan, const Backend *backend) {
    return plan->host_bytes + (backend->in_host_memory ? plan->bytes : 0);
}

uint64_t plan_whole_bytes(const MemoryPlan *plan, const MemoryLimits *limits) {
    return plan->shards > 1 && limits->copy_sharers ? plan->copy_bytes + plan->staging : 0;
}

// With an equal part of rank 0's copy.
static uint64_t host_share(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits) {
    const uint64_t whole = plan_whole_bytes(plan, limits), sharers = limits->copy_sharers;
    return plan_host_bytes(plan, backend) + (whole ? (whole + sharers - 1) / sharers : 0);
}

uint64_t plan_host_left(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits) {
    const uint64_t need = host_share(plan, backend, limits);
    if (!limits->host) return UINT64_MAX;
    return limits->host > need ? limits->host - need : 0;
}

bool plan_fits(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits) {
    return (!limits->arena || plan->bytes <= limits->arena) &&
           (!limits->host || host_share(plan, backend, limits) <= limits->host);
}

size_t plan_size(const Config *config, const Model *model, const Backend *backend, const MemoryLimits *limits,
                 bool *fits) {
    MemoryPlan plan;
    memory_plan_init(&plan, config, model, backend, optimizer_for(config));
    *fits = plan_fits(&plan, backend, limits);
    return plan.bytes;
}
