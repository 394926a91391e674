// The memory plan: offsets of all buffers in one arena.
#include "trainer/plan/memory_plan.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "common/machine/cgroup.h"
#include "common/sizes.h"
#include <assert.h>
#include <stdlib.h>

enum {
    ALIGN = 256,
    SLICE_UNIT = 1024,   // elements: slots are aligned for every type
    SLICE_MAX = 4 << 20, // elements: copies of 16 MiB reach the full rate of the bus
};

static size_t align(size_t bytes) { return round_up(bytes, ALIGN); }

static size_t take(size_t *end, size_t bytes) { return size_reserve(end, bytes, ALIGN); }

static void add_row(MemoryPlan *plan, const char *name, size_t bytes, bool overlaid) {
    plan->table[plan->table_rows].name = name;
    plan->table[plan->table_rows].bytes = bytes;
    plan->table[plan->table_rows++].overlaid = overlaid;
}

enum { TYPE_Act, TYPE_Res, TYPE_float, TYPE_uint16_t, TYPE_int32_t };

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

static void buffer_sizes(BufferSize sizes[BUFFERS], PassLayout *pass, int chunk_rows, const ModelShape *shape,
                         const Backend *backend) {
    const size_t bytes[] = {backend->act_bytes, backend->res_bytes, sizeof(float), sizeof(uint16_t), sizeof(int32_t)};
    const size_t T = (size_t)pass->block, least = ((size_t)shape->block + T - 1) / T; // sampling takes a whole block
    const size_t B = (size_t)pass->rows > least ? (size_t)pass->rows : least, N = B * T, C = (size_t)shape->channels;
    const size_t H = (size_t)shape->heads, V = (size_t)shape->padded_vocab;
    const size_t M = N < (size_t)chunk_rows ? N : (size_t)chunk_rows;
    const size_t F = (size_t)shape_hidden(shape), P = (size_t)shape_fc(shape), J = (size_t)shape_qkv(shape);
    const bool apart = shape_keeps_heads(shape), shared = shape->kv_heads < shape->heads;
    int count = 0;
#define BUFFER(group, type, name, elements)                                                                            \
    sizes[count++] = (BufferSize){GROUP_##group, align((elements)*bytes[TYPE_##type]), &pass->name};
#include "trainer/plan/buffers.def"
#undef BUFFER
}

// Lays out the buffers of a group one after another. Returns their end.
static size_t lay_group(const BufferSize sizes[BUFFERS], BufferGroup group, size_t at) {
    for (int i = 0; i < BUFFERS; i++)
        if (sizes[i].group == group) *sizes[i].offset = take(&at, sizes[i].bytes);
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
    [RECOMPUTE_GELU] = GROUP_GELU, [RECOMPUTE_NORM] = GROUP_NORM,       [RECOMPUTE_MLP] = GROUP_MLP,
    [RECOMPUTE_QKV] = GROUP_QKV,   [RECOMPUTE_BLOCK] = GROUP_ATTENTION,
};

// Without `backward` nothing is kept; with offload = residuals BACKEND_SLOTS layers keep their input.
static void set_recompute(PassLayout *pass, const Config *config, int layers) {
    const Recompute level = config->recompute == RECOMPUTE_AUTO ? RECOMPUTE_NONE : config->recompute;
    const int again = (int)config->recompute_layers, from = again && again < layers ? layers - again : 0;
    if (!pass->backward) return;
    pass->recompute = level, pass->recompute_from = level ? from : 0;
    pass->kept[GROUP_INPUT] = layers;
    if (config->offload & OFFLOAD_RESIDUALS && layers > BACKEND_SLOTS)
        pass->kept[GROUP_INPUT] = BACKEND_SLOTS, pass->host_inputs = SIZE_MAX; // lay_offload sets it
    for (Recompute i = RECOMPUTE_GELU; i <= RECOMPUTE_BLOCK; i++)
        pass->kept[dropped[i]] = i > level ? layers : i == level ? from : 0;
}

// Adds rows to the table when `plan` is given.
static void lay_pass(PassLayout *pass, size_t at, int rows, int block, bool backward, const Config *config,
                     int chunk_rows, const ModelShape *shape, const Backend *backend, MemoryPlan *plan) {
    BufferSize sizes[BUFFERS];
    size_t start = at, shared = 0; // shared: bytes of the instances that layers share
    *pass = (PassLayout){.rows = rows, .block = block, .backward = backward};
    set_recompute(pass, config, shape->layers);
    buffer_sizes(sizes, pass, chunk_rows, shape, backend);

    for (BufferGroup group = GROUP_INPUT; group < GROUP_GELU; group++) {
        at = lay_kept(pass, sizes, group, at);
        if (pass->kept[group] == shape->layers || (group == GROUP_INPUT && backward)) continue;
        at += pass->stride[group];
        shared += pass->stride[group];
    }
    at = lay_group(sizes, GROUP_LAST, at);
    const size_t gelu = lay_kept(pass, sizes, GROUP_GELU, 0); // behind the gradients, before SHARED
    if (plan) add_row(plan, backward ? "saved activations" : "activations", at - start - shared + gelu, false);
    if (plan && shared) add_row(plan, "activations of a block", shared, false);
    start = at;

    at = lay_shared(sizes, GROUP_BRANCH, at);
    if (backward) {
        const size_t end = lay_group(sizes, GROUP_GRADIENT, at);
        const bool one_type = backend->act_bytes == backend->res_bytes;
        at = one_type ? pass->dres_act : end;
        if (one_type) pass->dres_act = pass->dres;
    }
    if (plan) add_row(plan, backward ? "gradients of activations" : "branch", at - start, false), start = at;

    start = at = lay_kept(pass, sizes, GROUP_GELU, at);
    at = lay_shared(sizes, GROUP_SHARED, at);
    if (plan) add_row(plan, "logits of a chunk", at - start, false), start = at;

    at = lay_group(sizes, GROUP_BATCH, at);
    if (plan) add_row(plan, "batch and losses", at - start, false);
    pass->end = at;
}

static void lay_sampling(MemoryPlan *plan, const Config *config, const ModelShape *shape, const Backend *backend) {
    const size_t stride = align((size_t)shape->block * 3 * (size_t)shape->channels * backend->act_bytes);
    const size_t bytes = (size_t)shape->layers * stride, end = plan->eval.end + bytes;
    plan->sample = plan->eval;
    if (!config->sample_tokens || (plan->optimizer && end > plan->bytes)) return;
    plan->sample.cache = plan->eval.end;
    plan->sample.cache_stride = stride;
    add_row(plan, "keys and values for sampling", bytes, plan->optimizer);
    if (end > plan->bytes) plan->bytes = end;
}

static size_t packed_bytes(const Model *model, const Backend *backend) {
    size_t bytes = 0;
    for (int i = 0; i < model->count; i++) {
        const Tensor *tensor = &model->tensors[i];
        if (tensor->kind <= KIND_RESIDUAL && tensor->id != PARAM_WPE &&
            (tensor->id != PARAM_WTE || !model->shape.untied))
            bytes += align(backend->packed_bytes(tensor->rows, tensor->cols));
    }
    return bytes;
}

static size_t state_bytes(const MemoryPlan *plan, int state, unsigned shards, const Model *model,
                          const Backend *backend) {
    const StateRange *range = &plan->optimizer->states[state];
    const size_t elements = shards > 1 ? shard_elements(model, shards) : optimizer_elements(range, model);
    return elements * optimizer_element_bytes(range, backend);
}

static size_t slice_elements(const Optimizer *optimizer, const Model *model) {
    size_t most = model->elements / 8 < SLICE_MAX ? model->elements / 8 : SLICE_MAX;
    for (int i = 0; i < model->count; i++) {
        const size_t elements = tensor_elements(&model->tensors[i]);
        if (optimizer->whole_kinds >> model->tensors[i].kind & 1 && elements > most) most = elements;
    }
    return (most + SLICE_UNIT - 1) / SLICE_UNIT * SLICE_UNIT;
}

// The largest state of an element, of those parameters that have any.
static size_t element_bytes(const Optimizer *optimizer, const Backend *backend) {
    size_t most = 0;
    for (int kind = 0; kind < PARAM_KINDS; kind++) {
        size_t bytes = 0;
        for (int i = 0; i < optimizer->state_count; i++)
            if (optimizer->states[i].kinds >> kind & 1)
                bytes += optimizer_element_bytes(&optimizer->states[i], backend);
        if (bytes > most) most = bytes;
    }
    return most;
}

// What an update needs in the memory of the passes: all gradients where those of layers are offloaded, slots for the
// slices of offloaded state, and the workspace.
static void lay_update(MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                       bool own_master) {
    const Optimizer *optimizer = plan->optimizer;
    const size_t grads = align(model->elements * backend->grad_bytes);
    const bool state_away = config->offload & OFFLOAD_OPTIMIZER, gradients_away = config->offload & OFFLOAD_GRADIENTS;
    size_t end = plan->passes, workspace = 0;
    if (gradients_away) plan->update_grads = take(&end, grads);
    if (state_away) {
        plan->slice = slice_elements(optimizer, model);
        plan->slot_bytes = plan->slice * (element_bytes(optimizer, backend) + (own_master ? sizeof(float) : 0));
        plan->slots = take(&end, BACKEND_SLOTS * plan->slot_bytes);
    }
    if (optimizer->workspace_bytes) {
        workspace = align(optimizer->workspace_bytes(model, backend));
        plan->workspace = take(&end, workspace);
    }
    if (end > plan->bytes) add_row(plan, "more for the update", end - plan->bytes, false), plan->bytes = end;
    if (gradients_away) add_row(plan, "gradients of the update", grads, true);
    if (state_away) add_row(plan, "slots of the update", BACKEND_SLOTS * plan->slot_bytes, true);
    if (workspace) add_row(plan, "workspace of the update", workspace, true);
}

// The gradients that are in the arena during the passes: all but those of the layers' matrices, and slots for these.
// Returns their end.
static size_t lay_gradients(MemoryPlan *plan, size_t at, const Model *model, const Backend *backend) {
    LayerGradients *gradients = &plan->layer_gradients;
    const Tensor *first = NULL;
    size_t end = 0;
    for (int i = 0; i < model->count; i++) {
        const Tensor *tensor = &model->tensors[i];
        if (!tensor_transposed(tensor)) continue;
        if (!first) first = tensor;
        end = i + 1 < model->count ? tensor[1].offset : model->elements;
    }
    assert(first && (end - first->offset) % (size_t)model->shape.layers == 0);
    gradients->first = first->offset * backend->grad_bytes, gradients->end = end * backend->grad_bytes;
    gradients->layer_bytes = (gradients->end - gradients->first) / (size_t)model->shape.layers;
    const size_t start = at, all = model->elements * backend->grad_bytes;
    gradients->kept = take(&at, all - (gradients->end - gradients->first));
    gradients->slots = take(&at, BACKEND_SLOTS * gradients->layer_bytes);
    gradients->bytes = at - start;
    add_row(plan, "gradients of layers, and kept", gradients->bytes, false);
    return at;
}

static void add_host_row(MemoryPlan *plan, const char *name, size_t *from, size_t to) {
    add_row(plan, name, to - *from, true);
    plan->table[plan->table_rows - 1].on_host = true;
    *from = to;
}

// The offloaded ranges: their offsets count on from the end of the arena.
static void lay_offload(MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                        bool own_master) {
    const bool state_away = config->offload & OFFLOAD_OPTIMIZER;
    size_t at = plan->bytes, from = at;
    if (state_away && own_master) plan->master = take(&at, shard_elements(model, plan->shards) * sizeof(float));
    for (int i = 0; state_away && i < plan->optimizer->state_count; i++)
        plan->states[i] = take(&at, state_bytes(plan, i, plan->shards, model, backend));
    if (state_away) add_host_row(plan, "optimizer state in host memory", &from, at);
    if (config->offload & OFFLOAD_GRADIENTS) {
        plan->grads = take(&at, model->elements * backend->grad_bytes);
        add_host_row(plan, "gradients in host memory", &from, at);
    }
    if (plan->train.host_inputs) {
        const size_t stored = (size_t)(model->shape.layers - BACKEND_SLOTS);
        plan->train.host_inputs = take(&at, stored * plan->train.stride[GROUP_INPUT]);
        add_host_row(plan, "residuals in host memory", &from, at);
    }
    plan->host_bytes = at - plan->bytes;
}

void memory_plan_init(MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                      const Optimizer *optimizer) {
    assert(!config->batch_size.is_auto); // plan_auto has set it
    // The chunks of an evaluation are no larger than those of training, so that it needs no more memory.
    int64_t rows = config->batch_size.value * config->block_size;
    const int64_t chunk = config->loss_chunk_rows ? config->loss_chunk_rows : LOSS_CHUNK_ROWS;
    const bool training = optimizer;
    *plan = (MemoryPlan){.optimizer = optimizer,
                         .shards = training ? config_shards(config) : 1,
                         .dropout = config->dropout > 0,
                         .document_mask = config->document_mask,
                         .z_loss = (float)config->z_loss,
                         .chunk_rows = (int)(rows < chunk ? rows : chunk)};
    size_t trained = training ? model->elements : 0;
    size_t at = 0, start, packed = packed_bytes(model, backend);
    const bool own_master = training && backend->master_bytes,
               offload = training && config->offload & OFFLOAD_OPTIMIZER;
    const bool gradients_away = training && config->offload & OFFLOAD_GRADIENTS;

    plan->params = take(&at, model->elements * backend->par_bytes);
    add_row(plan, "parameters", at, false), start = at;
    plan->master =
        own_master && !offload ? take(&at, shard_elements(model, plan->shards) * sizeof(float)) : plan->params;
    if (own_master && !offload) add_row(plan, "master parameters", at - start, false), start = at;
    plan->packed = take(&at, packed);
    if (packed) add_row(plan, "packed matrices", at - start, false), start = at;
    if (!gradients_away) plan->grads = plan->update_grads = take(&at, trained * backend->grad_bytes);
    if (training && !gradients_away) add_row(plan, "gradients", at - start, false), start = at;
    for (int i = 0; training && !offload && i < optimizer->state_count; i++)
        plan->states[i] = take(&at, state_bytes(plan, i, plan->shards, model, backend));
    plan->scalars = take(&at, sizeof(StepScalars));
    if (training) plan->sums = take(&at, norm_pieces(model->elements) * sizeof(double));
    if (training && config_world(config) > 1) plan->losses = take(&at, config->world * sizeof(double));
    add_row(plan, training && !offload ? "optimizer" : "scalars", at - start, false);

    int train_rows = training ? (int)config->batch_size.value : 0;
    int eval_rows = (int)(config->eval_batch_size ? config->eval_batch_size : config->batch_size.value);
    const ModelShape *m = &model->shape;
    int eval_block = (int)config_eval_block(config), eval_blocks = (eval_rows * eval_block + m->block - 1) / m->block;
    const Shape largest = {train_rows > eval_blocks ? train_rows : eval_blocks,
                           m->block,
                           m->channels,
                           m->heads,
                           m->padded_vocab,
                           plan->chunk_rows,
                           (int)config->threads};
    plan->scratch_bytes = backend->scratch_bytes(&largest);
    start = at;
    plan->scratch = take(&at, plan->scratch_bytes);
    add_row(plan, "scratch", at - start, false);

    start = plan->rotation = at;
    if (m->rope_theta > 0) take(&at, (size_t)m->block * (size_t)(m->channels / m->heads) * sizeof(float));
    if (at > start) add_row(plan, "angles of positions", at - start, false);

    plan->passes = at;
    plan->train.end = plan->passes;
    if (gradients_away) at = lay_gradients(plan, at, model, backend);
    if (training) lay_pass(&plan->train, at, train_rows, m->block, true, config, plan->chunk_rows, m, backend, plan);
    lay_pass(&plan->eval, plan->passes, eval_rows, eval_block, false, config, plan->chunk_rows, m, backend,
             training ? NULL : plan);
    plan->bytes = plan->train.end;
    if (plan->eval.end > plan->bytes) {
        if (training) add_row(plan, "more for evaluation", plan->eval.end - plan->bytes, false);
        plan->bytes = plan->eval.end;
    }
    if (training) add_row(plan, "evaluation, sampling", plan->eval.end - plan->passes, true);
    lay_sampling(plan, config, m, backend);
    if (training) lay_update(plan, config, model, backend, own_master);
    if (training) lay_offload(plan, config, model, backend, own_master);

    if (training)
        plan->copy_bytes = model->elements * (backend->master_bytes ? backend->master_bytes : backend->par_bytes);
    for (int i = 0; training && i < optimizer->state_count; i++)
        plan->copy_bytes += state_bytes(plan, i, 1, model, backend);
    plan->staging = 1 << 20;
    for (int i = 0; i < model->count; i++) {
        size_t bytes = tensor_elements(&model->tensors[i]) * sizeof(float);
        if (tensor_transposed(&model->tensors[i]) && bytes > plan->staging) plan->staging = bytes;
    }
}

// MemAvailable is an estimate of the kernel, which does not know the limit of a container.
uint64_t plan_host_memory(void) {
    Buffer text = {0};
    if (file_read(&text, "/proc/meminfo", 1 << 20) < 0) err_clear();
    buffer_add(&text, "", 1);
    const char *at = strstr((const char *)text.data, "MemAvailable:");
    uint64_t bytes = at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : 0;
    buffer_close(&text);
    uint64_t limit = cgroup_limits().memory_bytes;
    return limit && (!bytes || limit < bytes) ? limit : bytes;
}

uint64_t plan_limit(const Config *config, const Backend *backend, bool here) {
    uint64_t left = !here ? 0 : backend->in_host_memory ? plan_host_memory() : backend->free_bytes;
    return left && (!config->mem_limit || left < config->mem_limit) ? left : config->mem_limit;
}

void memory_plan_print(const MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                       Buffer *out) {
    char count[16], bytes[16];
    buffer_print(out, "model      %s parameters: %d layers, %d heads, %d channels, block %d\n",
                 human_count(count, (double)model->parameters), model->shape.layers, model->shape.heads,
                 model->shape.channels, model->shape.block);
    buffer_print(out, "step       %lld x %lld sequences of %lld tokens = %lld tokens\n",
                 (long long)config->batch_size.value, (long long)config->gradient_accumulation_steps,
                 (long long)config->block_size,
                 (long long)(config->batch_size.value * config->gradient_accumulation_steps * config->block_size));
    if (config_world(config) > 1)
        buffer_print(out, "processes  %u, each with %lld of the %lld micro-batches and %s of the optimizer's state\n",
                     config->world, (long long)config->gradient_accumulation_steps / config->world,
                     (long long)config->gradient_accumulation_steps, plan->shards > 1 ? "its part" : "all");
    buffer_print(out, "backend    %s%s\n\n", backend->name, config_world(config) > 1 ? "; of each process:" : "");
    for (int i = 0; i < plan->table_rows; i++)
        if (!plan->table[i].on_host)
            buffer_print(out, "  %-30s %14zu  %10s%s\n", plan->table[i].name, plan->table[i].bytes,
                         human_bytes(bytes, (double)plan->table[i].bytes),
                         plan->table[i].overlaid ? "  (inside the above)" : "");
    buffer_print(out, "  %-30s %14zu  %10s\n", "arena", plan->bytes, human_bytes(bytes, (double)plan->bytes));
    for (int i = 0; i < plan->table_rows; i++)
        if (plan->table[i].on_host)
            buffer_print(out, "  %-30s %14zu  %10s  (%.2f s of copies %s, at 20 GB/s each way)\n", plan->table[i].name,
                         plan->table[i].bytes, human_bytes(bytes, (double)plan->table[i].bytes),
                         (double)plan->table[i].bytes / 20e9,
                         *plan->table[i].name == 'o' ? "a step" : "a micro-batch, beside it");
    buffer_print(out, "  %-30s %14zu  %10s  (for checkpoints)\n", "host buffer", plan->staging,
                 human_bytes(bytes, (double)plan->staging));
    if (plan->copy_bytes)
        buffer_print(out, "  %-30s %14zu  %10s  (for saves beside training, if the memory is free)\n",
                     plan->shards > 1 ? "checkpoint copy of rank 0" : "checkpoint copy", plan->copy_bytes,
                     human_bytes(bytes, (double)plan->copy_bytes));
    if (config->mem_limit && plan->bytes <= config->mem_limit)
        buffer_print(out, "  %-30s %14llu  %10s\n", "spare", (unsigned long long)(config->mem_limit - plan->bytes),
                     human_bytes(bytes, (double)(config->mem_limit - plan->bytes)));
}
