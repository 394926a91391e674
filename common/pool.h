// Worker threads with a bounded ring of jobs: submitted in order, handed back in the same order.
//
//   ...input | pool_acquire, fill, pool_submit | workers | pool_collect | output, in order...
//
// One thread feeds and drains; the jobs belong to the caller, who may keep arenas in them.
#pragma once

#include "common/err.h"
#include <stddef.h>

typedef struct Pool Pool;

// Runs in a worker; returns 0, or -1 after fail(). `worker` is 0 .. threads-1.
typedef int PoolWork(void *job, unsigned worker);

// `jobs` is an array of `count` jobs of `job_bytes` each, borrowed until pool_close. NULL after fail (71).
// threads 0 = pool_cores().
Pool *pool_open(unsigned threads, PoolWork *work, void *jobs, size_t job_bytes, unsigned count);
unsigned pool_threads(const Pool *pool);

void *pool_acquire(Pool *pool);           // the next job to fill, NULL when all are in flight: pool_collect first
void pool_submit(Pool *pool);             // the job that pool_acquire gave last
int pool_collect(Pool *pool, void **job); // waits for the oldest; *job NULL when none is in flight; -1 with its error
void pool_close(Pool *pool);              // waits for what runs, drops what waits; accepts NULL

unsigned pool_cores(void); // cores this process may use (affinity)
