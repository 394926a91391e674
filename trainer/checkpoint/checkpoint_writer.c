// Checkpoints beside training.
#include "trainer/checkpoint/checkpoint_writer.h"
#include "common/log.h"
#include "common/machine/host_memory.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

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

// Takes the pages from the system while there is room.
static bool populate(char *copy, size_t bytes) {
    for (size_t done = 0, next; done < bytes; done += next) {
        if (!(next = host_memory_next(bytes - done))) return false;
        memset(copy + done, 0, next);
    }
    return true;
}

void checkpoint_writer_open(CheckpointWriter *writer, const Network *network, const Config *config, uint64_t left) {
    const MemoryPlan *plan = network->plan;
    *writer = (CheckpointWriter){.config = config, .copy_bytes = plan->copy_bytes};
    const uint64_t arena = network->ops->in_host_memory ? plan->bytes : 0;
    const bool limited = arena && config->mem_limit && arena + plan->copy_bytes > config->mem_limit;
    if (plan->shards == 1 && (limited || plan->copy_bytes + plan->staging > left)) return;
    void *copy = mmap(NULL, plan->copy_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    float *staging = malloc(plan->staging);
    if (copy == MAP_FAILED || !staging || !populate(copy, plan->copy_bytes)) {
        err_clear();
        if (copy != MAP_FAILED) munmap(copy, plan->copy_bytes);
        free(staging);
        return;
    }
    writer->ops = *network->ops;
    writer->ops.download = writer->ops.upload = copy_bytes, writer->ops.zero = zero_bytes;
    if (writer->ops.master_bytes) writer->ops.par_bytes = writer->ops.master_bytes, writer->ops.master_bytes = 0;
    writer->plan = *plan;
    writer->plan.bytes = plan->copy_bytes, writer->plan.host_bytes = 0, writer->plan.shards = 1;
    size_t at = writer->plan.params = writer->plan.master = 0;
    at += master_bytes(network);
    for (int i = 0; i < plan->optimizer->state_count; i++) writer->plan.states[i] = at, at += state_bytes(network, i);
    writer->view = (Network){.ops = &writer->ops,
                             .model = network->model,
                             .plan = &writer->plan,
                             .collective = &collective_none,
                             .arena = copy,
                             .staging = staging};
}

void checkpoint_writer_close(CheckpointWriter *writer) {
    if (writer->running) pthread_join(writer->thread, NULL);
    if (writer->view.arena) munmap(writer->view.arena, writer->copy_bytes);
    free(writer->view.staging);
    *writer = (CheckpointWriter){0};
}

static void *write_copy(void *argument) {
    CheckpointWriter *writer = argument;
    setpriority(PRIO_PROCESS, 0, 10); // of this thread: training goes first
    writer->result = fsync(writer->metrics_fd) < 0
                         ? fail_errno("cannot sync the metrics of the run in '%s'", writer->config->out_dir)
                         : checkpoint_save(&writer->view, &writer->state, writer->config, writer->config->out_dir);
    err_take(&writer->error);
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    writer->processor_s = (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
    atomic_store(&writer->done, true);
    return NULL;
}

static void copy_range(const Network *network, size_t offset, void *copy, size_t bytes) {
    const void *from = network_at(network, offset);
    if (offset < network->plan->bytes)
        network->ops->download(copy, from, bytes);
    else
        memcpy(copy, from, bytes);
}

bool checkpoint_writer_start(CheckpointWriter *writer, const Network *network, const RunState *state, int metrics_fd) {
    if (!writer->view.arena || writer->running) return false;
    if (network) copy_range(network, network->plan->master, writer->view.arena, master_bytes(network));
    for (int i = 0; network && i < network->plan->optimizer->state_count; i++)
        copy_range(network, network->plan->states[i], writer->view.arena + writer->plan.states[i],
                   state_bytes(network, i));
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
