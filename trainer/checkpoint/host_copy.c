// The copy that checkpoints are written from beside training.
#include "trainer/checkpoint/host_copy.h"
#include "common/err.h"
#include "common/machine/host_memory.h"
#include "common/machine/hugepages.h"
#include <stdlib.h>
#include <string.h>

static void copy_bytes(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static void zero_bytes(void *copy, size_t bytes) { memset(copy, 0, bytes); }

static size_t master_bytes(const Network *network) {
    const Backend *ops = network->ops;
    return network->model->elements * (ops->master_bytes ? ops->master_bytes : ops->par_bytes);
}

static size_t state_bytes(const Network *network, int state) {
    const StateRange *range = &network->plan->optimizer->states[state];
    return optimizer_elements(range, network->model) * optimizer_element_bytes(range, network->ops);
}

// Takes the pages from the system while there is room; without it there is no copy.
static bool populate(HostCopy *copy) {
    enum { PAGE = 4096 };
    volatile unsigned char *arena = copy->view.arena;
    for (size_t done = 0, next; done < copy->plan.bytes && !copy->populated; done += next) {
        if (!(next = host_memory_next(copy->plan.bytes - done))) return err_clear(), host_copy_close(copy), false;
        for (size_t page = done; page < done + next; page += PAGE) arena[page] = 0;
    }
    return copy->populated = true;
}

void host_copy_open(HostCopy *copy, const Network *network, const Config *config, uint64_t left) {
    const MemoryPlan *plan = network->plan;
    const uint64_t arena = network->ops->in_host_memory ? plan->bytes : 0;
    const bool limited = arena && config->mem_limit && arena + plan->copy_bytes > config->mem_limit;
    *copy = (HostCopy){0};
    if (plan->shards == 1 && (limited || plan->copy_bytes + plan->staging > left)) return;
    void *memory = hugepages_alloc(plan->copy_bytes);
    float *staging = malloc(plan->staging);
    if (!memory || !staging) {
        hugepages_free(memory);
        free(staging);
        return;
    }
    copy->ops = *network->ops;
    copy->ops.download = copy->ops.upload = copy_bytes, copy->ops.zero = zero_bytes;
    if (copy->ops.master_bytes) copy->ops.par_bytes = copy->ops.master_bytes, copy->ops.master_bytes = 0;
    copy->plan = *plan;
    copy->plan.bytes = plan->copy_bytes, copy->plan.host_bytes = 0, copy->plan.shards = 1;
    size_t at = copy->plan.params = copy->plan.master = 0;
    at += master_bytes(network);
    for (int i = 0; i < plan->optimizer->state_count; i++) copy->plan.states[i] = at, at += state_bytes(network, i);
    copy->view = (Network){.ops = &copy->ops,
                           .model = network->model,
                           .plan = &copy->plan,
                           .collective = &collective_none,
                           .arena = memory,
                           .staging = staging};
    if (plan->shards > 1) populate(copy);
}

void host_copy_close(HostCopy *copy) {
    hugepages_free(copy->view.arena);
    free(copy->view.staging);
    *copy = (HostCopy){0};
}

static void copy_range(const Network *network, size_t offset, void *to, size_t bytes) {
    const void *from = network_at(network, offset);
    if (offset < network->plan->bytes)
        network->ops->download(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

bool host_copy_fill(HostCopy *copy, const Network *network) {
    if (!copy->view.arena || !populate(copy)) return false;
    copy_range(network, network->plan->master, copy->view.arena, master_bytes(network));
    for (int i = 0; i < network->plan->optimizer->state_count; i++)
        copy_range(network, network->plan->states[i], copy->view.arena + copy->plan.states[i], state_bytes(network, i));
    return true;
}
