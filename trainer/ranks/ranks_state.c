// The state of a run, divided over its ranks (trainer/plan/shards.h) or whole on each: rank 0 reads it from files and
// writes it to them, and exchanges it with the others piece by piece, as fp32 numbers, which hold every type exactly.
#include "common/sizes.h"
#include "trainer/ranks/ranks.h"

enum { PARAMETERS = -1 }; // else the number of a state of the optimizer

// The range of a state, and its type. For PARAMETERS it is the master, or the parameters if there is no master.
static Dtype range_type(const Network *network, int state) {
    if (state != PARAMETERS) return optimizer_dtype(&network->plan->optimizer->states[state], network->ops);
    return network->ops->master_bytes ? DTYPE_FP32 : par_type(network->ops);
}
static size_t range_of(const Network *network, int state) {
    return state == PARAMETERS ? network->plan->master : network->plan->states[state];
}
static size_t range_elements(const Network *network, int state) {
    if (state == PARAMETERS) return network->model->elements;
    return optimizer_elements(&network->plan->optimizer->states[state], network->model);
}

// ---- from rank 0

// Writes elements of a whole range to the part of it that this process has.
static void put(const Network *network, int state, size_t first, size_t count, const float *values) {
    const MemoryPlan *plan = network->plan;
    const size_t range = range_of(network, state), end = first + count;
    const Dtype type = range_type(network, state);
    if (state == PARAMETERS) network_write(network, plan->params, par_type(network->ops), first, count, values);
    if (range == plan->params) return;
    if (plan->shards == 1) network_write(network, range, type, first, count, values);
    size_t local = 0; // elements that this rank has of the buckets before
    for (int i = 0; plan->shards > 1 && i < shard_buckets(network->model, plan->shards); i++) {
        const GradientBucket bucket = shard_bucket(network->model, plan->shards, i);
        const OwnedRange own = shard_range(&bucket, network->collective->rank);
        const size_t from = own.first > first ? own.first : first;
        const size_t to = own.first + own.count < end ? own.first + own.count : end;
        if (from < to)
            network_write(network, range, type, local + from - own.first, to - from, values + (from - first));
        local += bucket.share;
    }
}

static int share(Network *own, Network *whole, int state, bool all_ranks) {
    Collective *ranks = own->collective;
    const size_t total = range_elements(own, state), most = own->plan->staging / sizeof(float);
    for (size_t first = 0; first < total; first += most) {
        const size_t count = total - first < most ? total - first : most;
        if (!all_ranks || ranks_first(ranks))
            network_read(whole, range_of(whole, state), range_type(whole, state), first, count, own->staging);
        if (all_ranks && collective_broadcast(ranks, own->staging, count * sizeof(float)) < 0) return -1;
        if (whole != own || !ranks_first(ranks)) put(own, state, first, count, own->staging);
    }
    return 0;
}

int ranks_share_weights(Network *own, Network *whole) {
    if (own->collective->world == 1) return 0;
    for (int state = PARAMETERS; state < own->plan->optimizer->state_count; state++)
        if (share(own, whole, state, true) < 0) return -1;
    network_pack(own);
    return 0;
}

void ranks_copy_parameters(Network *own, Network *whole) {
    if (whole == own) return;
    share(own, whole, PARAMETERS, false);
    network_pack(own);
}

// ---- to rank 0

// The elements of a range from `at` on, at most `most` of them.
static size_t range_rest(const OwnedRange *range, size_t at, size_t most) {
    if (at >= range->count) return 0;
    return size_smaller(range->count - at, most);
}

// local: the elements that each rank has of the buckets before.
static int gather_bucket(Network *network, Network *whole, int state, const GradientBucket *bucket, size_t local) {
    Collective *ranks = network->collective;
    const size_t room = network->plan->staging / sizeof(float) / ranks->world;
    const size_t most = bucket->share < room ? bucket->share : room;
    const OwnedRange own = shard_range(bucket, ranks->rank);
    float *values = network->staging;
    for (size_t at = 0; at < bucket->share && bucket->count; at += most) {
        network_read(network, range_of(network, state), range_type(network, state), local + at,
                     range_rest(&own, at, most), values + ranks->rank * most);
        if (collective_all_gather(ranks, values, ranks->world * most * sizeof *values, most * sizeof *values) < 0)
            return -1;
        for (unsigned rank = 0; ranks_first(ranks) && rank < ranks->world; rank++) {
            const OwnedRange range = shard_range(bucket, rank);
            network_write(whole, range_of(whole, state), range_type(whole, state), range.first + at,
                          range_rest(&range, at, most), values + rank * most);
        }
    }
    return 0;
}

// Copies parameters that are their own master, all of which every rank has.
static void copy_own_masters(Network *own, Network *whole) {
    const size_t total = own->model->elements, most = own->plan->staging / sizeof(float);
    const Dtype type = par_type(own->ops);
    for (size_t first = 0; ranks_first(own->collective) && first < total; first += most) {
        const size_t count = total - first < most ? total - first : most;
        network_read(own, own->plan->params, type, first, count, own->staging);
        network_write(whole, whole->plan->params, range_type(whole, PARAMETERS), first, count, own->staging);
    }
}

int ranks_gather_state(Network *own, Network *whole, bool *needed) {
    const MemoryPlan *plan = own->plan;
    if (collective_broadcast(own->collective, needed, sizeof *needed) < 0) return -1;
    if (!*needed) return 0;
    const bool own_master = plan->master != plan->params;
    if (!own_master) copy_own_masters(own, whole);
    for (int state = own_master ? PARAMETERS : 0; state < plan->optimizer->state_count; state++) {
        size_t local = 0;
        for (int i = 0; i < shard_buckets(own->model, plan->shards); i++) {
            const GradientBucket bucket = shard_bucket(own->model, plan->shards, i);
            if (gather_bucket(own, whole, state, &bucket, local) < 0) return -1;
            local += bucket.share;
        }
    }
    return 0;
}
