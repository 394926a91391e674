// TMA and mbarriers: copies of tiles, and stores, that are done late or, in every other order, at once, and what waits
// for them.
#include "tests/cuda/emulator/device.h"
#include "tests/cuda/emulator/emu_engine.h"
#include "tests/cuda/emulator/exchange.h"

#include <cuda.h>
#include <utility>

using emu::self;

namespace emu {

struct Load { // to shared memory; it has been read when it started
    char *to;
    std::string data;
    uint64_t *landed;
};
struct Phases { // of a barrier
    int arrivals, left;
    long bytes; // announced, less those that have landed
    unsigned phase;
    Seen published;
};
static std::map<const uint64_t *, Phases> barriers; // of this block
static std::vector<Load> loads;                     // that have not landed

static Phases *barrier_at(const uint64_t *b) {
    auto found = barriers.find(b);
    if (found == barriers.end()) die("a barrier that was not opened");
    return &found->second;
}

static void end_phase(Phases *b) {
    if (b->left || b->bytes) return;
    b->left = b->arrivals, b->phase++, progress++;
}

static void land(const Load &load) {
    memcpy(load.to, load.data.data(), load.data.size());
    Phases *b = barrier_at(load.landed);
    b->bytes -= (long)load.data.size();
    if (b->bytes < 0 && b->left == b->arrivals) die("more bytes than were announced");
    end_phase(b);
}

void tma_begin() { barriers.clear(); }

static unsigned stores_due; // rises when a store that is waited for has to be done
static int waiting_for_stores;

bool tma_land() {
    if (loads.empty() && !waiting_for_stores) return false;
    if (loads.empty() || (emu_order == 2 && waiting_for_stores)) return stores_due++, true; // either may be the last
    for (const Load &load : loads) land(load);
    loads.clear();
    return true;
}

// In every other order, all other threads go first.
static void wait_for_stores() {
    if (emu_order & 1 || fiber_of_self()->store_groups.empty()) return;
    waiting_for_stores++;
    wait_for_change(&stores_due);
    waiting_for_stores--;
}

void tma_end() {
    if (!loads.empty()) die("a block ended before what was copied has landed");
}

} // namespace emu

// ---- tensor maps

struct EmuTensorMap { // what cuTensorMapEncodeTiled writes here
    char *at;
    uint64_t sizes[4], strides[3];
    uint32_t rows; // of a tile
};

static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *at, const cuuint64_t *sizes,
                       const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill fill) {
    EmuTensorMap to = {(char *)at, {}, {}, box[2]};
    bool good = rank == 4 && (uintptr_t)at % 16 == 0 && !interleave && swizzle == CU_TENSOR_MAP_SWIZZLE_128B && !fill &&
                (type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
    for (int i = 0; i < 4; i++) good &= sizes[i] && sizes[i] >> 32 == 0 && steps[i] == 1, to.sizes[i] = sizes[i];
    for (int i = 0; i < 3; i++) good &= strides[i] % 16 == 0 && strides[i] >> 40 == 0, to.strides[i] = strides[i];
    good &= box[0] == 64 && box[1] == 1 && box[2] && box[2] <= 256 && box[3] == 1; // rows of 128 bytes, the swizzle's
    memcpy(map, &to, sizeof to);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The driver's library, of which programs know no more.
namespace emu {
void *driver_library() { return &barriers; }
void *driver_function(const char *name) { return strcmp(name, "cuTensorMapEncodeTiled") ? nullptr : (void *)encode; }
} // namespace emu

// ---- barriers

void barrier_open(uint64_t *b, int arrivals) {
    emu::check_access(b, sizeof *b, "barrier_open");
    emu::barriers[b] = {arrivals, arrivals, 0, 0, {}};
}

void barriers_opened() {}

void barrier_arrive_with(uint64_t *b, int bytes) {
    emu::Phases *at = emu::barrier_at(b);
    if (!at->left) emu::die("more arrivals than the barrier was opened for");
    emu::Fiber *fiber = emu::fiber_of_self();
    emu::join(at->published, fiber->seen);
    if (fiber->writes) at->published[emu::thread_number(self)] = fiber->writes;
    at->left--, at->bytes += bytes;
    emu::end_phase(at);
}

void emu_barrier_wait(uint64_t *b, int parity, const char *place) {
    emu::Phases *at = emu::barrier_at(b);
    self->waits_at = place;
    while ((int)(at->phase & 1) == parity) emu::wait_for_change(&at->phase);
    self->waits_at = nullptr;
    emu::join(emu::fiber_of_self()->seen, at->published);
}

// ---- copies

void memory_fence() { emu::fiber_of_self()->acquired = false; }

// What a copy reads of memory, now.
static void read_memory(std::string &data, const char *from, size_t bytes) {
    if (emu::fiber_of_self()->acquired) emu::die("TMA after an acquire without memory_fence");
    for (size_t i = 0; i < bytes; i += 16) {
        char part[16];
        emu::read_through(from + i, part, 16);
        data.append(part, 16);
    }
}

static void start(emu::Load load) {
    emu::check_access(load.to, load.data.size(), "destination of a copy");
    if (emu_order & 1)
        emu::land(load);
    else
        emu::loads.push_back(std::move(load));
}

void copy_bytes(void *to, const void *from, int bytes, uint64_t *landed) {
    if (((uintptr_t)to | (uintptr_t)from | (unsigned)bytes) & 15) emu::die("copy_bytes: no multiple of 16");
    emu::Load load = {(char *)to, {}, landed};
    read_memory(load.data, (const char *)from, (size_t)bytes);
    start(std::move(load));
}

// 16 bytes of a tile; memory: NULL beyond the map.
struct TilePart {
    char *shared, *memory;
};

static std::vector<TilePart> parts_of_tile(const TensorMap &opaque, int head, int row, int b, const void *shared) {
    EmuTensorMap map;
    memcpy(&map, &opaque, sizeof map);
    if (shared_offset(shared) % 1024) emu::die("a tile is not at a multiple of 1024 bytes");
    std::vector<TilePart> parts;
    for (uint64_t r = 0; r < map.rows; r++)
        for (uint64_t c = 0; c < 8; c++) {
            const uint64_t at[] = {c * 8, (uint64_t)head, (uint64_t)row + r, (uint64_t)b};
            char *memory = map.at + c * 16;
            for (int i = 0; i < 4; i++) {
                if (at[i] >= map.sizes[i]) memory = nullptr;
                if (memory && i) memory += at[i] * map.strides[i - 1];
            }
            parts.push_back({(char *)shared + r * 128 + (c ^ (r & 7)) * 16, memory});
        }
    return parts;
}

void copy_tile(void *to, const TensorMap &map, int head, int row, int b, uint64_t *landed) {
    const std::vector<TilePart> parts = parts_of_tile(map, head, row, b, to);
    emu::Load load = {(char *)to, std::string(parts.size() * 16, 0), landed};
    for (const TilePart &part : parts) {
        std::string bytes;
        if (part.memory) read_memory(bytes, part.memory, 16);
        load.data.replace((size_t)(part.shared - (char *)to), bytes.size(), bytes);
    }
    start(std::move(load));
}

// The store reads shared memory ...
static void read_store(emu::Store &store) {
    if (store.was_read) return;
    for (const auto &[to, from] : store.parts) {
        const size_t at = (size_t)(from - emu::dynamic_shared);
        if (at + 16 > emu::dynamic_bytes) emu::die("a store reads beyond shared memory");
        if (emu::unfenced[at / 16]) emu::die("a store reads what was written without async_fence");
        store.data.append(from, 16);
    }
    store.was_read = true;
}

// ... and writes memory.
static void write_store(emu::Store &store) {
    read_store(store);
    for (size_t i = 0; i < store.parts.size(); i++) {
        char *to = store.parts[i].first;
        float part[4], old[4] = {};
        memcpy(part, store.data.data() + i * 16, 16);
        if (store.add) emu::read_through(to, old, 16);
        for (int k = 0; k < 4 && store.add; k++) part[k] += old[k];
        emu::write_through(to, part, 16);
    }
}

static void start(emu::Store store) {
    if (emu::fiber_of_self()->acquired) emu::die("TMA after an acquire without memory_fence");
    if (emu_order & 1) read_store(store);
    emu::fiber_of_self()->open_stores.push_back(std::move(store));
}

void bulk_store(void *to, const void *from, int bytes, bool add) {
    if (((uintptr_t)to | (uintptr_t)from | (unsigned)bytes) & 15) emu::die("bulk_store: no multiple of 16");
    emu::Store store = {{}, add, false, {}};
    for (int i = 0; i < bytes; i += 16) store.parts.push_back({(char *)to + i, (const char *)from + i});
    start(std::move(store));
}

void store_tile(const TensorMap &opaque, int head, int row, int b, const void *from) {
    emu::Store store = {{}, false, false, {}};
    for (const TilePart &part : parts_of_tile(opaque, head, row, b, from))
        if (part.memory) store.parts.push_back({part.memory, part.shared});
    start(std::move(store));
}

void bulk_commit() {
    emu::Fiber *fiber = emu::fiber_of_self();
    fiber->store_groups.push_back(std::move(fiber->open_stores));
    fiber->open_stores.clear();
}

void bulk_wait() {
    emu::wait_for_stores();
    for (auto &group : std::exchange(emu::fiber_of_self()->store_groups, {}))
        for (emu::Store &store : group) write_store(store);
}

void bulk_wait_read() {
    emu::wait_for_stores();
    for (auto &group : emu::fiber_of_self()->store_groups)
        for (emu::Store &store : group) read_store(store);
}
