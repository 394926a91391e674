// The memory of the network: the arena, its parameters and the packed weights.
#include "trainer/model/network.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/hugepages.h"
#include "common/machine/pool.h"
#include "common/machine/stop.h"
#include "common/math/portable_math.h"
#include "common/sizes.h"
#include "trainer/model/answers.h"
#include <stdlib.h>

static const ParamId layer_weights[] = {PARAM_QKV_W, PARAM_ATT_W, PARAM_FC_W, PARAM_PROJ_W};
enum { LAYER_WEIGHTS = 4, PAGE = 4096 };

static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

static void add_weight(Network *network, ParamId id, int layer, size_t *packed) {
    const Tensor *tensor = model_tensor(network->model, id, layer);
    Weight *weight = &network->weights[network->weight_count++];
    size_t bytes = network->plan->portable ? 0 : network->ops->packed_bytes(tensor->rows, tensor->cols);
    *weight = (Weight){.param = network_param(network, id, layer),
                       .packed = bytes ? network_at(network, *packed) : NULL,
                       .rows = tensor->rows,
                       .cols = tensor->cols};
    *packed += aligned(bytes);
}

// Zeroed host memory. NULL after fail() (82).
static unsigned char *host_memory(const Backend *backend, size_t bytes) {
    void *memory = hugepages_alloc(bytes);
    char size[16];
    if (!memory) {
        fail(EX_MEMORY, "no host memory for %s that are offloaded", human_bytes(size, (double)bytes));
        return NULL;
    }
    backend->pin(memory, bytes);
    return memory;
}

// The largest batch; sampling needs a whole block.
static size_t most_tokens(const MemoryPlan *plan, const Model *model) {
    const size_t train = (size_t)plan->train.rows * (size_t)plan->train.block, block = (size_t)model->shape.block;
    const size_t eval = (size_t)plan->eval.rows * (size_t)plan->eval.block, most = train > eval ? train : eval;
    return most > block ? most : block;
}

static size_t starts_bytes(const MemoryPlan *plan, const Model *model) {
    return round_up(most_tokens(plan, model) * sizeof(int32_t), PAGE);
}

// Rotary position embedding: pair i of D/2 turns by position / theta^(2i/D).
static void write_rotation(Network *network) {
    const ModelShape *shape = &network->model->shape;
    const int D = shape->channels / shape->heads, half = D / 2,
              rows = (int)(network->plan->staging / sizeof(float)) / D;
    for (int first = 0; shape->rope_theta > 0 && first < shape->block; first += rows) {
        const int count = shape->block - first < rows ? shape->block - first : rows;
        for (int i = 0; i < half; i++) {
            const double turn = portable_exp(-2.0 * i / D * portable_log(shape->rope_theta));
            for (int t = 0; t < count; t++) {
                network->staging[t * D + i] = (float)portable_cos((first + t) * turn);
                network->staging[t * D + half + i] = (float)portable_sin((first + t) * turn);
            }
        }
        network->ops->upload(network_at(network, network->plan->rotation + (size_t)(first * D) * sizeof(float)),
                             network->staging, (size_t)(count * D) * sizeof(float));
    }
}

// Gaps between tensors stay zero; gradients start as zero.
static int zero_tensors(const Network *network) {
    const size_t piece = 256 << 20, total = network->ops->in_host_memory ? 0 : network->plan->passes;
    for (size_t at = 0; at < total; at += piece) {
        if (stop_check("memory was allocated") < 0) return -1;
        network->ops->zero(network_at(network, at), total - at < piece ? total - at : piece);
    }
    return 0;
}

int network_open(Network *network, const Backend *backend, const Model *model, const MemoryPlan *plan) {
    *network = (Network){.ops = backend, .model = model, .plan = plan, .collective = &collective_none};
    int layers = model->shape.layers;
    network->weights = calloc((size_t)layers * LAYER_WEIGHTS + 1, sizeof *network->weights);
    network->staging = malloc(plan->staging);
    network->scalars = aligned_alloc(PAGE, PAGE);
    network->starts = aligned_alloc(PAGE, starts_bytes(plan, model));
    network->counted = aligned_alloc(PAGE, starts_bytes(plan, model));
    if (!network->weights || !network->staging || !network->scalars || !network->starts || !network->counted)
        return fail(EX_MEMORY, "no memory for the list of weights and the checkpoint buffer");
    network->arena = backend->alloc(plan->bytes);
    if (!network->arena) return -1;
    backend->pin(network->scalars, PAGE);
    if (plan->document_mask) backend->pin(network->starts, starts_bytes(plan, model));
    if (plan->answers) backend->pin(network->counted, starts_bytes(plan, model));
    if (plan->host_bytes && !(network->host = host_memory(backend, plan->host_bytes))) return -1;
    if (zero_tensors(network) < 0) return -1;
    backend->bind_scratch(network_at(network, plan->scratch), plan->scratch_bytes);
    if (backend->set_portable) backend->set_portable(plan->portable);
    size_t packed = plan->packed;
    for (int layer = 0; layer < layers; layer++)
        for (int i = 0; i < LAYER_WEIGHTS; i++) add_weight(network, layer_weights[i], layer, &packed);
    add_weight(network, model->shape.untied ? PARAM_HEAD : PARAM_WTE, 0, &packed);
    write_rotation(network);
    return 0;
}

void network_close(Network *network) {
    if (network->arena) {
        network->ops->unpin(network->scalars), network->ops->unpin(network->starts);
        network->ops->unpin(network->counted);
        network->ops->release(network->arena);
    }
    if (network->host) {
        network->ops->unpin(network->host);
        hugepages_free(network->host);
    }
    free(network->weights);
    free(network->staging);
    free(network->scalars);
    free(network->starts);
    free(network->counted);
    *network = (Network){0};
}

double *network_loss(const Network *network) {
    StepScalars *scalars = network_at(network, network->plan->scalars);
    const MemoryPlan *plan = network->plan;
    const size_t each = plan_losses(plan, 1), micro = plan->fixed_order ? (size_t)network->micro : 0;
    double *losses = network_at(network, plan->losses);
    return network->collective->world > 1 ? losses + network->collective->rank * each + micro : &scalars->loss;
}

Par *network_param(const Network *network, ParamId id, int layer) {
    const Tensor *tensor = model_tensor(network->model, id, layer);
    return tensor ? network_at(network, network->plan->params + tensor->offset * network->ops->par_bytes) : NULL;
}

// The gradient at a byte of all gradients, which is of this layer.
static Grad *gradient_at(const Network *network, const LayerGradients *slots, size_t offset, int layer) {
    if (!slots->layer_bytes) return network_at(network, network->plan->grads + offset);
    if (offset < slots->first) return network_at(network, slots->kept + offset);
    if (offset >= slots->end) return network_at(network, slots->kept + slots->first + (offset - slots->end));
    return network_at(network, layer_gradients_slot(slots, layer) + (offset - slots->first) % slots->layer_bytes);
}

Grad *network_grad(const Network *network, ParamId id, int layer) {
    const Tensor *tensor = model_tensor(network->model, id, layer);
    const MemoryPlan *plan = network->plan;
    if (!tensor) return NULL;
    return gradient_at(network, network->apart ? &plan->micro_gradients : &plan->layer_gradients,
                       tensor->offset * network->ops->grad_bytes, layer);
}

// For a process alone, with reduce_order = fixed.
static void add_gradients(const Network *network, size_t first, size_t end, int layer) {
    const MemoryPlan *plan = network->plan;
    const size_t count = (end - first) / network->ops->grad_bytes;
    Grad *sums = gradient_at(network, &plan->layer_gradients, first, layer), *part = sums;
    if (!plan->micro_gradients.layer_bytes || !count) return;
    if (network->apart) part = gradient_at(network, &plan->micro_gradients, first, layer);
    if (plan->reduce_bf16) network->ops->round_to_bf16(part, count);
    if (network->apart) network->ops->add_gradients(sums, part, count);
}

void network_add_layer_gradients(const Network *network, int layer) {
    const LayerGradients *micro = &network->plan->micro_gradients;
    const size_t first = micro->first + (size_t)layer * micro->layer_bytes;
    add_gradients(network, first, first + micro->layer_bytes, layer);
}

void network_add_kept_gradients(const Network *network) {
    const LayerGradients *micro = &network->plan->micro_gradients;
    add_gradients(network, 0, micro->first, 0);
    add_gradients(network, micro->end, network->model->elements * network->ops->grad_bytes, 0);
}

const Weight *network_weight(const Network *network, ParamId id, int layer) {
    if (id == PARAM_HEAD) return &network->weights[network->weight_count - 1];
    int i = 0;
    while (layer_weights[i] != id) i++;
    return &network->weights[layer * LAYER_WEIGHTS + i];
}

void network_pack(Network *network) {
    for (int i = 0; i < network->weight_count; i++)
        if (network->weights[i].packed) network->ops->pack(&network->weights[i]);
}

static void get(const Network *network, void *to, size_t offset, size_t bytes) {
    const void *from = network_at(network, offset);
    collective_settle(network->collective);
    if (offset < network->plan->bytes)
        network->ops->download(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static void put(const Network *network, size_t offset, const void *from, size_t bytes) {
    void *to = network_at(network, offset);
    collective_settle(network->collective);
    if (offset < network->plan->bytes)
        network->ops->upload(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

// Shorter numbers are downloaded to the end of `values`, then converted in place from the front.
void network_read(const Network *network, size_t range, Dtype type, size_t first, size_t count, float *values) {
    const size_t bytes = dtype_bytes(type);
    char *stored = (char *)values + count * (sizeof *values - bytes);
    get(network, stored, range + first * bytes, count * bytes);
    if (type != DTYPE_FP32) dtype_read(values, type, stored, count);
}

void network_write(const Network *network, size_t range, Dtype type, size_t first, size_t count, const float *values) {
    enum { PIECE = 1 << 19 }; // each upload waits: with pieces of 8 KiB a model of 1558M waited 380,000 times
    static char stored[PIECE * sizeof(float)];
    const size_t bytes = dtype_bytes(type);
    if (type == DTYPE_FP32) return put(network, range + first * bytes, values, count * bytes);
    if (network->ops->in_host_memory) {
        collective_settle(network->collective);
        return dtype_write(network_at(network, range + first * bytes), type, values, count);
    }
    for (size_t i = 0; i < count; i += PIECE) {
        const size_t n = count - i < PIECE ? count - i : PIECE;
        dtype_write(stored, type, values + i, n);
        put(network, range + (first + i) * bytes, stored, n * bytes);
    }
}

void network_reset_optimizer(Network *network) {
    const MemoryPlan *plan = network->plan;
    for (int i = 0; plan->optimizer && i < plan->optimizer->state_count; i++) {
        const StateRange *state = &plan->optimizer->states[i];
        void *range = network_at(network, plan->states[i]);
        const size_t bytes = optimizer_elements(state, network->model) * optimizer_element_bytes(state, network->ops);
        if (plan->update.slice)
            memset(range, 0, bytes);
        else
            network->ops->zero(range, bytes);
    }
}

// The part of a tensor that one worker initializes.
typedef struct {
    const Model *model;
    const Tensor *tensor;
    uint64_t seed;
    size_t first, count;
    float *values;
} Draw;

static int draw_values(void *job, unsigned worker) {
    const Draw *draw = job;
    (void)worker;
    model_init(draw->model, draw->tensor, draw->seed, draw->first, draw->count, draw->values);
    return 0;
}

// Fills the staging buffer with elements [first, first + count), on all threads.
static void draw_piece(const Network *network, Pool *pool, const Tensor *tensor, uint64_t seed, size_t first,
                       size_t count) {
    size_t share = (count + pool_threads(pool) - 1) / pool_threads(pool);
    void *done;
    for (size_t at = 0; at < count; at += share) {
        Draw *draw = pool_acquire(pool);
        *draw = (Draw){network->model,       tensor, seed, first + at, count - at < share ? count - at : share,
                       network->staging + at};
        pool_submit(pool);
    }
    do pool_collect(pool, &done);
    while (done);
}

int network_init(Network *network, uint64_t seed) {
    enum { DRAWS_MAX = 1024 };
    const MemoryPlan *plan = network->plan;
    size_t piece = plan->staging / sizeof(float);
    Draw draws[DRAWS_MAX];
    unsigned threads = pool_cores() < DRAWS_MAX ? pool_cores() : DRAWS_MAX;
    Pool *pool = pool_open(threads, draw_values, draws, sizeof *draws, threads);
    int result = 0;
    if (!pool) return -1;
    for (int i = 0; i < network->model->count; i++) {
        const Tensor *tensor = &network->model->tensors[i];
        size_t total = tensor_elements(tensor);
        for (size_t first = 0; first < total && result == 0; first += piece) {
            size_t count = total - first < piece ? total - first : piece;
            draw_piece(network, pool, tensor, seed, first, count);
            network_write(network, plan->params, par_type(network->ops), tensor->offset + first, count,
                          network->staging);
            if (plan->master != plan->params)
                network_write(network, plan->master, DTYPE_FP32, tensor->offset + first, count, network->staging);
            result = stop_check("the initial weights were made");
        }
    }
    pool_close(pool);
    if (result < 0) return -1;
    network_pack(network);
    return 0;
}

void network_zero_tokens(const Network *network, const PassLayout *pass, uint64_t B) {
    const uint64_t T = (uint64_t)pass->block;
    network->ops->zero(network_at(network, pass->tokens), B * (T + 1) * shape_id_bytes(&network->model->shape));
    if (network->plan->document_mask)
        network->ops->zero(network_at(network, pass->starts), B * T * sizeof *network->starts);
    if (network->plan->answers) network->ops->zero(network_at(network, pass->counted), B * T);
}

static void count_targets(Network *network, const PassLayout *pass, const void *ids, size_t B, size_t T) {
    const ModelShape *shape = &network->model->shape;
    network->targets = B * T;
    if (!network->plan->answers) return;
    network->targets =
        answers_count(&shape->turns, (uint32_t)shape->end_of_text, ids, shape_id_bytes(shape), B, T, network->counted);
    network->ops->upload(network_at(network, pass->counted), network->counted, B * T);
}

void network_tokens(Network *network, const PassLayout *pass, const void *ids, int B, int T) {
    const ModelShape *shape = &network->model->shape;
    const unsigned bytes = shape_id_bytes(shape);
    network->ops->upload(network_at(network, pass->tokens), ids, (size_t)B * (size_t)(T + 1) * bytes);
    count_targets(network, pass, ids, (size_t)B, (size_t)T);
    if (!network->plan->document_mask) return;
    int32_t *starts = network->starts;
    for (int b = 0; b < B; b++)
        for (int t = 0, first = 0; t < T; t++) {
            const uint32_t id = id_at(ids, (size_t)b * (size_t)(T + 1) + (size_t)t, bytes);
            if (id == (uint32_t)shape->end_of_text) first = t;
            *starts++ = first;
        }
    network->ops->upload(network_at(network, pass->starts), network->starts, (size_t)B * (size_t)T * sizeof *starts);
}
