// What a test may set and read of the emulated CUDA runtime and cuBLASLt (device.cc, cublaslt.cc). C.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

extern int emu_order; // of threads, warps, blocks and streams: 0 to 3, see emu.h

extern struct EmuDevice {
    int error;                     // returned when devices are counted, a cudaError_t
    int driver;                    // its version, 0: none
    int capability;                // 75, 80, 90, 120; from the environment: EMU_CAPABILITY
    uint64_t memory;               // of the device, in bytes; from the environment: EMU_MEMORY
    int multiprocessors;           // from the environment: EMU_MULTIPROCESSORS
    int blocks_per_multiprocessor; // of any kernel: EMU_BLOCKS
    int cublaslt;                  // the version of the library that is found, 0: none
    // What a product takes: 10 us, the fastest of the heuristic's candidates 5. The last two of them do not work.
    int candidates, fastest;
    bool has_epilogues;   // products that do a GELU
    int epilogue_us;      // what that adds; any other kernel takes 1 us
    bool has_nvml;        // the driver's management library: EMU_NVML
    bool can_pin;         // host memory can be page-locked
    int reduction;        // of all candidates but the first: a CUBLASLT_REDUCTION_SCHEME
    uint64_t workspace;   // that a kept algorithm needs, in bytes
    int fast_when_cached; // the candidate that takes 1 us where the product before it had its operands; -1: none
    bool (*hangs)(void);  // a kernel hangs as long as it returns true; called at each step and query; NULL: none does
    const char *slow;     // a kernel with this in its name takes 100 us; NULL: none does
    const char *name;     // of the device: EMU_NAME
    uint64_t context;     // bytes that the context takes: EMU_CONTEXT
} emu_device;

// Counted since the program started.
extern struct EmuCounts {
    uint64_t allocations, launches, heuristics, products, flops, graphs, host_waits;
    uint64_t work, drains; // pieces put into streams, by replays too; waits for all work of a stream
    int live;              // streams, events, allocations, pinned ranges, graphs and descriptors that still stand
    uint64_t ldmatrix, bank_conflicts;
    uint64_t mma;                // products of a warp, or of a warpgroup
    uint64_t timings, epilogues; // pairs of events that were compared, products that did a GELU
    int candidate;               // of the last product
    uint64_t workspace;          // in bytes, of the last product
} emu_counts;

// emu_record starts to record the calls of the runtime, emu_recorded returns them: one per line, with arguments.
void emu_record(void);
const char *emu_recorded(void);

#ifdef __cplusplus
}
#endif
