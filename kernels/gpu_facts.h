// The facts of the CUDA backend that a plan needs: types, supported shapes, scratch memory, and what an arena can have
// of a card. They are computed without CUDA, in every build, from what a driver states of a GPU or what is known of a
// card that is elsewhere. C and C++.
#pragma once

#include "kernels/backend.h"
#include <assert.h>

#ifdef __cplusplus
extern "C" {
#endif

// The most channels that the kernels support: of a head (attention), and of a row (layer norm keeps it in registers).
enum { HEAD_MAX = 128, CHANNELS_MAX = 7 * 256 };

// Left free on the device: for the code of kernels, which is loaded at their first launch, for graphs, and for the page
// tables of pinned host memory. An H200 took up to 50 MiB of it, with 17 GiB of pinned memory.
enum { GPU_RESERVED = 256 << 20 };
// What the context and the libraries take before an arena is allocated: measured on an H200, which has more
// multiprocessors than most cards, so that theirs is expected to be smaller (docs/gpu-results.md).
enum { GPU_CONTEXT = 530 << 20 };

// What the operations need of scratch memory (gpu_facts.c), for the kernels that lay it out.
enum {
    ROW_BLOCKS = 128,           // the most parts that sums over rows are divided into
    LAYERNORM_BLOCKS = 384,     // the same of layernorm_backward
    EMBED_SORTED = 1024,        // tokens that one block of embed_backward sorts
    EMBED_MANY = 8,             // rows of a token, above which it is a frequent one
    ATTENTION_TILE = 64,        // rows of attention's scratch are padded to it
    WORKSPACE_LEAST = 32 << 20, // of matrix products: the recommendation for Hopper; older cards need 4 MiB
    UPLOAD_STAGES = 2,          // batches in flight while an earlier one is in use
    STAGE_BYTES = 1 << 20,      // 524,288 token ids of 2 bytes
    UPLOAD_BYTES = UPLOAD_STAGES * STAGE_BYTES
};

// The kernel width for a head of D channels.
static inline int attention_width(int D) {
    assert(D % 8 == 0 && D <= HEAD_MAX);
    return D <= 64 ? 64 : D <= 96 ? 96 : 128;
}

// The scratch memory of attention's backward pass: offsets of its arrays, and their end.
typedef struct {
    int padded, turn_count; // rows of a head; turns
    size_t statistics, turns, end;
} GradientScratch;
GradientScratch attention_scratch(int B, int T, int H, int D);

// The type of the activations: the one requested, or the card's best. capability 0: not known.
Dtype gpu_act_type(const BackendChoice *choice, int capability);
// -1 after fail() when the kernels run on no card of this compute capability (80), or not in the type of `choice` (2).
int gpu_check_capability(const BackendChoice *choice, const char *name, int capability);
// The facts; its operations and functions of a device are NULL.
Backend gpu_facts(const BackendChoice *choice, const GpuProperties *gpu);

#ifdef __cplusplus
}
#endif
