// The engine of emu.h: fibers, blocks, meetings, and the tensor-core instructions.
#include "tests/cuda/emulator/device.h"
#include "tests/cuda/emulator/emu_engine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>

// The engine itself is compiled without a sanitizer, because most of the time of a test is spent here; EMU_ASAN: the
// kernels are compiled with one. What the engine reads and writes for them is checked by check_access. The address
// sanitizer is not told of a switch of fibers: it would take a third of the time, and what it needs that for, fake
// stacks and exceptions, is not used here.
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
enum { STACK = 256 * 1024 };
#else
enum { STACK = 64 * 1024 };
#define __asan_region_is_poisoned(...) nullptr
#endif

#ifndef __x86_64__
#error "the fiber switch below is for x86-64"
#endif

extern "C" {
// oneDNN keeps a little; a small quarantine takes the same pages again and again.
const char *__asan_default_options() { return "detect_leaks=0:quarantine_size_mb=8"; }
// Set by the tests, or by EMU_ORDER: 0 forward, 1 backward, 2 random, 3 random and interleaved.
int emu_order = getenv("EMU_ORDER") ? atoi(getenv("EMU_ORDER")) : 0;
void emu_switch(void **save, void *load);
__asm__(".text\n.type emu_switch,@function\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
}

namespace emu {

Thread *self;
uint3 block_index;
dim3 block_size, grid_size;
char *dynamic_shared;
int blocks_per_multiprocessor = 2;
size_t shared_limit;

static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
struct SharedArray {
    const char *place; // of its declaration
    std::unique_ptr<char[]> memory;
};
static std::vector<SharedArray> shared_arrays;
static const char *kernel_name = "";
static const std::function<void()> *kernel_body;
static void *main_stack_pointer;
static int live;
static uint64_t random_state;
uint64_t progress;

struct Write {
    uint64_t thread;
    unsigned count; // of the thread's writes, this one included
    std::string bytes;
};
static std::map<const void *, Write> written; // by write_through in this launch
static std::map<const int *, Seen> flags;     // what a release of the flag has published
size_t dynamic_bytes;
std::vector<int> unfenced;
static Seen settled; // what all threads of this block know, joined at its barriers
static std::map<const void *, size_t> allowed_shared;

static struct {
    int arrived, votes, result;
    unsigned generation;
    const char *place;
} gate;

void die(const char *what, const char *where) {
    fprintf(stderr, "emu: %s%s in %s block (%u,%u,%u)", what, where, kernel_name, block_index.x, block_index.y,
            block_index.z);
    if (self) fprintf(stderr, " thread %d", self->index);
    fputc('\n', stderr);
    int shown = 0;
    for (const Fiber &fiber : fibers)
        if (!fiber.done && fiber.waits_at && shown++ < 4)
            fprintf(stderr, "  thread %d waits at %s\n", fiber.index, fiber.waits_at);
    abort();
}

void check_access(const void *start, size_t bytes, const char *what) {
    if (__asan_region_is_poisoned((void *)(uintptr_t)start, bytes)) die("heap-buffer-overflow: ", what);
}

static void yield() { emu_switch(&fiber_of_self()->stack_pointer, main_stack_pointer); }

void wait_for_change(const unsigned *count) {
    fiber_of_self()->waits_for = count, fiber_of_self()->old = *count;
    yield();
    fiber_of_self()->waits_for = nullptr;
}

static bool can_go_on(const Fiber &fiber) { return !fiber.done && !(fiber.waits_for && *fiber.waits_for == fiber.old); }

static void resume(Fiber *fiber) {
    self = fiber;
    emu_switch(&main_stack_pointer, fiber->stack_pointer);
}

static void fiber_main() {
    (*kernel_body)();
    if (!fiber_of_self()->open.empty()) die("cp.async never committed");
    if (!fiber_of_self()->sums.empty()) die("wgmma without a wait");
    if (!fiber_of_self()->open_stores.empty() || !fiber_of_self()->store_groups.empty())
        die("bulk_store without a wait");
    fiber_of_self()->done = true;
    live--, progress++;
    yield();
    abort();
}

uint64_t thread_number(const Thread *thread) {
    return (((uint64_t)block_index.z * grid_size.y + block_index.y) * grid_size.x + block_index.x) * 1024 +
           (unsigned)thread->index;
}

static bool includes(const Seen &seen, const Write &write) {
    auto found = seen.find(write.thread);
    return found != seen.end() && found->second >= write.count;
}

void write_through(void *to, const void *value, size_t bytes) {
    check_access(to, bytes, "__stcg");
    written[to] = {thread_number(self), ++fiber_of_self()->writes, std::string((const char *)value, bytes)};
}

void read_through(const void *from, void *value, size_t bytes) {
    check_access(from, bytes, "__ldcg");
    auto found = written.find(from);
    if (found == written.end()) {
        memcpy(value, from, bytes);
        return;
    }
    const Write &write = found->second;
    if (write.thread != thread_number(self) && !includes(settled, write) && !includes(fiber_of_self()->seen, write))
        die("reads what another thread wrote, and nothing orders the write before the read,");
    memcpy(value, write.bytes.data(), bytes);
}

void release(const int *flag) {
    Seen all = settled;
    join(all, fiber_of_self()->seen);
    all[thread_number(self)] = fiber_of_self()->writes;
    join(flags[flag], all);
}

void acquire(const int *flag) { join(fiber_of_self()->seen, flags[flag]), fiber_of_self()->acquired = true; }

static void settle_block() { // at a barrier
    for (Fiber &fiber : fibers) {
        if (!fiber.seen.empty()) join(settled, fiber.seen), fiber.seen.clear();
        if (fiber.writes) settled[thread_number(&fiber)] = fiber.writes;
    }
}

void allow_shared_of(const void *kernel, size_t bytes) { allowed_shared[kernel] = bytes; }

int barrier(int vote, const char *place) {
    self->waits_at = place;
    if (gate.arrived && gate.place != place && strcmp(gate.place, place))
        die("threads of one block meet at different barriers: ", gate.place);
    gate.votes |= vote, gate.place = place, progress++;
    if (++gate.arrived == (int)fibers.size()) {
        gate.result = gate.votes;
        gate.votes = gate.arrived = 0;
        gate.generation++;
        settle_block();
    } else {
        wait_for_change(&gate.generation);
    }
    self->waits_at = nullptr;
    return gate.result;
}

// Shows `words` to the lanes of mask and waits for all of them. The result is good until the caller meets again.
Meeting *meet(unsigned mask, const uint64_t *words, int count, const char *place) {
    Warp *warp = self->warp;
    if (warp->lanes < 32) mask &= (1u << warp->lanes) - 1;
    if (!(mask >> self->lane & 1)) die("warp collective by a lane outside its mask at ", place);
    self->waits_at = place;
    Meeting *meeting = nullptr, *spare = nullptr;
    for (Meeting *m : warp->meetings) {
        if (m->arrived && m->present & mask &&
            m->mask >> self->lane & 1) { // it waits for us and we for one of its lanes
            if (m->mask != mask) die("lanes disagree on the mask at ", place);
            if (m->place != place && strcmp(m->place, place))
                die("lanes of one warp meet at different calls: ", m->place);
            meeting = m;
        } else if (!m->arrived && !m->left) {
            spare = m;
        }
    }
    if (!meeting) {
        if (!spare) warp->meetings.push_back(spare = new Meeting);
        meeting = spare;
        meeting->mask = mask, meeting->present = 0, meeting->place = place, meeting->multiplied = false;
    }
    for (int i = 0; i < count; i++) meeting->shown[self->lane][i] = words[i];
    meeting->present |= 1u << self->lane, meeting->arrived++, progress++;
    if (meeting->present == mask)
        meeting->left = meeting->arrived, meeting->arrived = 0, meeting->generation++;
    else
        wait_for_change(&meeting->generation);
    self->waits_at = nullptr;
    meeting->left--;
    return meeting;
}

char *shared(size_t bytes, const char *place) {
    for (const SharedArray &array : shared_arrays)
        if (array.place == place) return array.memory.get();
    shared_arrays.push_back({place, std::unique_ptr<char[]>(new char[bytes])});
    return (char *)memset(shared_arrays.back().memory.get(), 0xff, bytes);
}

static uint64_t random_u64() {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state;
}

static std::vector<unsigned> order_of(size_t count) {
    std::vector<unsigned> order(count);
    for (size_t i = 0; i < count; i++) order[i] = (unsigned)(emu_order == 1 ? count - 1 - i : i);
    if (emu_order >= 2)
        for (size_t i = count; i > 1; i--) std::swap(order[i - 1], order[random_u64() % i]);
    return order;
}

// A warp runs as far as it can before the next gets a turn: the largest skew between warps, which is what shows a
// missing barrier. Order 3 gives it a random number of turns instead.
static void run_block() {
    live = (int)fibers.size();
    gate = {};
    shared_arrays.clear(), settled.clear(), tma_begin();
    for (Warp &warp : warps)
        for (Meeting *meeting : warp.meetings) meeting->arrived = meeting->left = 0;
    for (Fiber &fiber : fibers) {
        fiber.done = false, fiber.waits_at = nullptr, fiber.waits_for = nullptr;
        fiber.groups.clear(), fiber.open.clear(), fiber.seen.clear(), fiber.writes = 0;
        fiber.store_groups.clear(), fiber.open_stores.clear(), fiber.acquired = false;
        fiber.product_groups.clear(), fiber.open_products.clear(), fiber.sums.clear(), fiber.product_fence = false;
        // not all at one place of their pages, which share the sets of a cache
        void **top = (void **)(fiber.stack + STACK - fiber.index % 64 * 256) - 2;
        *top = (void *)fiber_main;
        fiber.stack_pointer = memset(top - 6, 0, 6 * sizeof *top);
    }
    std::vector<unsigned> warp_order = order_of(warps.size()), lane_order = order_of(32);
    while (live) {
        uint64_t before = progress;
        for (unsigned w : warp_order) {
            uint64_t turns = emu_order == 3 ? 1 + random_u64() % 16 : UINT64_MAX;
            for (uint64_t start = ~progress; turns-- && start != progress;) {
                start = progress;
                for (unsigned lane : lane_order)
                    if (w * 32 + lane < fibers.size() && can_go_on(fibers[w * 32 + lane]))
                        resume(&fibers[w * 32 + lane]);
            }
        }
        if (before == progress && !tma_land()) {
            self = nullptr;
            die(live < (int)fibers.size() ? "deadlock: some threads returned before a barrier"
                                          : "deadlock: divergent barrier");
        }
    }
    self = nullptr;
    tma_end();
}

void run_grid(const char *name, dim3 grid, dim3 block, size_t dynamic, const std::function<void()> &body) {
    kernel_name = name, kernel_body = &body, block_size = block, grid_size = grid;
    random_state = 88172645463325252ull + (unsigned)emu_order;
    unsigned threads = block.x * block.y * block.z;
    for (Warp &warp : warps)
        for (Meeting *meeting : warp.meetings) delete meeting;
    warps.assign((threads + 31) / 32, {});
    static char *stacks[1024];
    fibers.resize(threads);
    for (unsigned i = 0; i < threads; i++) {
        if (!stacks[i])
            stacks[i] = (char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        Fiber &fiber = fibers[i];
        fiber.stack = stacks[i], fiber.index = (int)i, fiber.lane = (int)(i % 32), fiber.warp = &warps[i / 32];
        fiber.id = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
        fiber.warp->lanes++;
    }
    for (unsigned i : order_of((size_t)grid.x * grid.y * grid.z)) {
        block_index = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
        size_t size = (dynamic + 127) / 128 * 128;
        void *memory = nullptr;
        if (size && posix_memalign(&memory, 1024, size)) abort();
        dynamic_shared = (char *)memory, dynamic_bytes = size, unfenced.assign(size / 16, 0);
        if (size) memset(dynamic_shared, 0xff, size);
        run_block();
        free(dynamic_shared);
    }
    for (auto &write : written)
        memcpy((void *)(uintptr_t)write.first, write.second.bytes.data(), write.second.bytes.size());
    written.clear(), flags.clear();
}

// The launch bounds of a kernel, 0: none (emu.h: __launch_bounds__).
static unsigned launch_bounds(const void *kernel) {
    const unsigned char *code = (const unsigned char *)kernel;
    unsigned nops = 0;
    if (!memcmp(code, "\xf3\x0f\x1e\xfa", 4)) code += 4; // endbr64
    while (code[nops] == 0x90) nops++;
    return nops * 32;
}

void launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t dynamic, cudaStream_t stream,
            std::function<void()> body) {
    unsigned threads = block.x * block.y * block.z;
    if (!threads || threads > 1024 || !grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 ||
        grid.x > INT32_MAX || dynamic > shared_limit) {
        fprintf(stderr, "emu: bad launch of %s: grid %u %u %u, %u threads, %zu bytes of shared memory\n", name, grid.x,
                grid.y, grid.z, threads, dynamic);
        abort();
    }
    if (const unsigned most = launch_bounds(kernel); most && threads > most) {
        fprintf(stderr, "emu: %s is launched with %u threads, its launch bounds are %u\n", name, threads, most);
        abort();
    }
    if (dynamic > 48 << 10 && allowed_shared[kernel] < dynamic) {
        fprintf(stderr, "emu: %s was not allowed %zu bytes of shared memory (ALLOW_SHARED)\n", name, dynamic);
        abort();
    }
    const bool slow = emu_device.slow && strstr(name, emu_device.slow);
    enqueue(
        stream, [=] { run_grid(name, grid, block, dynamic, body); }, slow ? 100 : 1);
}

} // namespace emu

using emu::self;

// As many elements of a register as PTX defines for m16n8k16: a0 (row g, k low), a1 (g+8, low), a2 (g, high), a3 (g+8,
// high); d0, d1 row g, d2, d3 row g+8, column 2t + (i&1), where g = lane/4, t = lane%4. m16n8k8 has only the low ones.
void emu_mma(float (&d)[4], const uint32_t *a, const uint32_t *b, int depth, EmuValue value) {
    uint64_t words[3] = {a[0], a[1], b[0]};
    if (depth == 16)
        words[0] |= (uint64_t)a[2] << 32, words[1] |= (uint64_t)a[3] << 32, words[2] |= (uint64_t)b[1] << 32;
    emu::Meeting *meeting = emu::meet(0xffffffffu, words, 3, depth == 16 ? "mma.m16n8k16" : "mma.m16n8k8");
    auto element = [&](int lane, int word, int k) {
        return value((uint16_t)(meeting->shown[lane][word] >> ((k & 1) * 16 + (k >> 3) * 32)));
    };
    if (!meeting->multiplied) {
        emu_counts.mma++;
        meeting->multiplied = true;
        memset(meeting->product, 0, sizeof meeting->product);
        for (int k = 0; k < depth; k++) {
            float y[8];
            for (int column = 0; column < 8; column++) y[column] = element(column * 4 + (k & 7) / 2, 2, k);
            for (int row = 0; row < 16; row++) {
                const float x = element(row % 8 * 4 + (k & 7) / 2, row / 8, k);
                for (int column = 0; column < 8; column++) meeting->product[row][column] += x * y[column];
            }
        }
    }
    int g = self->lane >> 2, t = self->lane & 3;
    for (int i = 0; i < 4; i++) d[i] += meeting->product[g + (i >> 1) * 8][2 * t + (i & 1)];
}

void emu_ldmatrix(uint32_t (&r)[4], const void *row, bool transposed, const char *place) {
    if ((uintptr_t)row & 15) emu::die("ldmatrix: the row is not 16-byte aligned at ", place);
    emu::check_access(row, 16, place);
    uint64_t word = (uint64_t)(uintptr_t)row;
    auto shown = emu::meet(0xffffffffu, &word, 1, place)->shown;
    int lane = self->lane;
    for (int m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (int j = 0; j < 2; j++) {
            int from = transposed ? 2 * (lane & 3) + j : lane >> 2,
                column = transposed ? lane >> 2 : 2 * (lane & 3) + j;
            pair[j] = ((const uint16_t *)(uintptr_t)shown[m * 8 + from][0])[column];
        }
        r[m] = pair[0] | (uint32_t)pair[1] << 16;
    }
    if (lane) return;
    emu_counts.ldmatrix++;
    for (int m = 0; m < 4; m++) {
        int uses[8] = {};
        for (int i = 0; i < 8; i++) uses[shown[m * 8 + i][0] >> 4 & 7]++;
        emu_counts.bank_conflicts += (uint64_t)*std::max_element(uses, uses + 8) - 1;
    }
}

// ---- wgmma

unsigned shared_offset(const void *shared) { return (unsigned)((const char *)shared - emu::dynamic_shared); }

static void note_unfenced(const void *to) {
    const size_t at = (size_t)((const char *)to - emu::dynamic_shared);
    if (at < emu::dynamic_bytes) emu::unfenced[at / 16] = 1 + self->index;
}

void async_fence() {
    for (int &thread : emu::unfenced)
        if (thread == 1 + self->index) thread = 0;
}

void emu_put_async(void *to, const void *value, size_t bytes) {
    emu::check_access(to, bytes, "put_async");
    memcpy(to, value, bytes);
    note_unfenced(to);
}

// Element (line, term) of an operand with the 128-byte swizzle, as PTX defines its descriptor.
static uint32_t operand_bits(uint64_t part, bool rows_are_terms, int line, int term) {
    if (part >> 62 != 1 || (part >> 32 & 0x3fff) << 4 != 1024)
        emu::die("wgmma: not a tile with the swizzle of 128 bytes");
    const int row = rows_are_terms ? term : line, column = rows_are_terms ? line : term;
    size_t at = (part & 0x3fff) << 4;
    at += (size_t)(row / 8 * 1024 + row % 8 * 128 + column % 64 * 2);
    if (column / 64) at += (size_t)(column / 64) * ((part >> 16 & 0x3fff) << 4);
    at ^= (at >> 7 & 7) << 4;
    if (at + 2 > emu::dynamic_bytes) emu::die("wgmma reads beyond shared memory");
    if (emu::unfenced[at / 16]) emu::die("wgmma reads what was written without async_fence");
    uint16_t bits;
    memcpy(&bits, emu::dynamic_shared + at, 2);
    return bits;
}

static void multiply_group(emu::Fiber *fiber, const EmuProduct &product) {
    const int first = self->index / 32 % 4 * 16 + (self->lane >> 2), t = self->lane & 3;
    auto pair = [](uint64_t part, bool terms, int line, int term) {
        return operand_bits(part, terms, line, term) | operand_bits(part, terms, line, term + 1) << 16;
    };
    uint32_t a[4];
    memcpy(a, product.a, sizeof a);
    for (int i = 0; i < 4 && !product.a_in_registers; i++)
        a[i] = pair(product.part_a, product.a_term, first + (i & 1) * 8, 2 * t + (i >> 1) * 8);
    emu::Sums &sums = fiber->sums[product.sums];
    if (!product.add) std::fill(sums.begin(), sums.end(), 0.0f);
    for (int n = 0; n < product.columns / 8; n++) {
        const int line = n * 8 + (self->lane >> 2);
        const uint32_t b[2] = {pair(product.part_b, product.b_term, line, 2 * t),
                               pair(product.part_b, product.b_term, line, 2 * t + 8)};
        emu_mma((float(&)[4])sums[(size_t)n * 4], a, b, 16, product.value);
    }
}

void wgmma_fence() { emu::fiber_of_self()->product_fence = true; }

void emu_wgmma(const EmuProduct &product) {
    emu::Fiber *fiber = emu::fiber_of_self();
    if (emu_device.capability != 90) emu::die("wgmma on a card that has none");
    if (!fiber->product_fence) emu::die("wgmma without wgmma_fence");
    emu::Sums &sums = fiber->sums[product.sums];
    sums.resize((size_t)product.columns / 2);
    float *const shown = *product.sums;
    auto pending = [&](const std::vector<EmuProduct> &group) {
        return std::any_of(group.begin(), group.end(), [&](const EmuProduct &p) { return p.sums == product.sums; });
    };
    if (!pending(fiber->open_products) &&
        std::none_of(fiber->product_groups.begin(), fiber->product_groups.end(), pending))
        std::copy_n(shown, sums.size(), sums.begin());
    std::fill_n(shown, sums.size(), NAN);
    fiber->open_products.push_back(product);
}

void wgmma_commit() {
    emu::Fiber *fiber = emu::fiber_of_self();
    fiber->product_groups.push_back(std::move(fiber->open_products));
    fiber->open_products.clear();
}

void emu_wgmma_wait(int groups) {
    emu::Fiber *fiber = emu::fiber_of_self();
    fiber->product_fence = false;
    while ((int)fiber->product_groups.size() > groups) {
        const std::vector<EmuProduct> group = std::move(fiber->product_groups.front());
        fiber->product_groups.erase(fiber->product_groups.begin());
        for (const EmuProduct &product : group) multiply_group(fiber, product);
    }
    for (auto one = fiber->sums.begin(); one != fiber->sums.end();) {
        auto uses = [&](const EmuProduct &p) { return p.sums == one->first; };
        auto any_uses = [&](const std::vector<EmuProduct> &group) {
            return std::any_of(group.begin(), group.end(), uses);
        };
        if (any_uses(fiber->open_products) ||
            std::any_of(fiber->product_groups.begin(), fiber->product_groups.end(), any_uses)) {
            one++;
            continue;
        }
        float *const shown = *one->first;
        if (!std::all_of(shown, shown + one->second.size(), [](float x) { return std::isnan(x); }))
            emu::die("the sums of a wgmma were written before its wait");
        std::copy(one->second.begin(), one->second.end(), shown);
        one = fiber->sums.erase(one);
    }
}

static void land(const emu::Copy &copy) {
    if (copy.from)
        memcpy(copy.to, copy.from, 16);
    else
        memset(copy.to, 0, 16);
}

void cp_async16(void *to, const void *from, bool read) {
    if (((uintptr_t)to | (uintptr_t)from) & 15) emu::die("cp.async: not 16-byte aligned");
    emu::check_access(to, 16, "destination of cp.async");
    if (read) emu::check_access(from, 16, "source of cp.async");
    emu::fiber_of_self()->open.push_back({to, read ? from : nullptr});
    if (emu_order & 1) land(emu::fiber_of_self()->open.back());
}

void cp_async_commit() {
    emu::Fiber *fiber = emu::fiber_of_self();
    fiber->groups.push_back(std::move(fiber->open));
    fiber->open.clear();
}

void emu_cp_async_wait(int groups) {
    emu::Fiber *fiber = emu::fiber_of_self();
    while ((int)fiber->groups.size() > groups) {
        for (const emu::Copy &copy : fiber->groups.front()) {
            if (!(emu_order & 1)) land(copy);
            note_unfenced(copy.to);
        }
        fiber->groups.erase(fiber->groups.begin());
    }
}
