// Cards by name: what their data sheets and drivers state (gpu_cards.def).
#pragma once

#include "common/bytes.h"
#include "kernels/backend.h"

typedef struct {
    const char *name;    // part of the name that a driver gives; a comma ends it
    double flops, bytes; // peaks a second: of 16-bit products with fp32 sums, of memory
    const char *flops_source, *memory_source;
    int multiprocessors, capability; // 86: compute capability 8.6
    uint64_t memory_bytes;
    double least_share, most_share; // of `flops` that steps reach
    bool ran;                       // where this share was measured
} GpuCard;

// The card whose name is in the text; NULL: not known.
const GpuCard *gpu_card_of(const char *text);

// The card that a user or a driver names, as "RTX 3060", "rtx3060 12GB", "3060" or "NVIDIA H100 80GB HBM3"; -1 after
// fail() (2) with names like it.
int gpu_card_find(const GpuCard **card, const char *name);

// The same as for a device that is open. `text` keeps the name and the other facts.
enum { GPU_CARD_TEXT = 128 };
GpuProperties gpu_card_properties(const GpuCard *card, char text[GPU_CARD_TEXT]);

// The figures of the card, with their sources, and what they leave for an arena.
void gpu_card_print(const GpuCard *card, Buffer *out);
