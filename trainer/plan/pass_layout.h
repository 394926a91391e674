// The working memory of a forward (and backward) pass: where each row of buffers.def lies.
#pragma once

#include "kernels/backend.h"
#include "trainer/config/config.h"
#include "trainer/plan/plan_table.h"
#include "trainer/shape/params.h"

enum { PLAN_ALIGN = 256 }; // bytes, of every buffer

typedef struct Token Token; // token ids, of shape_id_bytes each

// Buffers of a group have one lifetime (buffers.def).
typedef enum {
    GROUP_INPUT,
    GROUP_NORM,
    GROUP_MLP,
    GROUP_QKV,
    GROUP_ATTENTION,
    GROUP_GELU,
    GROUP_LAST,
    GROUP_BRANCH,
    GROUP_GRADIENT,
    GROUP_SHARED,
    GROUP_BATCH,
    BUFFER_GROUPS,
    LAYER_GROUPS = GROUP_GELU + 1 // groups of the layers
} BufferGroup;

// The offset of each buffer, of its first instance if there are several, and the bytes from an instance to the next.
typedef struct {
    int rows, block; // B sequences of T tokens at a time
    bool backward;
    Recompute recompute; // of the layers from `recompute_from` on; those before it have the level before
    int recompute_from;
    int kept[LAYER_GROUPS]; // layers that keep a group, the first ones
#define BUFFER(group, type, name, elements) size_t name;
#include "trainer/plan/buffers.def"
#undef BUFFER
    size_t stride[BUFFER_GROUPS];
    size_t host_inputs; // offload = residuals: the inputs of all but the last BACKEND_SLOTS layers; 0: in the arena
    size_t cache, cache_stride; // sampling: qkv of a block of tokens for each layer, cache_stride bytes each (0: none)
    size_t end;
} PassLayout;

// The distance from the offset of a buffer to the instance that a layer uses.
static inline size_t pass_instance(const PassLayout *pass, BufferGroup group, int layer) {
    if (group == GROUP_INPUT && pass->host_inputs) return (size_t)(layer % BACKEND_SLOTS) * pass->stride[group];
    const int kept = group < LAYER_GROUPS ? pass->kept[group] : 0;
    return (size_t)(layer < kept ? layer : kept) * pass->stride[group];
}

static inline Recompute pass_recompute(const PassLayout *pass, int layer) {
    return layer < pass->recompute_from ? pass->recompute - 1 : pass->recompute;
}

// The facts that a layout is computed from.
typedef struct {
    const Config *config;
    const Model *model;
    const Backend *backend;
    int chunk_rows; // of logits
} PlanFacts;

// Lays out a pass of B = rows sequences of T = block tokens from `at` on, and adds its rows to the table unless that is
// NULL.
void pass_layout_init(PassLayout *pass, size_t at, int rows, int block, bool backward, const PlanFacts *facts,
                      PlanTable *table);
