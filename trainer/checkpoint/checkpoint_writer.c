// Checkpoints beside training.
#include "trainer/checkpoint/checkpoint_writer.h"
#include <sys/resource.h>
#include <unistd.h>

void checkpoint_writer_close(CheckpointWriter *writer) {
    if (writer->running) pthread_join(writer->thread, NULL);
    *writer = (CheckpointWriter){0};
}

static void *write_copy(void *argument) {
    CheckpointWriter *writer = argument;
    setpriority(PRIO_PROCESS, 0, 10); // of this thread: training goes first
    writer->result = fsync(writer->metrics_fd) < 0
                         ? fail_errno("cannot sync the metrics of the run in '%s'", writer->config->out_dir)
                         : checkpoint_save(&writer->copy->view, &writer->state, writer->config, writer->config->out_dir,
                                           writer->lock);
    err_take(&writer->error);
    writer->processor = processor_time_of_thread();
    atomic_store(&writer->done, true);
    return NULL;
}

bool checkpoint_writer_start(CheckpointWriter *writer, const Network *network, const RunState *state, int metrics_fd) {
    if (!writer->copy->view.arena || writer->running) return false;
    if (network && !host_copy_fill(writer->copy, network)) return false;
    writer->state = *state, writer->metrics_fd = metrics_fd, writer->done = false;
    writer->running = pthread_create(&writer->thread, NULL, write_copy, writer) == 0;
    return writer->running;
}

int checkpoint_writer_result(CheckpointWriter *writer, bool wait) {
    if (!writer->running || (!wait && !atomic_load(&writer->done))) return 0;
    pthread_join(writer->thread, NULL);
    writer->running = false;
    if (writer->result == 0) return 1;
    err_give(&writer->error);
    return -1;
}
