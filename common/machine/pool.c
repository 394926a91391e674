// The ordered worker pool: a ring of jobs under one lock.
#include "common/machine/pool.h"
#include "common/bytes.h"
#include "common/machine/cgroup.h"
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool done;
    int status;
    Error error;
} Slot;

typedef struct {
    Pool *pool;
    unsigned index;
    pthread_t thread;
} Worker;

struct Pool {
    PoolWork *work;
    unsigned char *jobs;
    size_t job_bytes;
    unsigned count, threads;
    Worker *workers;
    Slot *slots;
    uint64_t submitted, started, collected; // counts of jobs; job n is in slot n % count
    bool closing;
    pthread_mutex_t lock;
    pthread_cond_t more, less;
};

// Does the next job that nobody has begun. The lock is held before and after.
static void do_next(Pool *pool, unsigned worker) {
    unsigned slot = (unsigned)(pool->started++ % pool->count);
    pthread_mutex_unlock(&pool->lock);

    int status = pool->work(pool->jobs + slot * pool->job_bytes, worker);

    pthread_mutex_lock(&pool->lock);
    pool->slots[slot].status = status;
    err_take(&pool->slots[slot].error);
    pool->slots[slot].done = true;
}

static void *run(void *argument) {
    Worker *worker = argument;
    Pool *pool = worker->pool;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->started == pool->submitted && !pool->closing) pthread_cond_wait(&pool->more, &pool->lock);
        if (pool->closing) break;
        do_next(pool, worker->index);
        if (pool->slots[pool->collected % pool->count].done) pthread_cond_signal(&pool->less);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

Pool *pool_open(unsigned threads, PoolWork *work, void *jobs, size_t job_bytes, unsigned count) {
    if (!threads) threads = pool_cores();
    Pool *pool = allocate_zeroed(1, sizeof *pool);
    pool->work = work, pool->jobs = jobs, pool->job_bytes = job_bytes, pool->count = count;
    pool->workers = allocate_zeroed(threads, sizeof *pool->workers);
    pool->slots = allocate_zeroed(count, sizeof *pool->slots);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    pthread_cond_init(&pool->less, NULL);
    for (; pool->threads < threads; pool->threads++) {
        Worker *worker = &pool->workers[pool->threads];
        *worker = (Worker){.pool = pool, .index = pool->threads};
        int error = pthread_create(&worker->thread, NULL, run, worker);
        if (error) {
            fail(EX_LIMIT, "cannot start thread %u of %u: %s (see ulimit -u)", pool->threads + 1, threads,
                 strerror(error));
            pool_close(pool);
            return NULL;
        }
    }
    return pool;
}

unsigned pool_threads(const Pool *pool) { return pool->threads; }

void *pool_acquire(Pool *pool) { // only the owner changes submitted and collected: no lock
    if (pool->submitted - pool->collected == pool->count) return NULL;
    return pool->jobs + (pool->submitted % pool->count) * pool->job_bytes;
}

void pool_submit(Pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->slots[pool->submitted % pool->count].done = false;
    pool->submitted++;
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_signal(&pool->more);
}

void pool_help(Pool *pool) {
    Error mine; // of an input whose predecessors the owner still writes
    err_take(&mine);
    pthread_mutex_lock(&pool->lock);
    while (pool->started < pool->submitted && !pool->slots[pool->collected % pool->count].done)
        do_next(pool, pool->threads);
    pthread_mutex_unlock(&pool->lock);
    err_give(&mine);
}

int pool_collect(Pool *pool, void **job) {
    *job = NULL;
    if (pool->collected == pool->submitted) return 0;
    unsigned index = (unsigned)(pool->collected % pool->count);
    Slot *slot = &pool->slots[index];
    pthread_mutex_lock(&pool->lock);
    while (!slot->done) pthread_cond_wait(&pool->less, &pool->lock);
    pool->collected++;
    pthread_mutex_unlock(&pool->lock);
    *job = pool->jobs + index * pool->job_bytes;
    if (slot->status < 0) err_give(&slot->error);
    return slot->status < 0 ? -1 : 0;
}

void pool_close(Pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->threads; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->more);
    pthread_cond_destroy(&pool->less);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool->slots);
    free(pool);
}

int pool_run(unsigned threads, PoolWork *work, void *jobs, size_t job_bytes, unsigned count) {
    void *job;
    int result = 0;
    if (!count) return 0;
    Pool *pool = pool_open(threads < count ? threads : count, work, jobs, job_bytes, count);
    if (!pool) return -1;
    while (pool_acquire(pool)) pool_submit(pool);
    do result = pool_collect(pool, &job);
    while (result == 0 && job);
    pool_close(pool);
    return result;
}

unsigned pool_cores(void) {
    cpu_set_t sets[8]; // of 1,024 processors each; Linux counts no more than 8,192
    int count = sched_getaffinity(0, sizeof sets, sets) ? 1 : CPU_COUNT_S(sizeof sets, sets);
    unsigned cores = count > 0 ? (unsigned)count : 1, quota = cgroup_limits().cpus;
    return quota && quota < cores ? quota : cores;
}
