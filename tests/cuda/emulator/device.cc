// A stand-in for the CUDA runtime. Work put into a stream is kept and done when somebody waits for it, streams taking
// turns in an order chosen by emu_order: order 0 does everything at once, the others as late as possible and whatever
// stream the program did not expect first. So a missing event, a host buffer reused too early or memory freed too soon
// give wrong results here as they would on a device. Wrong uses end the run.
#include "tests/cuda/emulator/device.h"
#include "tests/cuda/emulator/emu.h"
#include "tests/cuda/emulator/exchange.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <sanitizer/asan_interface.h>
#include <string>
#include <unistd.h>
#include <vector>

static uint64_t bytes(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}
static int number(const char *name, int otherwise) { return (int)bytes(name, (uint64_t)otherwise); }

// EMU_HANG: while a file of this name exists.
static bool is_hung_by_file() { return access(getenv("EMU_HANG"), F_OK) == 0; }

struct EmuDevice emu_device = {0, 13000, number("EMU_CAPABILITY", 80), bytes("EMU_MEMORY", 12ull << 30),
                               number("EMU_MULTIPROCESSORS", 4), number("EMU_BLOCKS", 2), 130001, 4, 1, true, -1, getenv("EMU_NVML") != nullptr, true, 2, 1 << 20, -1,
                               getenv("EMU_HANG") ? is_hung_by_file : nullptr, nullptr,
                               getenv("EMU_NAME") ? getenv("EMU_NAME") : "emulated GPU", bytes("EMU_CONTEXT", 0)};
struct EmuCounts emu_counts;

// How much of each stream is ordered before a piece of work, an event or what the host does next.
typedef std::map<cudaStream_t, uint64_t> Clock;

struct CUevent_st {
    bool timed;
    cudaStream_t stream = nullptr; // of the last record
    uint64_t asked = 0, done = 0;  // records
    double at_us = 0;
    Clock clock{};
};

struct Exchange {
    cudaStream_t stream;
    Clock clock;
    emu::Buffers buffers;
    std::function<bool()> arrive;
    bool done;
};

struct Work {
    std::function<void()> run;
    cudaEvent_t wait = nullptr; // runs once this has been recorded so often
    uint64_t needs = 0;
    std::shared_ptr<Exchange> exchange;
    Clock clock;
    bool kernel = false;
};

static Work work_of(std::function<void()> run, bool kernel = false) {
    Work work;
    work.run = std::move(run), work.kernel = kernel;
    return work;
}

struct CUstream_st {
    int priority;
    std::deque<Work> work;
    struct CUgraph_st *graph = nullptr; // being captured
    Clock clock;
    bool has_kernels = false;
};

struct CUgraph_st {
    std::vector<std::function<void()>> nodes;
};

struct CUgraphExec_st {
    std::vector<std::function<void()>> nodes;
};

enum { HIGHEST_PRIORITY = -5 };
static std::vector<cudaStream_t> streams; // in the order they were made
static std::map<const char *, size_t> pinned;
static std::map<void *, size_t> allocations;
static uint64_t random_state = 1;
static double clock_us; // of the device
const void *emu::cached;
bool emu::recording;
static std::string record; // of the calls since emu_record

#define NEED(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) emu::die("wrong use of the runtime: " #condition " in ", __func__);                          \
    } while (0)

static bool known(cudaStream_t stream) {
    for (cudaStream_t s : streams)
        if (s == stream) return true;
    return false;
}

static Clock host_clock;
static std::vector<std::shared_ptr<Exchange>> exchanges; // that some work may not be ordered after

static void join(Clock &to, const Clock &from) {
    for (auto &one : from) to[one.first] = std::max(to[one.first], one.second);
}

static bool is_before(cudaStream_t stream, const Clock &first, const Clock &second) {
    auto now = first.find(stream), at = second.find(stream);
    return now == first.end() || (at != second.end() && at->second >= now->second);
}

static bool in_flight() {
    for (auto &one : exchanges)
        if (!one->done) return true;
    return false;
}

// Forgets the exchanges that everything from here on is ordered after.
static void forget_exchanges() {
    for (cudaStream_t stream : streams)
        if (!stream->work.empty()) return;
    exchanges.erase(std::remove_if(exchanges.begin(), exchanges.end(),
                                   [](auto &one) { return one->done && is_before(one->stream, one->clock, host_clock); }),
                    exchanges.end());
}

// A wait of the host for what runs after an exchange that is not done.
static void refuse_in_flight(const Clock &waited_for) {
    for (auto &one : exchanges)
        if (!one->done && is_before(one->stream, one->clock, waited_for))
            emu::die("the host waits while an exchange is in flight: for ever, when a process is lost");
}

static bool touching; // work that no event orders with an exchange runs, and may not touch its buffers
static void explain_touch() {
    if (touching) fputs("emu: an operation touches a buffer of an exchange, and no event orders them\n", stderr);
}

void emu::touch(const void *start, size_t bytes) {
    if (!touching || !__asan_region_is_poisoned((void *)(uintptr_t)start, bytes)) return;
    emu::die("an operation touches a buffer of an exchange, and no event orders them");
}

static void run_beside_exchanges(cudaStream_t stream, const Work &work) {
    std::vector<Exchange *> unordered;
    for (auto &one : exchanges)
        if (one->stream != stream && !is_before(one->stream, one->clock, work.clock) &&
            !is_before(stream, work.clock, one->clock))
            unordered.push_back(one.get());
    __asan_set_death_callback(explain_touch);
    touching = !unordered.empty();
    for (Exchange *one : unordered)
        for (auto &buffer : one->buffers) ASAN_POISON_MEMORY_REGION(buffer.first, buffer.second);
    work.run();
    for (Exchange *one : unordered)
        for (auto &buffer : one->buffers) ASAN_UNPOISON_MEMORY_REGION(buffer.first, buffer.second);
    touching = false;
}

// An exchange that is not done: is the event recorded in its stream or, by the events that order streams, before it?
static bool is_of_exchange(cudaEvent_t event) {
    for (auto &one : exchanges)
        if (!one->done && (one->stream == event->stream || is_before(event->stream, event->clock, one->clock)))
            return true;
    return false;
}

static bool hung; // the next kernel hangs, and what is behind it in its stream; not those of the exchanges

static bool ready(cudaStream_t stream) {
    if (stream->work.empty()) return false;
    const Work &first = stream->work.front();
    if (hung && first.kernel && stream->priority != HIGHEST_PRIORITY) return false;
    if (first.exchange) return first.exchange->done = first.exchange->done || first.exchange->arrive();
    return !first.wait || first.wait->done >= first.needs;
}

// Does one piece of work of the stream that the order picks. Last made first: copies overtake what they should not.
// false: everything waits for other processes or for a kernel that hangs.
static bool step(cudaStream_t waited_for) {
    hung = emu_device.hangs && emu_device.hangs();
    std::vector<cudaStream_t> able;
    for (cudaStream_t stream : streams)
        if (ready(stream)) able.push_back(stream);
    if (able.empty() && (hung || in_flight())) return false;
    if (able.empty()) emu::die("deadlock: every stream waits for an event");
    cudaStream_t pick = able.back();
    if (emu_order == 2) pick = ready(waited_for) ? waited_for : able.front();
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    if (emu_order == 3) pick = able[(random_state >> 33) % able.size()];
    Work work = std::move(pick->work.front());
    pick->work.pop_front();
    if (work.run) run_beside_exchanges(pick, work);
    return true;
}

static void put(cudaStream_t stream, Work work) {
    NEED(known(stream));
    emu_counts.work++;
    join(stream->clock, host_clock);
    stream->clock[stream]++;
    work.clock = stream->clock;
    stream->work.push_back(std::move(work));
    if (emu_order == 0)
        while (!stream->work.empty() && step(stream)) {}
}

void emu::exchange(cudaStream_t stream, const Buffers &buffers, std::function<bool()> arrive) {
    NEED(known(stream) && !stream->graph);
    if (stream->priority != HIGHEST_PRIORITY) emu::die("an exchange in a stream that waits behind the operations");
    for (cudaStream_t other : streams)
        if (other->has_kernels && !is_before(other, other->clock, stream->clock))
            emu::die("an exchange begins, and no event orders it after the operations so far");
    forget_exchanges();
    emu::note("exchange", stream);
    Work work;
    work.exchange = std::make_shared<Exchange>(Exchange{stream, stream->clock, buffers, arrive, false});
    work.exchange->clock[stream]++;
    exchanges.push_back(work.exchange);
    put(stream, work);
}

void emu::abandon_exchanges() {
    for (auto &one : exchanges) one->done = true;
}

void emu::note_word(const char *word) { record += word; }
void emu::note_pointer(const void *pointer) { note_integer((long long)(uintptr_t)pointer); }
void emu::note_integer(long long value) { record += ' ' + std::to_string(value); }
void emu::note_real(double value) { record += ' ' + std::to_string(value); }

void emu::enqueue(cudaStream_t stream, std::function<void()> kernel, double us) {
    NEED(known(stream));
    emu_counts.launches++, stream->has_kernels = true;
    std::function<void()> work = [=] { kernel(), clock_us += us; };
    if (stream->graph)
        stream->graph->nodes.push_back(std::move(work));
    else
        put(stream, work_of(std::move(work), true));
}

// Calls that wait or allocate fail on a device while a stream is captured.
static bool capturing() {
    for (cudaStream_t stream : streams)
        if (stream->graph) return true;
    return false;
}

enum { POLL_US = 100 }; // of a query whose answer does not change, so that polling leaves the processor to others

static void drain(cudaStream_t stream) {
    NEED(known(stream) && !capturing());
    emu_counts.host_waits++, emu_counts.drains++;
    refuse_in_flight(stream->clock);
    while (!stream->work.empty())
        if (!step(stream)) usleep(POLL_US);
    join(host_clock, stream->clock);
    forget_exchanges();
}

static bool is_pinned(const void *host, size_t bytes) {
    for (auto &range : pinned)
        if ((const char *)host >= range.first && (const char *)host + bytes <= range.first + range.second) return true;
    return false;
}

static bool on_device(const void *p, size_t bytes) {
    auto after = allocations.upper_bound((void *)(uintptr_t)p);
    if (after == allocations.begin()) return false;
    auto range = std::prev(after);
    return (const char *)p + bytes <= (const char *)range->first + range->second;
}

extern "C" {

void emu_record(void) { emu::recording = true, record.clear(); }
const char *emu_recorded(void) { return record.c_str(); }

cudaError_t cudaGetDeviceCount(int *count) {
    *count = emu_device.error ? 0 : 1;
    return (cudaError_t)emu_device.error;
}
cudaError_t cudaDriverGetVersion(int *version) { return *version = emu_device.driver, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error ? "an emulated error" : "no error"; }
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int) { return snprintf(text, (size_t)size, "0000:01:00.0"), cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *device, int) {
    memset(device, 0, sizeof *device);
    snprintf(device->name, sizeof device->name, "%s", emu_device.name);
    const int card = number("EMU_CARD", (int)getpid()); // one for each process
    memcpy(device->uuid.bytes, &card, sizeof card);
    device->major = emu_device.capability / 10, device->minor = emu_device.capability % 10;
    device->multiProcessorCount = emu_device.multiprocessors;
    device->totalGlobalMem = emu_device.memory;
    device->l2CacheSize = 64 << 10;
    emu::shared_limit = device->sharedMemPerBlockOptin = emu_device.capability < 80    ? 64 * 1024
                                                         : emu_device.capability == 90 ? 227 * 1024
                                                                                       : 99 * 1024;
    emu::blocks_per_multiprocessor = emu_device.blocks_per_multiprocessor;
    return cudaSuccess;
}

static size_t allocated() {
    size_t bytes = 0;
    for (auto &range : allocations) bytes += range.second;
    return bytes;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *total = emu_device.memory, *free_bytes = *total - emu_device.context - allocated();
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **memory, size_t bytes) {
    NEED(!capturing());
    if (bytes > emu_device.memory - emu_device.context - allocated()) return cudaErrorMemoryAllocation;
    if (posix_memalign(memory, 256, bytes)) return cudaErrorMemoryAllocation;
    memset(*memory, 0xff, bytes); // NaN
    allocations[*memory] = bytes;
    emu_counts.allocations++, emu_counts.live++;
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) {
    NEED(!capturing());
    NEED(allocations.erase(memory) == 1);
    for (cudaStream_t stream : streams) NEED(stream->work.empty());
    free(memory);
    emu_counts.live--;
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void *host, size_t bytes, unsigned) {
    NEED(!is_pinned(host, 1) && !capturing());
    if (!emu_device.can_pin) return cudaErrorMemoryAllocation;
    pinned[(const char *)host] = bytes, emu_counts.live++;
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *host) {
    NEED(pinned.erase((const char *)host) == 1);
    emu_counts.live--;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *highest) {
    return *least = 0, *highest = HIGHEST_PRIORITY, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    NEED(flags == cudaStreamNonBlocking && priority <= 0 && priority >= HIGHEST_PRIORITY);
    streams.push_back(*stream = new CUstream_st{});
    (*stream)->priority = priority;
    emu_counts.live++;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    NEED(known(stream) && stream->work.empty() && !stream->graph);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    emu_counts.live--;
    return cudaSuccess;
}
// cudaStreamSynchronize and cudaEventSynchronize are missing: a GPU that hangs would block them for ever (cuda_wait).
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    NEED(known(stream) && !capturing());
    refuse_in_flight(stream->clock);
    while (!stream->work.empty())
        if (!step(stream)) return usleep(POLL_US), cudaErrorNotReady;
    emu::note("wait for a stream", stream);
    return drain(stream), cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    NEED(flags == cudaEventDisableTiming || flags == cudaEventDefault);
    *event = new CUevent_st{flags == cudaEventDefault};
    emu_counts.live++;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    NEED(event->asked == event->done);
    for (cudaStream_t stream : streams) // a stream may still have to come to its wait, which is over
        for (Work &work : stream->work)
            if (work.wait == event) work.wait = nullptr;
    delete event;
    emu_counts.live--;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    NEED(!stream->graph);
    emu::note("event", event, stream);
    uint64_t record = ++event->asked;
    put(stream, work_of([=] { event->done = record, event->at_us = clock_us; }));
    event->clock = stream->clock, event->stream = stream;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    NEED(!stream->graph);
    emu::note("stream waits", stream, event);
    Work wait;
    wait.wait = event, wait.needs = event->asked;
    join(stream->clock, event->clock);
    put(stream, wait);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    NEED(!capturing());
    if (!is_of_exchange(event)) refuse_in_flight(event->clock);
    while (event->done < event->asked)
        if (!step(streams.front())) return usleep(POLL_US), cudaErrorNotReady;
    emu::note("wait for an event", event);
    emu_counts.host_waits++;
    join(host_clock, event->clock);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    NEED(from->timed && to->timed && from->done && from->asked == from->done && to->asked == to->done);
    *ms = (float)((to->at_us - from->at_us) * 1e-3);
    emu_counts.timings++;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    emu::note("copy", to, from, bytes, kind, stream);
    NEED(!stream->graph || kind == cudaMemcpyDeviceToDevice);
    if (kind != cudaMemcpyDeviceToHost) NEED(on_device(to, bytes));
    if (kind != cudaMemcpyHostToDevice) NEED(on_device(from, bytes));
    auto copy = [=] { memcpy(to, from, bytes); };
    if (kind == cudaMemcpyHostToDevice &&
        !is_pinned(from, bytes)) { // the runtime takes pageable bytes before it returns
        std::vector<char> taken((const char *)from, (const char *)from + bytes);
        put(stream, work_of([=] { memcpy(to, taken.data(), bytes); }));
        while (emu_device.hangs && !stream->work.empty()) // inside the call, for ever behind a kernel that hangs
            if (!step(stream)) usleep(POLL_US);
    } else if (stream->graph) {
        stream->graph->nodes.push_back(copy);
    } else {
        put(stream, work_of(copy));
        if (kind == cudaMemcpyDeviceToHost && !is_pinned(to, bytes)) drain(stream);
    }
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    emu::note("set", to, value, bytes, stream);
    NEED(on_device(to, bytes));
    auto set = [=] { memset(to, value, bytes); };
    emu::cached = nullptr;
    if (stream->graph)
        stream->graph->nodes.push_back(set);
    else
        put(stream, work_of(set));
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    emu::note("graph begins");
    NEED(known(stream) && !stream->graph);
    stream->graph = new CUgraph_st;
    emu_counts.live++;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    emu::note("graph ends");
    NEED(stream->graph);
    *graph = stream->graph, stream->graph = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long) {
    *made = new CUgraphExec_st{graph->nodes};
    emu_counts.graphs++, emu_counts.live++;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, emu_counts.live--, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete graph, emu_counts.live--, cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    emu::note("graph", graph, stream);
    NEED(!stream->graph);
    for (auto &node : graph->nodes) put(stream, work_of(node, true));
    return cudaSuccess;
}

} // extern "C"
