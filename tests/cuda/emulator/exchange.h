// Exchanges between processes in the emulated CUDA runtime (device.cc), for the stand-in for NCCL (nccl.cc). What runs
// in other streams and is ordered neither before nor after an exchange must not touch its buffers; what was put into
// the stream of the kernels so far must be ordered before it; and the host must not wait for what runs after one that
// is in flight.
#pragma once

#include <cuda_runtime_api.h>
#include <functional>
#include <utility>
#include <vector>

namespace emu {

typedef std::vector<std::pair<const void *, size_t>> Buffers;

// Puts an exchange into a stream. `arrive` is called when its turn has come, and again until it returns true.
void exchange(cudaStream_t stream, const Buffers &buffers, std::function<bool()> arrive);

// Their communicator was aborted: none of them waits for other processes any more.
void abandon_exchanges(void);

// For an operation whose code no sanitizer sees.
void touch(const void *start, size_t bytes);

// The first operand of the last product, until memory is cleared.
extern const void *cached;

// nvml.cc and nccl.cc: what dlopen and dlsym of the program find.
void *nvml_library(void); // NULL: it is missing
void *driver_library(void);
void *driver_function(const char *name);
void *nvml_function(const char *name);
void *nccl_library(void); // NULL: it is missing
void *nccl_function(const char *name);

} // namespace emu
