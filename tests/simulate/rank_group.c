// Trainers that step together: they compare their datasets and agree on each step by the trainer's own functions, over
// an exchange of the simulation. When one is killed, all start again, as mpirun and a supervisor do. No step may mix
// two datasets.
#include "kernels/collective.h"
#include "tests/simulate/scenario.h"
#include "trainer/optim/step.h"
#include "trainer/ranks/ranks.h"
#include <stdlib.h>
#include <string.h>

enum { EXCHANGE_MAX = 1 << 20 };

static struct {
    uint64_t round;
    unsigned arrived;
    uint8_t given[EXCHANGE_MAX], result[EXCHANGE_MAX];
} exchange;
static struct {
    uint64_t number;
    uint8_t fingerprint[32];
    unsigned ranks; // that have taken it
} step;
static Collective collectives[TRAINERS_MAX];

static bool round_is_over(void *self) { return exchange.round != *(const uint64_t *)self; }

static const Trainer *this_trainer(void) {
    const Trainer *trainer = sim_world.trainers;
    while (trainer->node != sim_node) trainer++;
    return trainer;
}

static int all_gather(void *values, size_t bytes, size_t share, char why[COLLECTIVE_WHY]) {
    const size_t from = share * (size_t)this_trainer()->number;
    uint64_t round = exchange.round;
    (void)why;
    if (bytes > EXCHANGE_MAX) sim_fail("an exchange of %zu bytes", bytes);
    if (from < bytes)
        memcpy(exchange.given + from, (uint8_t *)values + from, share < bytes - from ? share : bytes - from);
    if (++exchange.arrived == sim_world.ranks) {
        memcpy(exchange.result, exchange.given, bytes);
        exchange.arrived = 0, exchange.round++;
    }
    task_sleep(sim_spread(50 * US));
    while (exchange.round == round) task_wait(round_is_over, &round, UINT64_MAX);
    memcpy(values, exchange.result, bytes);
    return 0;
}

static int broadcast(void *values, size_t bytes, char why[COLLECTIVE_WHY]) {
    return all_gather(values, bytes, bytes, why);
}

static const CollectiveRow row = {.name = "simulated", .all_gather = all_gather, .broadcast = broadcast};

void ranks_restart(void) {
    exchange.round++, exchange.arrived = 0;
    step.ranks = 0;
    for (unsigned i = 0; i < sim_world.ranks; i++) {
        Trainer *trainer = &sim_world.trainers[i];
        const uint64_t rows = trainer->rows;
        if (trainer->node) node_kill(trainer->node);
        collectives[i] = (Collective){.row = &row, .rank = i, .world = sim_world.ranks};
        trainer->ranks = &collectives[i];
        trainer->next = sim_world.trainers[0].first + (step.number * sim_world.ranks + i) * rows,
        trainer->skip = rows * (sim_world.ranks - 1);
        trainer->node = node_start("rank", trainer_main, trainer);
    }
}

bool ranks_begin(const Trainer *trainer, const FeedDataset *dataset) {
    const bool same = ranks_compare_data(trainer->ranks, dataset) == 0;
    err_clear();
    return same;
}

FeedResult ranks_step(Trainer *trainer, FeedResult found, const FeedDataset *dataset) {
    const FeedResult agreed = step_agree(trainer->ranks, trainer->left ? found : FEED_STOPPED);
    if (agreed == FEED_STOPPED) trainer->left = 0;
    if (agreed != FEED_BATCH) return agreed;
    if (found != FEED_BATCH) sim_fail("a step is taken without the batch of rank %d", trainer->number);
    if (step.ranks && memcmp(step.fingerprint, dataset->fingerprint, 32)) sim_fail("a step of two datasets");
    memcpy(step.fingerprint, dataset->fingerprint, 32);
    if (++step.ranks == sim_world.ranks) step.ranks = 0, step.number++;
    return FEED_BATCH;
}
