// The state of a run, divided over its ranks (trainer/plan/shards.h) or whole on each: rank 0 reads it from files and
// writes it to them, and exchanges it with the others piece by piece, as fp32 numbers, which hold every type exactly.
#include "trainer/run/ranks.h"

enum { PARAMETERS = -1 }; // else the number of a state of the optimizer

Network *ranks_whole(Run *run) { return run->plan.shards > 1 ? &run->writer.view : &run->network; }

// A range and its type: of the parameters where they are their own master, else of the master.
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

// Writes elements of a whole range to what this process has of it.
static void put(const Network *network, int state, size_t first, size_t count, const float *values) {
    const MemoryPlan *plan = network->plan;
    const size_t range = range_of(network, state), end = first + count;
    const Dtype type = range_type(network, state);
    if (state == PARAMETERS) network_write(network, plan->params, par_type(network->ops), first, count, values);
    if (range == plan->params) return;
    if (plan->shards == 1) network_write(network, range, type, first, count, values);
    for (int i = 0; plan->shards > 1 && i < shard_buckets(network->model, plan->shards); i++) {
        const Bucket bucket = shard_bucket(network->model, plan->shards, i);
        const Shard own = shard_of(&bucket, network->collective->rank);
        const size_t from = own.first > first ? own.first : first;
        const size_t to = own.first + own.count < end ? own.first + own.count : end;
        if (from < to)
            network_write(network, range, type, own.local + from - own.first, to - from, values + (from - first));
    }
}

static int share(Run *run, int state, bool all_ranks) {
    Network *network = &run->network, *whole = ranks_whole(run);
    const size_t total = range_elements(network, state), most = run->plan.staging / sizeof(float);
    for (size_t first = 0; first < total; first += most) {
        const size_t count = total - first < most ? total - first : most;
        if (!all_ranks || ranks_first(run))
            network_read(whole, range_of(whole, state), range_type(whole, state), first, count, network->staging);
        if (all_ranks && collective_broadcast(&run->collective, network->staging, count * sizeof(float)) < 0) return -1;
        if (whole != network || !ranks_first(run)) put(network, state, first, count, network->staging);
    }
    return 0;
}

int ranks_share_weights(Run *run) {
    if (run->collective.world == 1) return 0;
    for (int state = PARAMETERS; state < run->plan.optimizer->state_count; state++)
        if (share(run, state, true) < 0) return -1;
    network_pack(&run->network);
    return 0;
}

int ranks_load_parameters(Run *run, const char *path) {
    Network *whole = ranks_whole(run);
    if (checkpoint_load(whole, path, false) < 0) return -1;
    if (whole == &run->network) return 0;
    share(run, PARAMETERS, false);
    network_pack(&run->network);
    return 0;
}

// ---- to rank 0

// The elements of a rank's shard from `at` on, at most `most` of them.
static size_t shard_rest(const Shard *shard, size_t at, size_t most) {
    if (at >= shard->count) return 0;
    return shard->count - at < most ? shard->count - at : most;
}

static int gather_bucket(Run *run, int state, const Bucket *bucket) {
    Network *network = &run->network, *whole = ranks_whole(run);
    Collective *ranks = &run->collective;
    const size_t room = run->plan.staging / sizeof(float) / ranks->world;
    const size_t most = bucket->share < room ? bucket->share : room;
    const Shard own = shard_of(bucket, ranks->rank);
    float *values = network->staging;
    for (size_t at = 0; at < bucket->share && bucket->count; at += most) {
        network_read(network, range_of(network, state), range_type(network, state), own.local + at,
                     shard_rest(&own, at, most), values + ranks->rank * most);
        if (collective_all_gather(ranks, values, ranks->world * most * sizeof *values, most * sizeof *values) < 0)
            return -1;
        for (unsigned rank = 0; ranks_first(run) && rank < ranks->world; rank++) {
            const Shard shard = shard_of(bucket, rank);
            network_write(whole, range_of(whole, state), range_type(whole, state), shard.first + at,
                          shard_rest(&shard, at, most), values + rank * most);
        }
    }
    return 0;
}

// Every rank has all parameters that are their own master.
static void copy_parameters(Run *run) {
    const Network *network = &run->network, *whole = ranks_whole(run);
    const size_t total = run->model.elements, most = run->plan.staging / sizeof(float);
    const Dtype type = par_type(network->ops);
    for (size_t first = 0; ranks_first(run) && first < total; first += most) {
        const size_t count = total - first < most ? total - first : most;
        network_read(network, run->plan.params, type, first, count, network->staging);
        network_write(whole, whole->plan->params, range_type(whole, PARAMETERS), first, count, network->staging);
    }
}

int ranks_gather_state(Run *run, bool *needed) {
    const MemoryPlan *plan = &run->plan;
    if (collective_broadcast(&run->collective, needed, sizeof *needed) < 0) return -1;
    if (!*needed) return 0;
    const bool own_master = plan->master != plan->params;
    if (!own_master) copy_parameters(run);
    for (int state = own_master ? PARAMETERS : 0; state < plan->optimizer->state_count; state++)
        for (int i = 0; i < shard_buckets(&run->model, plan->shards); i++) {
            const Bucket bucket = shard_bucket(&run->model, plan->shards, i);
            if (gather_bucket(run, state, &bucket) < 0) return -1;
        }
    return 0;
}
