// Checkpoints beside training: parameters and optimizer state are copied to host memory, which the run waits for, and a
// thread writes the copy to files, which it does not.
#pragma once

#include "common/err.h"
#include "common/machine/processor_time.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/host_copy.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct {
    HostCopy *copy; // set these three first; all are borrowed. A copy without memory: saves wait
    const Config *config;
    const Lock *lock;        // of out_dir
    RunState state;          // of the copy
    ProcessorTime processor; // of the thread, for the last save
    int metrics_fd;
    pthread_t thread;
    bool running;
    atomic_bool done;
    int result;
    Error error;
} CheckpointWriter;

void checkpoint_writer_close(CheckpointWriter *writer); // waits; accepts a zeroed struct

// Copies the network (NULL: the copy has been filled) and starts to write out_dir/ckpt-STEP, after an fsync of
// metrics_fd, whose lines up to that step must not be lost. False: there is no copy, or the last save still runs.
bool checkpoint_writer_start(CheckpointWriter *writer, const Network *network, const RunState *state, int metrics_fd);

// The result of the last save: 1 written (its state is writer->state), 0 nothing to report, -1 after fail(). With
// `wait` a running save is waited for.
int checkpoint_writer_result(CheckpointWriter *writer, bool wait);
