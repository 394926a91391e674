// What the parts of the engine share: the threads of the block that runs, and what orders their writes.
#pragma once

#include "tests/cuda/emulator/emu.h"

#include <map>
#include <string>
#include <vector>

namespace emu {

struct Copy {
    void *to;
    const void *from; // NULL: zeros
};

// From shared memory to memory, by TMA, 16 bytes each.
struct Store {
    std::vector<std::pair<char *, const char *>> parts; // to, from
    bool add, was_read;
    std::string data; // as it was read
};

// Happens-before between blocks: how many of the writes of each thread of the grid are known to be done.
typedef std::map<uint64_t, unsigned> Seen;

struct Warp {
    int lanes = 0;
    std::vector<Meeting *> meetings;
};

typedef std::vector<float> Sums; // of a thread

struct Fiber : Thread {
    std::vector<std::vector<EmuProduct>> product_groups; // committed wgmma
    std::vector<EmuProduct> open_products;               // not yet committed
    std::map<float (*)[4], Sums> sums;                   // of both, as far as they have been computed
    bool product_fence = false;                          // since the last wait
    std::vector<std::vector<Store>> store_groups;        // committed bulk_store
    std::vector<Store> open_stores;
    bool acquired = false;                 // since its last memory_fence
    std::vector<std::vector<Copy>> groups; // committed cp.async
    std::vector<Copy> open;                // not yet committed
    unsigned writes = 0;                   // write_through calls so far
    Seen seen;                             // acquired since the last barrier
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    const unsigned *waits_for = nullptr; // it goes on when this is no longer `old`
    unsigned old = 0;
    bool done = false;
};

extern uint64_t progress; // steps that threads have made, and copies that have landed
extern size_t dynamic_bytes;
// For 16 bytes of dynamic shared memory: 1 + the thread that wrote them before an async_fence.
extern std::vector<int> unfenced;

static inline Fiber *fiber_of_self() { return (Fiber *)self; }
static inline void join(Seen &to, const Seen &from) {
    for (auto &one : from)
        if (unsigned &count = to[one.first]; count < one.second) count = one.second;
}
uint64_t thread_number(const Thread *thread);                         // in the grid
void check_access(const void *start, size_t bytes, const char *what); // by the address sanitizer
void wait_for_change(const unsigned *count);                          // another thread goes on

// tma.cc: at the start of a block; when nothing else can go on (false: nothing is under way); at its end.
void tma_begin();
bool tma_land();
void tma_end();

} // namespace emu
