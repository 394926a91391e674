// The memory plan: offsets of all buffers in one arena.
#include "trainer/plan/memory_plan.h"
#include "common/sizes.h"
#include <assert.h>

enum {
    SLICE_UNIT = 1024,   // elements: slots are aligned for every type
    SLICE_MAX = 4 << 20, // elements: copies of 16 MiB reach the full rate of the bus
};

// A plan while it is laid out.
typedef struct {
    MemoryPlan *plan;
    PlanFacts facts;
    size_t at, row; // the ends of the last buffer and of the last row in the table
} PlanLayout;

static size_t take(PlanLayout *layout, size_t bytes) { return size_reserve(&layout->at, bytes, PLAN_ALIGN); }

// Ends a row of the table, which holds all buffers since the row before it.
static void end_row(PlanLayout *layout, PlanRow row) {
    assert(layout->at >= layout->row);
    row.bytes = layout->at - layout->row, layout->row = layout->at;
    if (row.bytes) plan_table_add(&layout->plan->table, row);
}

static bool offloads(const PlanLayout *layout, OffloadMode mode) {
    return layout->plan->optimizer && offload_includes(layout->facts.config, mode);
}

static bool has_master(const PlanLayout *layout) {
    return layout->plan->optimizer && layout->facts.backend->master_bytes;
}

// ---- parameters, gradients, optimizer state

static size_t packed_bytes(const PlanFacts *facts) {
    const Model *model = facts->model;
    size_t bytes = 0;
    for (int i = 0; i < model->count; i++) {
        const Tensor *tensor = &model->tensors[i];
        if (tensor->kind <= KIND_RESIDUAL && tensor->id != PARAM_WPE &&
            (tensor->id != PARAM_WTE || !model->shape.untied))
            bytes += round_up(facts->backend->packed_bytes(tensor->rows, tensor->cols), PLAN_ALIGN);
    }
    return bytes;
}

static size_t master_bytes(const PlanLayout *layout) {
    return shard_elements(layout->facts.model, layout->plan->shards) * sizeof(float);
}

static size_t gradient_bytes(const PlanLayout *layout) {
    return layout->facts.model->elements * layout->facts.backend->grad_bytes;
}

// The bytes of a state of the optimizer, whole or divided into shards.
static size_t state_bytes(const PlanLayout *layout, int state, unsigned shards) {
    const StateRange *range = &layout->plan->optimizer->states[state];
    const Model *model = layout->facts.model;
    const size_t elements = shards > 1 ? shard_elements(model, shards) : optimizer_elements(range, model);
    return elements * optimizer_element_bytes(range, layout->facts.backend);
}

// Lays out memory for the gradients of `slots` layers and for those that no layer's matrix has.
static void lay_gradients(PlanLayout *layout, LayerGradients *gradients, int slots) {
    const Model *model = layout->facts.model;
    const size_t grad_bytes = layout->facts.backend->grad_bytes, start = layout->at;
    const Tensor *first = NULL;
    size_t end = 0;
    for (int i = 0; i < model->count; i++) {
        const Tensor *tensor = &model->tensors[i];
        if (!tensor_transposed(tensor)) continue;
        if (!first) first = tensor;
        end = i + 1 < model->count ? tensor[1].offset : model->elements;
    }
    assert(first && end > first->offset && (end - first->offset) % (size_t)model->shape.layers == 0);
    gradients->first = first->offset * grad_bytes, gradients->end = end * grad_bytes;
    gradients->layer_bytes = (gradients->end - gradients->first) / (size_t)model->shape.layers;
    gradients->kept = take(layout, gradient_bytes(layout) - (gradients->end - gradients->first));
    gradients->slots = take(layout, (size_t)slots * gradients->layer_bytes);
    gradients->bytes = layout->at - start, gradients->slot_count = slots;
}

// reduce_order = fixed: a process alone has the gradients of one micro-batch beside the sums of earlier ones; of
// several, each has the sums of its shards. Nothing if a step has one round: it has nothing to add to.
static void lay_sums(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    const unsigned world = config_world(layout->facts.config);
    if (!plan->fixed_order || plan->rounds == 1) return;
    if (world == 1) lay_gradients(layout, &plan->micro_gradients, 1);
    end_row(layout, (PlanRow){.name = "gradients of a micro-batch"});
    if (world > 1)
        plan->shard_sums = take(layout, shard_elements(layout->facts.model, world) * layout->facts.backend->grad_bytes);
    end_row(layout, (PlanRow){.name = "sums of gradients"});
}

static void lay_parameters(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    plan->params = plan->master = take(layout, layout->facts.model->elements * layout->facts.backend->par_bytes);
    end_row(layout, (PlanRow){.name = "parameters"});
    if (has_master(layout) && !offloads(layout, OFFLOAD_OPTIMIZER)) plan->master = take(layout, master_bytes(layout));
    end_row(layout, (PlanRow){.name = "master parameters"});
    plan->packed = take(layout, plan->portable ? 0 : packed_bytes(&layout->facts));
    end_row(layout, (PlanRow){.name = "packed matrices"});
    if (plan->optimizer) lay_sums(layout);
    if (offloads(layout, OFFLOAD_ALL)) return;
    plan->grads = plan->update.grads = take(layout, plan->optimizer ? gradient_bytes(layout) : 0);
    end_row(layout, (PlanRow){.name = "gradients"});
}

static void lay_states(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    const Optimizer *optimizer = plan->optimizer;
    for (int i = 0; i < optimizer->state_count - optimizer->averages; i++)
        plan->states[i] = take(layout, state_bytes(layout, i, plan->shards));
}

static void lay_average(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    const int last = plan->optimizer->state_count - 1;
    if (plan->optimizer->averages) plan->states[last] = take(layout, state_bytes(layout, last, plan->shards));
}

static void lay_optimizer(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    const bool in_arena = plan->optimizer && !offloads(layout, OFFLOAD_OPTIMIZER);
    const unsigned world = config_world(layout->facts.config);
    if (in_arena) lay_states(layout);
    plan->scalars = take(layout, sizeof(StepScalars));
    if (plan->optimizer) plan->sums = take(layout, norm_pieces(layout->facts.model->elements) * sizeof(double));
    if (plan->optimizer && world > 1) plan->losses = take(layout, plan_losses(plan, world) * sizeof(double));
    end_row(layout, (PlanRow){.name = in_arena ? "optimizer" : "scalars"});
    if (in_arena) lay_average(layout);
    end_row(layout, (PlanRow){.name = "averaged weights"});
}

// ---- passes

static int eval_rows(const Config *config) {
    return (int)(config->eval_batch_size ? config->eval_batch_size : config->batch_size.value);
}

// The scratch memory of the backend, and the angles of rope.
static void lay_scratch(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    const Config *config = layout->facts.config;
    const ModelShape *m = &layout->facts.model->shape;
    const int train_rows = plan->optimizer ? (int)config->batch_size.value : 0;
    const int eval_tokens = eval_rows(config) * (int)config_eval_block(config);
    const int eval_blocks = (eval_tokens + m->block - 1) / m->block;
    const Shape largest = {.B = train_rows > eval_blocks ? train_rows : eval_blocks,
                           .T = m->block,
                           .C = m->channels,
                           .H = m->heads,
                           .V = m->padded_vocab,
                           .chunk_rows = plan->chunk_rows,
                           .threads = (int)config->threads};
    plan->scratch_bytes = layout->facts.backend->scratch_bytes(&largest);
    plan->scratch = take(layout, plan->scratch_bytes);
    end_row(layout, (PlanRow){.name = "scratch"});
    plan->rotation = layout->at;
    if (m->rope_theta > 0) take(layout, (size_t)m->block * (size_t)(m->channels / m->heads) * sizeof(float));
    end_row(layout, (PlanRow){.name = "angles of positions"});
}

// The training pass and the evaluation pass, which are never live together.
static void lay_passes(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    PlanTable *table = &plan->table;
    const Config *config = layout->facts.config;
    const bool training = plan->optimizer;
    plan->passes = plan->train.end = layout->at;
    if (offloads(layout, OFFLOAD_ALL)) lay_gradients(layout, &plan->layer_gradients, BACKEND_SLOTS);
    end_row(layout, (PlanRow){.name = "gradients of layers, and kept"});
    if (training)
        pass_layout_init(&plan->train, layout->at, (int)config->batch_size.value, layout->facts.model->shape.block,
                         true, &layout->facts, table);
    pass_layout_init(&plan->eval, plan->passes, eval_rows(config), (int)config_eval_block(config), false,
                     &layout->facts, training ? NULL : table);
    plan->bytes = plan->train.end > plan->eval.end ? plan->train.end : plan->eval.end;
    if (!training) return;
    if (plan->bytes > plan->train.end)
        plan_table_add(table, (PlanRow){.name = "more for evaluation", .bytes = plan->bytes - plan->train.end});
    plan_table_add(table,
                   (PlanRow){.name = "evaluation, sampling", .bytes = plan->eval.end - plan->passes, .overlaid = true});
}

static void lay_sampling(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    const ModelShape *shape = &layout->facts.model->shape;
    const size_t row = 3 * (size_t)shape->channels * layout->facts.backend->act_bytes;
    const size_t stride = round_up((size_t)shape->block * row, PLAN_ALIGN);
    const size_t bytes = (size_t)shape->layers * stride, end = plan->eval.end + bytes;
    assert(plan->eval.end <= plan->bytes);
    plan->sample = plan->eval;
    if (!layout->facts.config->sample_tokens || (plan->optimizer && end > plan->bytes)) return;
    plan->sample.cache = plan->eval.end;
    plan->sample.cache_stride = stride;
    plan_table_add(&plan->table,
                   (PlanRow){.name = "keys and values for sampling", .bytes = bytes, .overlaid = plan->optimizer});
    if (end > plan->bytes) plan->bytes = end;
}

// ---- the update

static size_t slice_elements(const Optimizer *optimizer, const Model *model) {
    size_t most = model->elements / 8 < SLICE_MAX ? model->elements / 8 : SLICE_MAX;
    for (int i = 0; i < model->count; i++) {
        const size_t elements = tensor_elements(&model->tensors[i]);
        if (optimizer->whole_kinds >> model->tensors[i].kind & 1 && elements > most) most = elements;
    }
    return round_up(most, SLICE_UNIT);
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

// Adds a row of the update, which lies in the memory of the passes. Returns its offset.
static size_t add_update_row(PlanLayout *layout, PlanRow rows[], int *count, const char *name, size_t bytes) {
    rows[(*count)++] = (PlanRow){.name = name, .bytes = bytes, .overlaid = true};
    return take(layout, bytes);
}

// The memory of the passes during an update: all gradients if the gradients of layers are offloaded, slots for the
// slices of offloaded state, and the workspace.
static void lay_update(PlanLayout *layout) {
    MemoryPlan *plan = layout->plan;
    UpdateLayout *update = &plan->update;
    const Optimizer *optimizer = plan->optimizer;
    const Model *model = layout->facts.model;
    const Backend *backend = layout->facts.backend;
    PlanRow rows[3];
    int count = 0;
    layout->at = plan->passes;
    if (offloads(layout, OFFLOAD_ALL))
        update->grads = add_update_row(layout, rows, &count, "gradients of the update",
                                       round_up(gradient_bytes(layout), PLAN_ALIGN));
    if (offloads(layout, OFFLOAD_OPTIMIZER)) {
        update->slice = slice_elements(optimizer, model);
        update->slot_bytes =
            update->slice * (element_bytes(optimizer, backend) + (has_master(layout) ? sizeof(float) : 0));
        update->slots = add_update_row(layout, rows, &count, "slots of the update", BACKEND_SLOTS * update->slot_bytes);
    }
    if (optimizer->workspace_bytes)
        update->workspace = add_update_row(layout, rows, &count, "workspace of the update",
                                           round_up(optimizer->workspace_bytes(model, backend), PLAN_ALIGN));
    if (layout->at > plan->bytes) {
        plan_table_add(&plan->table, (PlanRow){.name = "more for the update", .bytes = layout->at - plan->bytes});
        plan->bytes = layout->at;
    }
    for (int i = 0; i < count; i++)
        if (rows[i].bytes) plan_table_add(&plan->table, rows[i]);
}

// ---- host memory

// The offloaded ranges: their offsets continue after the end of the arena.
static void lay_offload(PlanLayout *layout) {
    static const char micro_batch[] = "a micro-batch, beside it";
    MemoryPlan *plan = layout->plan;
    layout->at = layout->row = plan->bytes;
    if (offloads(layout, OFFLOAD_OPTIMIZER)) {
        if (has_master(layout)) plan->master = take(layout, master_bytes(layout));
        lay_states(layout);
        lay_average(layout);
    }
    end_row(layout, (PlanRow){.name = "optimizer state in host memory", .overlaid = true, .copied = "a step"});
    if (offloads(layout, OFFLOAD_ALL)) plan->grads = take(layout, gradient_bytes(layout));
    end_row(layout, (PlanRow){.name = "gradients in host memory", .overlaid = true, .copied = micro_batch});
    if (plan->train.host_inputs) {
        assert(layout->facts.model->shape.layers > BACKEND_SLOTS);
        const size_t stored = (size_t)(layout->facts.model->shape.layers - BACKEND_SLOTS);
        plan->train.host_inputs = take(layout, stored * plan->train.stride[GROUP_INPUT]);
    }
    end_row(layout, (PlanRow){.name = "residuals in host memory", .overlaid = true, .copied = micro_batch});
    plan->host_bytes = layout->at - plan->bytes;
}

// The buffers of checkpoints, which are not in the arena.
static void size_checkpoints(PlanLayout *layout) {
    enum { STAGING_MIN = 1 << 20 };
    MemoryPlan *plan = layout->plan;
    const Model *model = layout->facts.model;
    const Backend *backend = layout->facts.backend;
    plan->staging = STAGING_MIN;
    for (int i = 0; i < model->count; i++) {
        const size_t bytes = tensor_elements(&model->tensors[i]) * sizeof(float);
        if (tensor_transposed(&model->tensors[i]) && bytes > plan->staging) plan->staging = bytes;
    }
    if (!plan->optimizer) return;
    plan->staging = size_larger(plan->staging, plan_losses(plan, config_world(layout->facts.config)) * sizeof(double));
    plan->copy_bytes = model->elements * (backend->master_bytes ? backend->master_bytes : backend->par_bytes);
    for (int i = 0; i < plan->optimizer->state_count; i++) plan->copy_bytes += state_bytes(layout, i, 1);
}

void memory_plan_init(MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                      const Optimizer *optimizer) {
    assert(!config->batch_size.is_auto); // plan_auto has set it
    // The chunks of an evaluation are no larger than training's, so that it needs no more memory.
    const int64_t rows = config->batch_size.value * config->block_size;
    const int64_t chunk = config->loss_chunk_rows ? config->loss_chunk_rows : LOSS_CHUNK_ROWS;
    *plan = (MemoryPlan){.optimizer = optimizer,
                         .shards = optimizer ? config_shards(config) : 1,
                         .fixed_order = config->reduce_order == REDUCE_FIXED,
                         .portable = config->reduce_order == REDUCE_FIXED && backend->set_portable,
                         .reduce_bf16 = config->reduce_dtype == DTYPE_BF16,
                         .rounds = (int)config_rounds(config),
                         .dropout = config->dropout > 0,
                         .document_mask = config->document_mask,
                         .answers = config->loss_tokens == LOSS_ANSWERS,
                         .z_loss = (float)config->z_loss,
                         .chunk_rows = (int)(rows < chunk ? rows : chunk)};
    PlanLayout layout = {.plan = plan, .facts = {config, model, backend, plan->chunk_rows}};
    lay_parameters(&layout);
    lay_optimizer(&layout);
    lay_scratch(&layout);
    lay_passes(&layout);
    lay_sampling(&layout);
    if (optimizer) lay_update(&layout);
    if (optimizer) lay_offload(&layout);
    size_checkpoints(&layout);
    assert(plan_table_arena(&plan->table) == plan->bytes && plan->passes <= plan->bytes);
    assert(plan->train.end <= plan->bytes && plan->eval.end <= plan->bytes && plan->scratch <= plan->passes);
}
