// The MPI row: a shared object that collective.c loads. It uses nothing of the programs.
//
// Every transfer is non-blocking and polled, because MPI itself waits for a dead process forever. Sums are added here,
// in the order of the ranks: the order inside MPI_Reduce is the library's own. Each rank sends as much as in a ring:
// (world - 1) / world of the buffer.
#include "kernels/collective.h"
#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull // ns
enum {
    PIECE = 256 << 10,    // elements or bytes that are exchanged with each rank at a time
    BROADCAST = 64 << 20, // bytes
    CHECK_MS = 50         // between two checks of the other ranks during a wait
};

// The identity of a rank, exchanged at the start. A process of this machine that has ended is noticed at once.
typedef struct {
    char machine[120];
    int64_t pid;
} Peer;

// A heartbeat: a rank that has waited for half of the timeout, or that is to stop, sends one byte to each other rank. A
// rank that hangs sends none.
typedef struct {
    MPI_Request incoming;
    uint64_t received_ns;
    char byte;
} Heartbeat;
enum { TAG_SUMS, TAG_SHARES, TAG_HEARTBEAT };
static const char ALIVE = 'a', STOPS = 's'; // the byte

static CollectiveSettings settings;
static bool beats_sent; // the heartbeats of this wait are sent
static bool stop_sent;  // and those that this rank is to stop
static int rank, world;
static Peer *peers;
static MPI_Request *requests; // 2 for each rank
static Heartbeat *heartbeats; // of each rank
static float *received;       // a slot for each rank: the piece it has sent
static uint64_t sent;         // bytes

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void heartbeat_expect(int from) {
    MPI_Irecv(&heartbeats[from].byte, 1, MPI_BYTE, from, TAG_HEARTBEAT, MPI_COMM_WORLD, &heartbeats[from].incoming);
}

static void heartbeat_exchange(uint64_t waited_ms) {
    const bool half = waited_ms > settings.timeout_ms / 2, due = half && !beats_sent;
    beats_sent = half;
    const bool stops = *settings.stop && !stop_sent;
    if (stops) stop_sent = true;
    for (int i = 0, done; i < world; i++) {
        MPI_Request outgoing;
        if (i == rank) continue;
        if ((due || stops) &&
            MPI_Isend(stops ? &STOPS : &ALIVE, 1, MPI_BYTE, i, TAG_HEARTBEAT, MPI_COMM_WORLD, &outgoing) == MPI_SUCCESS)
            MPI_Request_free(&outgoing);
        if (MPI_Test(&heartbeats[i].incoming, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) continue;
        heartbeats[i].received_ns = now_ns();
        if (heartbeats[i].byte == STOPS) stop_sent = true, atomic_fetch_add(settings.stop, 1);
        heartbeat_expect(i);
    }
}

// The first rank without a heartbeat during this wait. -1: every rank has sent one.
static int find_silent(uint64_t waited_ms) {
    const uint64_t started = now_ns() - waited_ms * MS;
    for (int i = 0; i < world; i++)
        if (i != rank && heartbeats[i].received_ns < started) return i;
    return -1;
}

static int fail_silent(int silent, char *why) {
    const int seconds = (int)(settings.timeout_ms / 1000);
    if (silent < 0)
        snprintf(why, COLLECTIVE_WHY, "no rank has gone on for %d s: each waits for another one or for its GPU",
                 seconds);
    else
        snprintf(why, COLLECTIVE_WHY, "rank %d (process %d) did not answer for %d s", silent, (int)peers[silent].pid,
                 seconds);
    return -1;
}

static int find_ended(void) {
    for (int i = 0; i < world; i++)
        if (!strcmp(peers[i].machine, peers[rank].machine) && kill((pid_t)peers[i].pid, 0) < 0 && errno == ESRCH)
            return i;
    return -1;
}

// Late in a wait, a rank that has ended may have given up on a rank that hangs: then the silent rank is the cause.
static int mpi_check(uint64_t waited_ms, char *why) {
    heartbeat_exchange(waited_ms);
    const int ended = find_ended(), silent = find_silent(waited_ms);
    const bool late = waited_ms > settings.timeout_ms / 10 * 9;
    if (waited_ms > settings.timeout_ms || (ended >= 0 && late && silent >= 0)) return fail_silent(silent, why);
    if (ended >= 0)
        return snprintf(why, COLLECTIVE_WHY, "rank %d (process %d) has ended", ended, (int)peers[ended].pid), -1;
    return settings.while_waiting ? settings.while_waiting(settings.self) : 0;
}

static int wait_all(int count, char *why) {
    uint64_t started = now_ns(), checked = started;
    for (int polls = 0, done = 0;; polls++) {
        if (MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            return snprintf(why, COLLECTIVE_WHY, "MPI reports a failed transfer"), -1;
        if (done) return 0;
        if (polls < 1000) {
            sched_yield();
            continue;
        }
        usleep(50);
        const uint64_t now = now_ns();
        if (now - checked < CHECK_MS * MS) continue;
        checked = now;
        if (mpi_check((now - started) / MS, why) < 0) return -1;
    }
}

static void send(const void *values, size_t bytes, int to, int tag, MPI_Request *request) {
    MPI_Isend(values, (int)bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
    sent += bytes;
}

// The part of a share that belongs to the piece at `at`.
static size_t piece_of(size_t total, size_t share, int owner, size_t at) {
    const size_t first = (size_t)owner * share + at;
    if (at >= share || first >= total) return 0;
    size_t size = share - at < PIECE ? share - at : PIECE;
    return first + size > total ? total - first : size;
}

// Where a piece from a rank arrives: at the end of its slot, the second half of it in bf16.
static void *arrival(int from, size_t bytes) {
    return (char *)received + ((size_t)(from + 1) * sizeof *received - bytes) * PIECE;
}

// What this rank sends of `values`: themselves, or in bf16 the first half of the slot of the rank that receives it.
static const void *operand(int to, const float *values, size_t count, bool bf16) {
    uint16_t *rounded = (uint16_t *)(received + (size_t)to * PIECE);
    for (size_t k = 0; k < count && bf16; k++) rounded[k] = bf16_of(values[k]);
    return bf16 ? (const void *)rounded : values;
}

// Converts the bf16 numbers that have arrived into floats, in the same slot, from the first one on.
static void widen(int from, size_t count) {
    const char *halves = arrival(from, sizeof(uint16_t));
    for (size_t k = 0; k < count; k++) {
        uint16_t half;
        memcpy(&half, halves + k * sizeof half, sizeof half);
        const float value = bf16_value(half);
        memcpy(received + (size_t)from * PIECE + k, &value, sizeof value);
    }
}

// The first `count` elements of a piece: of `before` and of what each rank has sent, to `after`.
static void add_in_order(const float *before, float *after, size_t count, int ranks) {
    const float *first = before ? before : received;
    if (after != first) memcpy(after, first, count * sizeof *after);
    for (int i = before ? 0 : 1; i < ranks; i++) {
        const float *other = received + (size_t)i * PIECE;
        for (size_t k = 0; k < count; k++) after[k] += other[k];
    }
}

static int mpi_ordered_sum(float *values, size_t count, size_t share, const OrderedSum *sum, char *why) {
    const int ranks = (int)sum->ranks;
    const size_t bytes = sum->bf16 ? sizeof(uint16_t) : sizeof(float);
    for (size_t at = 0; at < share; at += PIECE) {
        const size_t mine = piece_of(count, share, rank, at);
        int pending = 0;
        for (int i = 0; i < world; i++) {
            const size_t theirs = piece_of(count, share, i, at);
            if (i == rank) continue;
            if (mine && i < ranks)
                MPI_Irecv(arrival(i, bytes), (int)(mine * bytes), MPI_BYTE, i, TAG_SUMS, MPI_COMM_WORLD,
                          &requests[pending++]);
            if (theirs && rank < ranks)
                send(operand(i, values + (size_t)i * share + at, theirs, sum->bf16), theirs * bytes, i, TAG_SUMS,
                     &requests[pending++]);
        }
        if (wait_all(pending, why) < 0) return -1;
        if (!mine) continue;
        if (rank < ranks)
            memcpy(arrival(rank, bytes), operand(rank, values + (size_t)rank * share + at, mine, sum->bf16),
                   mine * bytes);
        for (int i = 0; i < ranks && sum->bf16; i++) widen(i, mine);
        add_in_order(sum->before ? sum->before + at : NULL, sum->after + at, mine, ranks);
    }
    return 0;
}

static int mpi_all_gather(void *values, size_t bytes, size_t share, char *why) {
    char *base = values;
    for (size_t at = 0; at < share; at += PIECE) {
        const size_t mine = piece_of(bytes, share, rank, at);
        int pending = 0;
        for (int i = 0; i < world; i++) {
            const size_t theirs = piece_of(bytes, share, i, at);
            if (i == rank) continue;
            if (theirs)
                MPI_Irecv(base + (size_t)i * share + at, (int)theirs, MPI_BYTE, i, TAG_SHARES, MPI_COMM_WORLD,
                          &requests[pending++]);
            if (mine) send(base + (size_t)rank * share + at, mine, i, TAG_SHARES, &requests[pending++]);
        }
        if (wait_all(pending, why) < 0) return -1;
    }
    return 0;
}

static int mpi_broadcast(void *values, size_t bytes, char *why) {
    for (size_t at = 0; at < bytes; at += BROADCAST) {
        const size_t size = bytes - at < BROADCAST ? bytes - at : BROADCAST;
        MPI_Ibcast((char *)values + at, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD, requests);
        if (wait_all(1, why) < 0) return -1;
    }
    return 0;
}

static int mpi_barrier(char *why) {
    MPI_Ibarrier(MPI_COMM_WORLD, requests);
    return wait_all(1, why);
}

// Host name and boot: containers on one machine have names of their own.
static void name_machine(char *name, size_t size) {
    gethostname(name, size / 2);
    name[size / 2] = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    const size_t used = strlen(name);
    if (file && !fgets(name + used, (int)(size - used), file)) name[used] = 0;
    if (file) fclose(file);
}

static int mpi_open(const CollectiveSettings *given, RankPlace *place, char *why) {
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
        return snprintf(why, COLLECTIVE_WHY, "MPI_Init_thread failed"), -1;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &world);
    settings = *given;
    *place = (RankPlace){.rank = (unsigned)rank, .world = (unsigned)world};
    peers = calloc((size_t)world, sizeof *peers);
    requests = calloc((size_t)world * 2, sizeof *requests);
    heartbeats = calloc((size_t)world, sizeof *heartbeats);
    received = calloc((size_t)world * PIECE, sizeof *received);
    if (!peers || !requests || !heartbeats || !received)
        return snprintf(why, COLLECTIVE_WHY, "no memory for %d ranks", world), -1;
    Peer self = {.pid = getpid()};
    name_machine(self.machine, sizeof self.machine);
    for (int i = 0; i < world; i++) {
        peers[i] = self; // until the exchange below
        heartbeats[i].incoming = MPI_REQUEST_NULL;
        if (i != rank) heartbeat_expect(i);
    }
    if (mpi_all_gather(peers, (size_t)world * sizeof *peers, sizeof *peers, why) < 0) return -1;
    while (strcmp(peers[place->local_first].machine, self.machine)) place->local_first++;
    for (int i = 0; i < world; i++) {
        const unsigned here = !strcmp(peers[i].machine, self.machine);
        place->local_world += here, place->local += i < rank && here;
    }
    return 0;
}

static uint64_t mpi_sent(void) { return sent; }

static void mpi_close(void) {
    for (int i = 0; i < world; i++) {
        if (i == rank) continue;
        MPI_Cancel(&heartbeats[i].incoming);
        MPI_Request_free(&heartbeats[i].incoming);
    }
    MPI_Finalize();
    free(peers), free(requests), free(heartbeats), free(received);
}

extern const CollectiveRow collective_mpi;
const CollectiveRow collective_mpi = {"mpi",       mpi_open,  mpi_ordered_sum, mpi_all_gather, mpi_broadcast,
                                      mpi_barrier, mpi_check, mpi_sent,        mpi_close};
