// The NCCL row: the exchange between the GPUs of the ranks, on a stream of its own beside the backend's. It has never
// run on a GPU: it was tested in the emulator with a simulated NCCL.
//
// The communicator is not a blocking one: every call returns before the other ranks have made theirs, and this file
// polls, because NCCL itself waits for a dead process forever. The host never waits for the stream in a step; events
// order it with the backend's stream.
//
// A sum in a fixed order is made here, and one of bf16 operands, which NCCL would add in bf16: each rank sends the
// others their pieces, and receives theirs of its own share. Each rank sends as much as in a ring, but over a link that
// g GPUs of a machine share, up to g times as much.
//
// NCCL has shares of one size. If the last ones are shorter or empty, a group of one reduction or one broadcast for
// each rank moves the same bytes.
#include "common/err.h"
#include "common/log.h"
#include "kernels/collective.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/libraries/nccl.h"
#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHECK_MS = 50, MS = 1000000 }; // between two checks of the other ranks during a wait; ns

// Blocks of threads of an exchange, each of which takes a multiprocessor from the backward pass beside it. NCCL by
// itself takes up to 32; NCCL_MAX_CTAS sets another number. Not measured.
enum { MOST_BLOCKS = 16 };

static ncclComm_t comm;
static cudaStream_t stream;

// The exchanges between two waits, up to each finish. The operations of a phase run after the exchanges of the one
// before.
enum { PHASES = 5 };      // a step has up to three, and one that the step before has deferred
enum { PIECE = 1 << 20 }; // elements of an ordered sum that are received from each rank at a time
typedef struct {
    cudaEvent_t computed, exchanged; // the operations before the exchanges are done; the exchanges so far are done
} Phase;
static Phase phases[PHASES];
static unsigned phase;
static bool has_deferred;                   // the last phase: no operation waits for it yet
static cudaEvent_t marks[COLLECTIVE_MARKS]; // NULL until they are used
static float *received;                     // a slot for each rank: the piece it has sent

static uint64_t sent;

// The library, and which GPU this is.
static int nccl_load_on(uint8_t card[COLLECTIVE_CARD]) {
    int device = 0;
    struct cudaDeviceProp facts;
    cuda_check(cudaGetDevice(&device), "naming the GPU");
    cuda_check(cudaGetDeviceProperties(&facts, device), "naming the GPU");
    memcpy(card, facts.uuid.bytes, COLLECTIVE_CARD);
    return nccl_load();
}

// ---- waits

// Lets time pass. -1 after fail() when a rank was lost, or none has answered for too long.
static int pass(const Collective *collective, uint64_t started_ns, uint64_t *checked_ns, unsigned polls) {
    if (polls < 1000) return sched_yield(), 0;
    usleep(50);
    const uint64_t now = clock_ns();
    if (now - *checked_ns < (uint64_t)CHECK_MS * MS) return 0;
    *checked_ns = now;
    return collective_check(collective, (now - started_ns) / MS);
}

static int failed(int code, const char *what, ncclResult_t result) {
    const char *more = nccl.GetLastError(comm);
    return fail(code, "%s%s: NCCL reports: %s%s%s", code == EX_AGAIN ? "stopped: " : "", what,
                nccl.GetErrorString(result), more && *more ? ": " : "", more ? more : "");
}

// Ends a call that has returned `result`: NCCL may still be connecting the ranks. code: of an error.
static int settle(const Collective *collective, ncclResult_t result, int code, const char *what) {
    const uint64_t started = clock_ns();
    uint64_t checked = started;
    for (unsigned polls = 0; result == NCCL_IN_PROGRESS; polls++) {
        ncclResult_t state = NCCL_SUCCESS;
        const ncclResult_t asked = nccl.CommGetAsyncError(comm, &state);
        result = asked ? asked : state;
        if (result == NCCL_IN_PROGRESS && pass(collective, started, &checked, polls) < 0) return -1;
    }
    return result == NCCL_SUCCESS ? 0 : failed(code, what, result);
}

// Whether the exchanges wait for operations of this rank's GPU, which wait for no other rank.
static bool is_own_turn(unsigned finished) {
    for (unsigned i = 0; i < finished; i++) {
        if (cudaEventQuery(phases[i].computed) == cudaErrorNotReady) return true;
        if (cudaEventQuery(phases[i].exchanged) == cudaErrorNotReady) return false;
    }
    return has_deferred && cudaEventQuery(phases[finished].computed) == cudaErrorNotReady;
}

// Exits (80) when this rank's GPU hangs; the other ranks notice a rank that has ended. given_up: the wait for them
// ends, and its own GPU has kept this rank all the time.
static void watch_own(DeviceWait *own, unsigned finished, bool given_up) {
    if (!is_own_turn(finished)) return;
    device_wait_count(own);
    if (given_up) device_wait_fail(own);
}

// The phases before `finished` are over; a deferred one becomes the first.
static void forget_phases(unsigned finished) {
    const Phase first = phases[0];
    if (has_deferred) phases[0] = phases[finished], phases[finished] = first;
    phase = has_deferred;
}

// If exchanges are deferred, it waits for the operations before them: the host would wait for these without a look at
// the other ranks.
static int nccl_wait(const Collective *collective) {
    const uint64_t started = clock_ns();
    uint64_t checked = started, watched = started;
    DeviceWait own = {.what = "computing before an exchange with other GPUs"};
    const unsigned finished = phase - has_deferred;
    if (!phase) return 0;
    const cudaEvent_t last = has_deferred ? phases[finished].computed : phases[finished - 1].exchanged;
    for (unsigned polls = 0;; polls++) {
        const cudaError_t done = cudaEventQuery(last);
        if (done == cudaSuccess) return forget_phases(finished), 0;
        if (done != cudaErrorNotReady) cuda_check(done, "exchanging with other GPUs");
        (void)cudaGetLastError(); // else the next launch would report it
        ncclResult_t state = NCCL_SUCCESS;
        const ncclResult_t asked = nccl.CommGetAsyncError(comm, &state);
        if (asked || state) return failed(EX_AGAIN, "exchanging with other GPUs", asked ? asked : state);
        const int status = pass(collective, started, &checked, polls);
        if (watched != checked) watch_own(&own, finished, status < 0);
        if (status < 0) return -1;
        watched = checked;
    }
}

// ---- exchanges

static void begin(void) {
    assert(phase < PHASES);
    cuda_check(cudaEventRecord(phases[phase].computed, cuda.stream), "ordering an exchange");
    cuda_check(cudaStreamWaitEvent(stream, phases[phase].computed, 0), "ordering an exchange");
}

static size_t share_of(size_t total, size_t share, unsigned rank) {
    const size_t first = rank * share;
    if (first >= total) return 0;
    return total - first < share ? total - first : share;
}

// The part of a rank's share that belongs to the piece at `at`.
static size_t piece_of(size_t total, size_t share, unsigned rank, size_t at) {
    const size_t size = share_of(total, share, rank), left = at < size ? size - at : 0;
    return left < PIECE ? left : PIECE;
}

// Ends a group with the first error of its calls, else its own.
static ncclResult_t end_group(ncclResult_t result) {
    const ncclResult_t ended = nccl.GroupEnd();
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS ? ended : result;
}

static ncclResult_t reduce_to_each(const Collective *collective, float *values, size_t count, size_t share) {
    ncclResult_t result = nccl.GroupStart();
    for (unsigned rank = 0; rank < collective->world && result == NCCL_SUCCESS; rank++) {
        const size_t size = share_of(count, share, rank);
        float *part = values + rank * share;
        if (size) result = nccl.Reduce(part, part, size, NCCL_FLOAT32, NCCL_SUM, (int)rank, comm, stream);
        if (result == NCCL_IN_PROGRESS) result = NCCL_SUCCESS; // the group's end reports it
    }
    return end_group(result);
}

static ncclResult_t broadcast_of_each(const Collective *collective, char *values, size_t bytes, size_t share) {
    ncclResult_t result = nccl.GroupStart();
    for (unsigned rank = 0; rank < collective->world && result == NCCL_SUCCESS; rank++) {
        const size_t size = share_of(bytes, share, rank);
        char *part = values + rank * share;
        if (size) result = nccl.Broadcast(part, part, size, NCCL_UINT8, (int)rank, comm, stream);
        if (result == NCCL_IN_PROGRESS) result = NCCL_SUCCESS;
    }
    return end_group(result);
}

static int nccl_reduce_scatter(const Collective *collective, float *values, size_t count, size_t share) {
    const bool even = count == collective->world * share;
    begin();
    const ncclResult_t result = even ? nccl.ReduceScatter(values, values + collective->rank * share, share,
                                                          NCCL_FLOAT32, NCCL_SUM, comm, stream)
                                     : reduce_to_each(collective, values, count, share);
    sent += (count - share_of(count, share, collective->rank)) * sizeof *values; // as a ring does
    return settle(collective, result, EX_AGAIN, "summing gradients of GPUs");
}

static float *slot_of(unsigned rank) { return received + (size_t)rank * PIECE; }

// In bf16 the first half of a rank's slot has this rank's operand of its piece, and the second half receives.
static void round_pieces(const Collective *collective, const float *values, size_t count, size_t share, size_t at) {
    for (unsigned i = 0; i < collective->world; i++) {
        const size_t size = piece_of(count, share, i, at);
        if (size) OF_DEVICE(write_bf16)(stream, slot_of(i), values + i * share + at, size);
    }
}
static float *arrival_of(unsigned rank, bool bf16) { return slot_of(rank) + (bf16 ? PIECE / 2 : 0); }

// Exchanges the shares' pieces at `at`: sends the others theirs, if this rank has an operand, and receives its own.
static ncclResult_t exchange_pieces(const Collective *collective, const float *values, size_t count, size_t share,
                                    size_t at, const OrderedSum *sum) {
    const unsigned rank = collective->rank, ranks = sum->ranks;
    const size_t mine = piece_of(count, share, rank, at), bytes = sum->bf16 ? sizeof(uint16_t) : sizeof(float);
    if (sum->bf16 && rank < ranks) round_pieces(collective, values, count, share, at);
    ncclResult_t result = nccl.GroupStart();
    for (unsigned i = 0; i < collective->world; i++) {
        const size_t theirs = piece_of(count, share, i, at);
        if (i == rank) continue;
        if (theirs && rank < ranks && result == NCCL_SUCCESS) {
            const float *from = sum->bf16 ? slot_of(i) : values + i * share + at;
            result = nccl.Send(from, theirs * bytes, NCCL_UINT8, (int)i, comm, stream);
            sent += theirs * bytes;
        }
        if (result == NCCL_IN_PROGRESS) result = NCCL_SUCCESS; // the group's end reports it
        if (mine && i < ranks && result == NCCL_SUCCESS)
            result = nccl.Recv(arrival_of(i, sum->bf16), mine * bytes, NCCL_UINT8, (int)i, comm, stream);
        if (result == NCCL_IN_PROGRESS) result = NCCL_SUCCESS;
    }
    return end_group(result);
}

static int nccl_ordered_sum(const Collective *collective, float *values, size_t count, size_t share,
                            const OrderedSum *sum) {
    const unsigned rank = collective->rank;
    begin();
    for (size_t at = 0; at < share; at += PIECE) {
        const size_t mine = piece_of(count, share, rank, at);
        const ncclResult_t result = exchange_pieces(collective, values, count, share, at, sum);
        if (settle(collective, result, EX_AGAIN, "summing gradients of GPUs") < 0) return -1;
        const RankSums sums = {.after = sum->after + at,
                               .before = sum->before ? sum->before + at : NULL,
                               .own = sum->bf16 ? slot_of(rank) : values + rank * share + at,
                               .received = arrival_of(0, sum->bf16),
                               .stride = sum->bf16 ? 2 * PIECE : PIECE,
                               .rank = rank,
                               .ranks = sum->ranks,
                               .bf16 = sum->bf16};
        if (mine) OF_DEVICE(sum_ranks)(stream, &sums, mine);
    }
    return 0;
}

static int nccl_all_gather(const Collective *collective, void *buffer, size_t bytes, size_t share) {
    char *values = buffer;
    const bool even = bytes == collective->world * share;
    begin();
    const ncclResult_t result =
        even ? nccl.AllGather(values + collective->rank * share, values, share, NCCL_UINT8, comm, stream)
             : broadcast_of_each(collective, values, bytes, share);
    sent += bytes - share_of(bytes, share, collective->rank);
    return settle(collective, result, EX_AGAIN, "copying between GPUs");
}

static void nccl_defer(void) {
    assert(phase < PHASES && !has_deferred);
    cuda_check(cudaEventRecord(phases[phase++].exchanged, stream), "ordering an exchange");
    has_deferred = true;
}

static void nccl_mark(int place) {
    assert(place < COLLECTIVE_MARKS);
    if (!marks[place]) cuda_check(cudaEventCreateWithFlags(&marks[place], cudaEventDisableTiming), "creating an event");
    cuda_check(cudaEventRecord(marks[place], stream), "ordering an exchange");
}

static void nccl_await(int place) {
    const cudaEvent_t event = place < 0 ? phases[phase - 1].exchanged : marks[place];
    cuda_check(cudaStreamWaitEvent(cuda.stream, event, 0), "ordering an exchange");
    if (place < 0) has_deferred = false;
}

static void nccl_finish(void) {
    nccl_defer();
    nccl_await(-1);
}

// ---- open and close

// Each exchange once, so that NCCL connects the GPUs and allocates its buffers before free memory is measured.
static int warm_up(const Collective *collective) {
    const size_t world = collective->world, share = 1024;
    float *values = NULL;
    cuda_check(cudaMalloc((void **)&received, world * PIECE * sizeof *received), "memory to sum gradients of GPUs");
    cuda_check(cudaMalloc((void **)&values, world * share * sizeof *values), "memory to try NCCL");
    cuda_check(cudaMemsetAsync(values, 0, world * share * sizeof *values, cuda.stream), "clearing device memory");
    for (int even = 0; even < 2; even++) {
        const size_t count = world * share - (even ? 0 : share / 2);
        const OrderedSum sum = {.ranks = collective->world, .after = values + collective->rank * share, .bf16 = even};
        if (nccl_reduce_scatter(collective, values, count, share) < 0) return -1;
        if (nccl_ordered_sum(collective, values, count, share, &sum) < 0) return -1;
        if (nccl_all_gather(collective, values, count * sizeof *values, share * sizeof *values) < 0) return -1;
    }
    nccl_finish();
    if (nccl_wait(collective) < 0) return -1;
    cuda_wait(cuda.stream, "trying NCCL");
    cuda_check(cudaFree(values), "trying NCCL");
    sent = 0;
    return 0;
}

static int nccl_make_id(uint8_t id[COLLECTIVE_ID]) {
    ncclUniqueId made;
    const ncclResult_t result = nccl.GetUniqueId(&made);
    if (result != NCCL_SUCCESS) return failed(EX_GPU, "starting NCCL", result);
    memcpy(id, made.bytes, COLLECTIVE_ID);
    return 0;
}

static int nccl_open(const Collective *collective, const uint8_t id[COLLECTIVE_ID]) {
    ncclUniqueId made;
    ncclConfig_t config = {.size = sizeof config,
                           .magic = NCCL_CONFIG_MAGIC,
                           .version = NCCL_CONFIG_VERSION,
                           .cluster_size = NCCL_CONFIG_DEFAULT,
                           .least_blocks = NCCL_CONFIG_DEFAULT,
                           .most_blocks = MOST_BLOCKS};
    int version = 0, least, highest;
    memcpy(made.bytes, id, COLLECTIVE_ID);
    // else the blocks of an exchange wait for the blocks of products that were launched before it
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &highest), "creating a stream");
    cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest), "creating a stream");
    for (int i = 0; i < PHASES; i++) {
        cuda_check(cudaEventCreateWithFlags(&phases[i].computed, cudaEventDisableTiming), "creating an event");
        cuda_check(cudaEventCreateWithFlags(&phases[i].exchanged, cudaEventDisableTiming), "creating an event");
    }
    const ncclResult_t result =
        nccl.CommInitRankConfig(&comm, (int)collective->world, made, (int)collective->rank, &config);
    if (settle(collective, result, EX_GPU, "joining the GPUs of all processes") < 0) return -1;
    if (warm_up(collective) < 0) return -1;
    backend_cuda_measure();
    (void)nccl.GetVersion(&version);
    log_line("NCCL %d.%d.%d joins %u GPUs", version / 10000, version / 100 % 100, version % 100, collective->world);
    return 0;
}

static uint64_t nccl_sent(void) { return sent; }

// An abort is also the end of a communicator that has nothing to do, and never waits for another rank.
static void nccl_close(void) {
    if (comm) (void)nccl.CommAbort(comm);
    comm = NULL;
    if (stream) {
        cuda_wait(stream, "ending the exchanges with other GPUs");
        for (int i = 0; i < PHASES; i++) {
            (void)cudaEventDestroy(phases[i].computed);
            (void)cudaEventDestroy(phases[i].exchanged);
        }
        for (int i = 0; i < COLLECTIVE_MARKS; i++) {
            if (marks[i]) (void)cudaEventDestroy(marks[i]);
            marks[i] = NULL;
        }
        (void)cudaStreamDestroy(stream);
        cuda_wait(cuda.stream, "ending the exchanges with other GPUs"); // with the operations that waited for them
        if (received) (void)cudaFree(received);
    }
    stream = NULL, received = NULL;
    phase = 0, has_deferred = false;
}

const DeviceCollectiveRow collective_nccl = {
    "nccl",      nccl_load_on, nccl_make_id, nccl_open,  nccl_reduce_scatter, nccl_ordered_sum, nccl_all_gather,
    nccl_finish, nccl_mark,    nccl_await,   nccl_defer, nccl_wait,           nccl_sent,        nccl_close};
