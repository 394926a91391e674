// The layout of a pass, from buffers.def.
#include "trainer/plan/pass_layout.h"
#include "common/sizes.h"

enum { TYPE_Act, TYPE_Res, TYPE_float, TYPE_Token, TYPE_int32_t, TYPE_uint8_t };

// One row of buffers.def for a shape: its size, and the field that gets its offset.
typedef struct {
    BufferGroup group;
    size_t bytes, *offset;
} BufferSize;

enum {
    BUFFERS = 0
#define BUFFER(group, type, name, elements) +1
#include "trainer/plan/buffers.def"
#undef BUFFER
};

static void buffer_sizes(BufferSize sizes[BUFFERS], PassLayout *pass, const PlanFacts *facts) {
    const ModelShape *shape = &facts->model->shape;
    const Backend *backend = facts->backend;
    const size_t bytes[] = {backend->act_bytes,    backend->res_bytes, sizeof(float),
                            shape_id_bytes(shape), sizeof(int32_t),    sizeof(uint8_t)};
    const size_t T = (size_t)pass->block, least = ((size_t)shape->block + T - 1) / T; // sampling needs a whole block
    const size_t B = (size_t)pass->rows > least ? (size_t)pass->rows : least, N = B * T, C = (size_t)shape->channels;
    const size_t H = (size_t)shape->heads, V = (size_t)shape->padded_vocab;
    const size_t M = N < (size_t)facts->chunk_rows ? N : (size_t)facts->chunk_rows;
    const size_t F = (size_t)shape_hidden(shape), P = (size_t)shape_fc(shape), J = (size_t)shape_qkv(shape);
    const bool separate = shape_keeps_heads(shape), shared = shape->kv_heads < shape->heads;
    const bool answers = facts->config->loss_tokens == LOSS_ANSWERS;
    int count = 0;
#define BUFFER(group, type, name, elements)                                                                            \
    sizes[count++] = (BufferSize){GROUP_##group, round_up((elements)*bytes[TYPE_##type], PLAN_ALIGN), &pass->name};
#include "trainer/plan/buffers.def"
#undef BUFFER
}

// Lays out the buffers of a group one after another. Returns their end.
static size_t lay_group(const BufferSize sizes[BUFFERS], BufferGroup group, size_t at) {
    for (int i = 0; i < BUFFERS; i++)
        if (sizes[i].group == group) *sizes[i].offset = size_reserve(&at, sizes[i].bytes, PLAN_ALIGN);
    return at;
}

// Lays out the instances of the layers that keep the group. Returns their end, where the shared one begins.
static size_t lay_kept(PassLayout *pass, const BufferSize sizes[BUFFERS], BufferGroup group, size_t at) {
    pass->stride[group] = lay_group(sizes, group, at) - at;
    return at + (size_t)pass->kept[group] * pass->stride[group];
}

// Lays out the buffers of a group at the same offset.
static size_t lay_shared(const BufferSize sizes[BUFFERS], BufferGroup group, size_t at) {
    size_t most = 0;
    for (int i = 0; i < BUFFERS; i++)
        if (sizes[i].group == group) {
            *sizes[i].offset = at;
            if (sizes[i].bytes > most) most = sizes[i].bytes;
        }
    return at + most;
}

// The group that a level no longer keeps.
static const BufferGroup dropped[] = {
#define LEVEL_GROUP(NAME, name, group, ...) GROUP_##group,
    RECOMPUTE_LEVELS(LEVEL_GROUP, )};

// An evaluation keeps nothing; with offload = residuals, BACKEND_SLOTS layers keep their input.
static void set_recompute(PassLayout *pass, const Config *config, int layers) {
    const Recompute level = config->recompute == RECOMPUTE_AUTO ? RECOMPUTE_NONE : config->recompute;
    const int last = (int)config->recompute_layers, from = last && last < layers ? layers - last : 0;
    if (!pass->backward) return;
    pass->recompute = level, pass->recompute_from = level ? from : 0;
    pass->kept[GROUP_INPUT] = layers;
    if (offload_includes(config, OFFLOAD_ALL) && layers > BACKEND_SLOTS)
        pass->kept[GROUP_INPUT] = BACKEND_SLOTS, pass->host_inputs = SIZE_MAX; // lay_offload sets it
    for (Recompute i = RECOMPUTE_GELU; i <= RECOMPUTE_BLOCK; i++)
        pass->kept[dropped[i]] = i > level ? layers : i == level ? from : 0;
}

// The buffers of the layers. Returns their end.
static size_t lay_layers(PassLayout *pass, const BufferSize sizes[BUFFERS], size_t at, int layers, PlanTable *table) {
    size_t start = at, shared = 0; // shared: bytes of the instances that layers share
    for (BufferGroup group = GROUP_INPUT; group < GROUP_GELU; group++) {
        at = lay_kept(pass, sizes, group, at);
        if (pass->kept[group] == layers || (group == GROUP_INPUT && pass->backward)) continue;
        at += pass->stride[group];
        shared += pass->stride[group];
    }
    at = lay_group(sizes, GROUP_LAST, at);
    const size_t gelu = lay_kept(pass, sizes, GROUP_GELU, 0); // lies after the gradients, before SHARED
    if (!table) return at;
    plan_table_add(table, (PlanRow){.name = pass->backward ? "saved activations" : "activations",
                                    .bytes = at - start - shared + gelu});
    if (shared) plan_table_add(table, (PlanRow){.name = "activations of a block", .bytes = shared});
    return at;
}

// The buffers that the layers share. Returns their end.
static size_t lay_working(PassLayout *pass, const BufferSize sizes[BUFFERS], size_t at, bool one_type) {
    at = lay_shared(sizes, GROUP_BRANCH, at);
    if (!pass->backward) return at;
    const size_t end = lay_group(sizes, GROUP_GRADIENT, at);
    if (!one_type) return end;
    at = pass->dres_act;
    pass->dres_act = pass->dres;
    return at;
}

void pass_layout_init(PassLayout *pass, size_t at, int rows, int block, bool backward, const PlanFacts *facts,
                      PlanTable *table) {
    const Backend *backend = facts->backend;
    const int layers = facts->model->shape.layers;
    BufferSize sizes[BUFFERS];
    *pass = (PassLayout){.rows = rows, .block = block, .backward = backward};
    set_recompute(pass, facts->config, layers);
    buffer_sizes(sizes, pass, facts);
    const size_t working = lay_layers(pass, sizes, at, layers, table);
    const size_t gelu = lay_working(pass, sizes, working, backend->act_bytes == backend->res_bytes);
    const size_t logits = lay_kept(pass, sizes, GROUP_GELU, gelu);
    const size_t batch = lay_shared(sizes, GROUP_SHARED, logits);
    pass->end = lay_group(sizes, GROUP_BATCH, batch);
    if (!table) return;
    plan_table_add(table, (PlanRow){.name = backward ? "gradients of activations" : "branch", .bytes = gelu - working});
    plan_table_add(table, (PlanRow){.name = "logits of a chunk", .bytes = batch - logits});
    plan_table_add(table, (PlanRow){.name = "batch and losses", .bytes = pass->end - batch});
}
