// A stand-in for NCCL between processes of one machine, over a file that all of them map. It completes late, and ends
// the run when ranks call different collectives, counts, types or roots, or call while an earlier call is unfinished,
// with a sentence. In a group of sends and receives each has its counterpart. Of what a reduction leaves undefined,
// only zeros stay as they are.
//
// EMU_NCCL=none: the library is missing; a number: its version. EMU_NCCL_STOP: once a file of this name exists, the
// process stops after the first exchange behind a reduction, before those that need its operations in between.
#include "kernels/cuda/libraries/nccl.h"
#include "tests/cuda/emulator/device.h"
#include "tests/cuda/emulator/emu.h"
#include "tests/cuda/emulator/exchange.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

enum { RANKS = 8, CALLS = 2 * RANKS, BYTES = 16 << 20, UNSETTLED = 3, LATE = 5, PRETENDED = 22703 };

struct Call {
    enum Kind { REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST, SEND, RECEIVE } kind;
    uint64_t count;
    ncclDataType_t type;
    int root; // or the other rank
};
const char *const kinds[] = {"a reduce-scatter", "an all-gather", "a reduction", "a broadcast", "a send", "a receive"};

// What a rank shows the others of its exchange number `arrived`. They read it until they have left.
struct Shown {
    std::atomic<uint64_t> arrived, left;
    int count;
    Call calls[CALLS];
    char data[BYTES];
};

struct Common {
    std::atomic<int> joined;
    Shown of[RANKS];
};

// A group of calls, or one alone.
struct Group {
    std::vector<Call> calls;
    std::vector<const void *> from;
    std::vector<void *> to;
    cudaStream_t stream = nullptr;
    uint64_t number = 0;
    int late = 0;
    bool shown = false;
};

} // namespace

struct NcclComm {
    Common *common;
    int rank, ranks;
    uint64_t exchanges = 0;
    int unsettled = UNSETTLED; // queries until the last call has ended
    bool aborted = false;
};

namespace {

NcclComm *open_comm; // one at a time
std::shared_ptr<Group> group;
bool grouped;

size_t bytes_of(const Call &call) { return call.count * (call.type == NCCL_FLOAT32 ? 4 : 1); }

void refuse(const char *what, const char *more = "") {
    fprintf(stderr, "emu: NCCL: %s%s\n", what, more);
    abort();
}

Shown &own(NcclComm *comm) { return comm->common->of[comm->rank]; }

bool all(NcclComm *comm, std::atomic<uint64_t> Shown::*what, uint64_t number) {
    for (int i = 0; i < comm->ranks; i++)
        if ((comm->common->of[i].*what).load() < number) return false;
    return true;
}

// What this rank gives of a call: a reduce-scatter has an operand of every share.
size_t given(NcclComm *comm, const Call &call) {
    if (call.kind == Call::BROADCAST && call.root != comm->rank) return 0;
    if (call.kind == Call::RECEIVE) return 0;
    return bytes_of(call) * (call.kind == Call::REDUCE_SCATTER ? (size_t)comm->ranks : 1);
}

void show(NcclComm *comm, Group &mine) {
    Shown &shown = own(comm);
    size_t at = 0;
    shown.count = (int)mine.calls.size();
    for (size_t i = 0; i < mine.calls.size(); i++) {
        const size_t bytes = given(comm, mine.calls[i]);
        if (at + bytes > BYTES) refuse("the stand-in has too little memory");
        shown.calls[i] = mine.calls[i];
        if (bytes) memcpy(shown.data + at, mine.from[i], bytes);
        at += bytes;
    }
    shown.arrived = mine.number;
}

bool is_pair(const Call &call) { return call.kind == Call::SEND || call.kind == Call::RECEIVE; }

// The number of the call by which rank `of` sends to rank `to`, or receives from it; -1: there is none.
int pair_call(NcclComm *comm, int of, Call::Kind kind, int to) {
    const Shown &shown = comm->common->of[of];
    int found = -1;
    for (int i = 0; i < shown.count; i++) {
        if (shown.calls[i].kind != kind || shown.calls[i].root != to) continue;
        if (found >= 0) refuse("two transfers of a pair of ranks in a group");
        found = i;
    }
    return found;
}

void compare_pairs(NcclComm *comm, const Group &mine) {
    for (const Call &call : mine.calls) {
        if (!is_pair(call)) refuse("a collective in a group with transfers");
        if (call.root == comm->rank) continue;
        const int i = pair_call(comm, call.root, call.kind == Call::SEND ? Call::RECEIVE : Call::SEND, comm->rank);
        if (i < 0) refuse("no counterpart of ", kinds[call.kind]);
        if (comm->common->of[call.root].calls[i].count != call.count) refuse("ranks call different counts in ", kinds[call.kind]);
    }
}

void compare(NcclComm *comm, const Group &mine) {
    if (is_pair(mine.calls[0])) return compare_pairs(comm, mine);
    for (int rank = 0; rank < comm->ranks; rank++) {
        const Shown &theirs = comm->common->of[rank];
        if (theirs.count != (int)mine.calls.size()) refuse("ranks call groups of different sizes");
        for (int i = 0; i < theirs.count; i++) {
            const Call &a = mine.calls[(size_t)i], &b = theirs.calls[i];
            if (a.kind != b.kind) refuse("ranks call different collectives: ", kinds[a.kind]);
            if (a.count != b.count) refuse("ranks call different counts in ", kinds[a.kind]);
            if (a.type != b.type) refuse("ranks call different types in ", kinds[a.kind]);
            if (a.root != b.root) refuse("ranks call different roots in ", kinds[a.kind]);
        }
    }
}

// What rank `of` has shown of call i.
const char *data_of(NcclComm *comm, int of, size_t i) {
    const Shown &shown = comm->common->of[of];
    size_t at = 0;
    for (size_t k = 0; k < i; k++) {
        const Call &call = shown.calls[k];
        if ((call.kind == Call::BROADCAST && call.root != of) || call.kind == Call::RECEIVE) continue;
        at += bytes_of(call) * (call.kind == Call::REDUCE_SCATTER ? (size_t)comm->ranks : 1);
    }
    return shown.data + at;
}

void sum(NcclComm *comm, size_t call, size_t first, size_t count, float *to) {
    std::vector<float> total(count);
    for (int rank = 0; rank < comm->ranks; rank++) {
        const float *values = (const float *)(const void *)data_of(comm, rank, call) + first;
        for (size_t i = 0; i < count; i++) total[i] += values[i];
    }
    memcpy(to, total.data(), count * sizeof *to);
}

void spoil(const void *values, size_t count) {
    float *all = (float *)(uintptr_t)values;
    for (size_t i = 0; i < count; i++) all[i] *= -3;
}

void compute(NcclComm *comm, const Group &mine) {
    for (size_t i = 0; i < mine.calls.size(); i++) {
        const Call &call = mine.calls[i];
        const size_t bytes = bytes_of(call);
        char *to = (char *)mine.to[i];
        switch (call.kind) {
        case Call::REDUCE_SCATTER:
            spoil(mine.from[i], call.count * (size_t)comm->ranks);
            sum(comm, i, (size_t)comm->rank * call.count, call.count, (float *)mine.to[i]);
            break;
        case Call::REDUCE:
            spoil(mine.from[i], call.count);
            if (call.root == comm->rank) sum(comm, i, 0, call.count, (float *)mine.to[i]);
            break;
        case Call::ALL_GATHER:
            for (int rank = 0; rank < comm->ranks; rank++)
                memcpy(to + (size_t)rank * bytes, data_of(comm, rank, i), bytes);
            break;
        case Call::BROADCAST: memcpy(to, data_of(comm, call.root, i), bytes); break;
        case Call::RECEIVE:
            memcpy(to, data_of(comm, call.root, (size_t)pair_call(comm, call.root, Call::SEND, comm->rank)), bytes);
            break;
        case Call::SEND: break;
        }
    }
}

void stop_behind_reduction(const Group &mine) {
    static bool reduced;
    const Call::Kind kind = mine.calls[0].kind;
    const bool reduces = kind == Call::REDUCE_SCATTER || kind == Call::REDUCE;
    const char *file = getenv("EMU_NCCL_STOP");
    if (reduced && !reduces && file && access(file, F_OK) == 0) raise(SIGSTOP);
    reduced = reduces;
}

// The turn of an exchange has come; true when it is done.
bool arrive(NcclComm *comm, Group &mine) {
    if (comm->aborted) return true;
    if (!mine.shown) {
        if (!all(comm, &Shown::left, mine.number - 1)) return false;
        show(comm, mine), mine.shown = true;
    }
    if (!all(comm, &Shown::arrived, mine.number)) return false;
    if (emu_order && mine.late++ < LATE) return false;
    compare(comm, mine);
    compute(comm, mine);
    own(comm).left = mine.number;
    stop_behind_reduction(mine);
    return true;
}

bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    return (const char *)a < (const char *)b + b_bytes && (const char *)b < (const char *)a + a_bytes;
}

void refuse_overlaps(const Group &mine) {
    for (size_t i = 0; i < mine.calls.size(); i++)
        for (size_t k = 0; k < mine.calls.size(); k++)
            if (mine.calls[i].kind == Call::RECEIVE && mine.calls[k].kind == Call::SEND &&
                overlap(mine.to[i], bytes_of(mine.calls[i]), mine.from[k], bytes_of(mine.calls[k])))
                refuse("a receive over what a send reads");
}

ncclResult_t put(std::shared_ptr<Group> calls) {
    NcclComm *comm = open_comm;
    if (comm->unsettled) refuse("a call while the last one is still in progress");
    refuse_overlaps(*calls);
    emu::Buffers buffers;
    for (size_t i = 0; i < calls->calls.size(); i++) {
        const Call &call = calls->calls[i];
        const bool sends = call.kind == Call::REDUCE_SCATTER, receives = call.kind == Call::ALL_GATHER;
        if (calls->from[i]) buffers.push_back({calls->from[i], bytes_of(call) * (size_t)(sends ? comm->ranks : 1)});
        if (calls->to[i]) buffers.push_back({calls->to[i], bytes_of(call) * (size_t)(receives ? comm->ranks : 1)});
        if (sends && (const char *)calls->to[i] != (const char *)calls->from[i] + bytes_of(call) * (size_t)comm->rank)
            refuse("a reduce-scatter that is not in place");
        if (receives && (const char *)calls->from[i] != (char *)calls->to[i] + bytes_of(call) * (size_t)comm->rank)
            refuse("an all-gather that is not in place");
    }
    calls->number = ++comm->exchanges;
    comm->unsettled = UNSETTLED;
    emu::exchange(calls->stream, buffers, [=] { return arrive(comm, *calls); });
    return NCCL_IN_PROGRESS;
}

void add(Group &one, const void *from, void *to, Call what, cudaStream_t stream) {
    one.stream = stream;
    one.calls.push_back(what), one.from.push_back(from), one.to.push_back(to);
}

ncclResult_t call(const void *from, void *to, Call what, ncclComm_t comm, cudaStream_t stream) {
    if (!comm || comm != open_comm) refuse("a call of a communicator that is not open");
    std::shared_ptr<Group> one = grouped ? group : std::make_shared<Group>();
    add(*one, from, to, what, stream);
    return grouped ? NCCL_SUCCESS : put(one);
}

ncclResult_t GetVersion(int *version) {
    const char *given = getenv("EMU_NCCL");
    return *version = given ? atoi(given) : PRETENDED, NCCL_SUCCESS;
}

ncclResult_t GetUniqueId(ncclUniqueId *id) {
    strcpy(id->bytes, "nccl-XXXXXX"); // in the folder of all ranks
    const int file = mkstemp(id->bytes);
    if (file < 0 || ftruncate(file, sizeof(Common)) < 0) refuse("cannot create ", id->bytes);
    return close(file), NCCL_SUCCESS;
}

ncclResult_t CommInitRankConfig(ncclComm_t *made, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (config->size != 40 || config->magic != NCCL_CONFIG_MAGIC || config->version < 21700 || config->blocking ||
        config->cluster_size != INT_MIN || config->least_blocks != INT_MIN || config->net_name)
        refuse("a configuration of another kind");
    if (config->most_blocks < 1 || config->most_blocks > 16) refuse("too many multiprocessors for an exchange");
    if (getenv("EMU_NCCL_FAILS")) return NCCL_INVALID_USAGE;
    const int file = open(id.bytes, O_RDWR);
    void *common = mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || ranks > RANKS || common == MAP_FAILED) refuse("cannot map ", id.bytes);
    close(file);
    *made = open_comm = new NcclComm{(Common *)common, rank, ranks};
    if (++open_comm->common->joined == ranks) unlink(id.bytes);
    return NCCL_IN_PROGRESS;
}

ncclResult_t CommAbort(ncclComm_t comm) {
    comm->aborted = true; // kept: exchanges in streams refer to it
    emu::abandon_exchanges();
    open_comm = nullptr;
    return NCCL_SUCCESS;
}

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    const bool joined = comm->common->joined == comm->ranks;
    *error = !joined || comm->unsettled ? NCCL_IN_PROGRESS : NCCL_SUCCESS;
    if (joined && comm->unsettled) comm->unsettled--;
    return NCCL_SUCCESS;
}

const char *GetErrorString(ncclResult_t) { return "an emulated error"; }
const char *GetLastError(ncclComm_t) { return ""; }

ncclResult_t GroupStart() {
    if (grouped) refuse("a group inside a group");
    group = std::make_shared<Group>(), grouped = true;
    return NCCL_SUCCESS;
}
// The other ranks wait for one without calls: here all take part in every exchange.
ncclResult_t GroupEnd() {
    static cudaStream_t last;
    grouped = false;
    if (group->calls.empty()) add(*group, nullptr, nullptr, {Call::SEND, 0, NCCL_FLOAT32, open_comm->rank}, last);
    last = group->stream;
    return put(group);
}

ncclResult_t ReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
    return call(from, to, {Call::REDUCE_SCATTER, count, type, 0}, comm, stream);
}
ncclResult_t AllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                       cudaStream_t stream) {
    return call(from, to, {Call::ALL_GATHER, count, type, 0}, comm, stream);
}
ncclResult_t Reduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t, int root,
                    ncclComm_t comm, cudaStream_t stream) {
    return call(from, to, {Call::REDUCE, count, type, root}, comm, stream);
}
ncclResult_t Send(const void *from, size_t count, ncclDataType_t type, int to, ncclComm_t comm, cudaStream_t stream) {
    return call(from, nullptr, {Call::SEND, count, type, to}, comm, stream);
}
ncclResult_t Recv(void *to, size_t count, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream) {
    return call(nullptr, to, {Call::RECEIVE, count, type, from}, comm, stream);
}
ncclResult_t Broadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return call(from, to, {Call::BROADCAST, count, type, root}, comm, stream);
}

char library; // its address is the handle of the library

} // namespace

void *emu::nccl_library() {
    const char *given = getenv("EMU_NCCL");
    return given && !strcmp(given, "none") ? nullptr : &library;
}

void *emu::nccl_function(const char *name) {
#define X(result, function, arguments)                                                                                 \
    if (!strcmp(name, "nccl" #function)) return (void *)function;
    NCCL_FUNCTIONS(X)
#undef X
    return nullptr;
}
