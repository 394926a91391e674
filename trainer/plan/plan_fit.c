// Whether the plan of a configuration fits the memory.
#include "trainer/plan/plan_fit.h"
#include "common/machine/host_memory.h"

const OffloadMode offload_choices[] = {OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_OPTIMIZER_GRADIENTS, OFFLOAD_ALL};

MemoryLimits memory_limits(const Config *config, const Backend *backend, bool here) {
    const uint64_t part = (here ? host_memory_free(NULL) : 0) / (config->local_world ? config->local_world : 1);
    MemoryLimits limits = {config->mem_limit, part > HOST_REST ? part - HOST_REST : part > 0};
    const uint64_t left = !here ? 0 : backend->in_host_memory ? limits.host : backend->free_bytes;
    if (left && (!limits.arena || left < limits.arena)) limits.arena = left;
    return limits;
}

uint64_t plan_host_bytes(const MemoryPlan *plan, const Backend *backend) {
    return plan->host_bytes + (backend->in_host_memory ? plan->bytes : 0);
}

uint64_t plan_host_left(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits) {
    const uint64_t need = plan_host_bytes(plan, backend);
    if (!limits->host) return UINT64_MAX;
    return limits->host > need ? limits->host - need : 0;
}

bool plan_fits(const MemoryPlan *plan, const Backend *backend, const MemoryLimits *limits) {
    return (!limits->arena || plan->bytes <= limits->arena) &&
           (!limits->host || plan_host_bytes(plan, backend) <= limits->host);
}

size_t plan_size(const Config *config, const Model *model, const Backend *backend, const MemoryLimits *limits,
                 bool *fits) {
    MemoryPlan plan;
    memory_plan_init(&plan, config, model, backend, optimizer_of(config->optimizer));
    *fits = plan_fits(&plan, backend, limits);
    return plan.bytes;
}
