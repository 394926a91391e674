// A pool of worker threads over a ring of jobs. Jobs are handed in and collected in the same order, whatever order the
// workers finish them in.
//
// One thread, the owner, feeds the pool and drains it. The jobs are an array that belongs to the owner and is used as a
// ring, so that their buffers are reused:
//
//   while (there is input) {
//       while (!(job = pool_acquire(pool))) pool_collect(pool, &done), write the output of `done`;
//       fill the job;
//       pool_submit(pool);
//   }
//   while (pool_collect(pool, &done), done) write the output of `done`;
//
// A job belongs to a worker from pool_submit until pool_collect returns it, and to the owner otherwise. All functions
// but pool_cores are for the owner only.
#pragma once

#include "common/err.h"
#include <stddef.h>

typedef struct Pool Pool;

// Does one job in a worker thread, `worker` in 0 .. threads - 1, or in pool_help. Returns 0, or -1 after fail();
// pool_collect hands the error to the owner.
typedef int PoolWork(void *job, unsigned worker);

// Starts the threads (0: as many as pool_cores()). `jobs` is an array of `count` jobs of `job_bytes` bytes, borrowed
// until pool_close. NULL after fail() (71) when a thread cannot be started.
Pool *pool_open(unsigned threads, PoolWork *work, void *jobs, size_t job_bytes, unsigned count);

// Waits for the jobs that are running, drops the jobs that no worker has begun, and frees the pool. Accepts NULL.
void pool_close(Pool *pool);

unsigned pool_threads(const Pool *pool);

// The next job to fill, or NULL when all jobs are submitted and not yet collected. Does not block. Calling it again
// before pool_submit returns the same job.
void *pool_acquire(Pool *pool);

// Submits the job that pool_acquire returned last. Does not block.
void pool_submit(Pool *pool);

// Waits for the oldest submitted job and returns it in *job, NULL when no job is left. The job may be acquired again by
// the next pool_acquire, so use its output before. Returns 0, or -1 with the job's error pending; *job is set in both
// cases.
int pool_collect(Pool *pool, void **job);

// Does jobs that no worker has begun, as worker number `threads`, until the oldest job is done or none is left. Before
// pool_collect, so that the owner does not sleep while there is work.
void pool_help(Pool *pool);

// Does the whole array of jobs in a pool of at most `threads` threads. -1 with the error of the first job in the array
// that failed; the jobs behind it may not have begun.
int pool_run(unsigned threads, PoolWork *work, void *jobs, size_t job_bytes, unsigned count);

// The number of cores that this process may use: its affinity mask, capped by the quota of its control groups.
// Thread-safe.
unsigned pool_cores(void);
