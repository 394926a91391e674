// Tensor maps: how the copies of tma.cuh find a tile in memory.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// CUtensorMap, since CUDA 12.0.
typedef struct {
    uint64_t opaque[16] __attribute__((aligned(64)));
} TensorMap;

// The map of `at`, activations (B,T,heads,width) of the open device: a tile is `height` rows of a sequence by the 64
// channels of a head, as wgmma.cuh reads it; rows from T on and channels from width on are zeros. width: a multiple of
// 8. Exits (80) if the driver cannot make it.
TensorMap tensor_map(const void *at, int B, int T, int heads, int width, int height);

#ifdef __cplusplus
}
#endif
