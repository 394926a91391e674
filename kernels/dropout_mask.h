// Dropout: an element is zeroed with probability p, else scaled by 1/(1-p). The mask is a pure function of the seed,
// the step, the sample of the step, the layer, the site and the element, so nothing is stored: the backward pass
// computes the same mask again, and it does not depend on recompute, threads, offload, resume or the split into
// micro-batches.
#pragma once

#include "common/rng.h"
#include <stdbool.h>

typedef enum {
    DROPOUT_EMBEDDING,
    DROPOUT_ATTENTION,
    DROPOUT_ATTENTION_OUT,
    DROPOUT_MLP_OUT,
    DROPOUT_SITES
} DropoutSite;

// The dropout of one micro-batch, in backend memory: a recorded micro-batch is replayed with the values of another.
typedef struct Dropout {
    uint32_t seed[2];
    uint32_t step;
    uint32_t first_sample; // of the micro-batch within its step
    uint32_t threshold;    // of 65536: elements whose 16 random bits are below it are zeroed
    float scale;           // 1 / (1 - p)
} Dropout;

// Sixteen random bits for each element: Philox gives eight neighbouring columns of a row theirs. Rows are padded to a
// multiple of eight columns. Rows and columns of a sample: (T,C) for activations, (H*T,T) for attention.
static inline void dropout_counter(uint32_t counter[4], const Dropout *dropout, int layer, DropoutSite site,
                                   uint32_t sample, uint32_t row, uint32_t cols, uint32_t col) {
    counter[0] = row * ((cols + 7) / 8) + col / 8;
    counter[1] = dropout->first_sample + sample;
    counter[2] = dropout->step;
    counter[3] = (uint32_t)layer * DROPOUT_SITES + (uint32_t)site;
}

// sample: within the micro-batch. The reference for the kernels; they compute the bits of many elements at once.
static inline float dropout_factor(const Dropout *dropout, int layer, DropoutSite site, uint32_t sample, uint32_t row,
                                   uint32_t cols, uint32_t col) {
    uint32_t counter[4], bits[4];
    dropout_counter(counter, dropout, layer, site, sample, row, cols, col);
    philox4x32(counter, dropout->seed, bits);
    return (bits[col % 8 / 2] >> col % 2 * 16 & 0xffff) < dropout->threshold ? 0 : dropout->scale;
}
