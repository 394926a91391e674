// The facts of the CUDA backend, and a backend of facts alone for a plan.
#include "kernels/gpu_facts.h"
#include "common/err.h"
#include "common/sizes.h"
#include <stdio.h>
#include <string.h>

enum { CAPABILITY_NEEDED = 75 }; // the lowest that the fp16 kernels are built for; bf16 needs 8.0

#define CAPABILITY(NAME, name, number, word, file, range, on, card, ...) card,
static const int capabilities[] = {DTYPES(CAPABILITY, )};

Dtype gpu_act_type(const BackendChoice *choice, int capability) {
    if (choice->dtype != DTYPE_AUTO) return choice->dtype;
    return capability && capability < capabilities[DTYPE_BF16] ? DTYPE_FP16 : DTYPE_BF16;
}

int gpu_check_capability(const BackendChoice *choice, const char *name, int capability) {
    const int needed = choice->dtype == DTYPE_AUTO ? 0 : capabilities[choice->dtype];
    if (capability < CAPABILITY_NEEDED)
        return fail(EX_GPU, "the GPU '%s' has compute capability %d.%d, 7.5 is needed: use device=cpu", name,
                    capability / 10, capability % 10);
    if (capability < needed)
        return fail(EX_USAGE, "the GPU '%s' has compute capability %d.%d, %s needs %d.%d: use dtype=float16", name,
                    capability / 10, capability % 10, dtype_name(choice->dtype), needed / 10, needed % 10);
    return 0;
}

static int check_shape(int channels, int heads) {
    int width = channels / heads;
    if (width % 8 || width > HEAD_MAX)
        return fail(EX_USAGE, "device=cuda does heads of up to %d channels, a multiple of 8, not n_embd / n_head = %d",
                    HEAD_MAX, width);
    if (channels > CHANNELS_MAX)
        return fail(EX_USAGE, "device=cuda does n_embd up to %d, not %d", CHANNELS_MAX, channels);
    return 0;
}

static size_t packed_bytes(int rows, int cols) {
    (void)rows, (void)cols;
    return 0; // cuBLASLt reads the parameters as they are
}

// ---- scratch memory, by the column `scratch` of ops.def

GradientScratch attention_scratch(int B, int T, int H, int D) {
    const int padded = (T + ATTENTION_TILE - 1) / ATTENTION_TILE * ATTENTION_TILE;
    const size_t rows = (size_t)B * (size_t)H * (size_t)padded;
    GradientScratch at = {.padded = padded, .turn_count = 1 + (int)(rows / 16)}; // of the shortest tile
    at.statistics = rows * (size_t)attention_width(D) * sizeof(float);
    at.turns = at.statistics + rows * 2 * sizeof(float);
    at.end = at.turns + (size_t)at.turn_count * sizeof(int);
    return at;
}

static size_t row_bytes(const Shape *shape) { return (size_t)shape->C * sizeof(float); }

static size_t no_bytes(const Shape *shape, Dtype type) { return (void)shape, (void)type, 0; }
static size_t matmul_bytes(const Shape *shape, Dtype type) { return (void)shape, (void)type, WORKSPACE_LEAST; }
static size_t gelu_bytes(const Shape *shape, Dtype type) { return (void)type, ROW_BLOCKS * 4 * row_bytes(shape); }
static size_t heads_bytes(const Shape *shape, Dtype type) { return (void)type, ROW_BLOCKS * 3 * row_bytes(shape); }
static size_t layernorm_bytes(const Shape *shape, Dtype type) {
    return (void)type, LAYERNORM_BLOCKS * 2 * row_bytes(shape);
}
static size_t swiglu_bytes(const Shape *shape, Dtype type) {
    return (void)type, ROW_BLOCKS * 8 * row_bytes(shape); // 2F is at most 8C
}
static size_t embed_bytes(const Shape *shape, Dtype type) {
    const size_t places = round_up((size_t)shape->B * (size_t)shape->T, EMBED_SORTED);
    return (void)type, (places + 1 + places / (EMBED_MANY + 1)) * sizeof(uint32_t);
}
static size_t attention_bytes(const Shape *shape, Dtype type) {
    if (type == DTYPE_FP32) return (size_t)shape->B * (size_t)shape->T * (size_t)shape->H * sizeof(float);
    return attention_scratch(shape->B, shape->T, shape->H, shape->C / shape->H).end;
}

static size_t scratch_bytes(const Shape *shape, Dtype type) {
    size_t bytes = 0;
#define OP(name, scratch, arguments) bytes = size_larger(bytes, scratch##_bytes(shape, type));
#include "kernels/ops.def"
#undef OP
    return round_up(bytes, 256) + UPLOAD_BYTES;
}

#define OF_TYPE(NAME, name, ...)                                                                                       \
    static size_t scratch_bytes_##name(const Shape *shape) { return scratch_bytes(shape, DTYPE_##NAME); }
CUDA_ACTS(OF_TYPE, )
#define SCRATCH_BYTES(NAME, name, ...) [DTYPE_##NAME] = scratch_bytes_##name,
static size_t (*const scratch_bytes_of[])(const Shape *shape) = {CUDA_ACTS(SCRATCH_BYTES, )};

// ---- facts

Backend gpu_facts(const BackendChoice *choice, const GpuProperties *gpu) {
    const Dtype type = gpu_act_type(choice, gpu->capability);
    const bool full = choice->optimizer_state == STATE_FP32, stochastic = choice->optimizer_state == STATE_BF16_SR;
    return (Backend){
        .name = "cuda",
        .card = gpu->card,
        .act_type = type,
        .free_bytes = gpu->free_bytes,
        .memory_bytes = gpu->memory_bytes,
        .act_bytes = dtype_bytes(type),
        .par_bytes = dtype_bytes(type),
        .grad_bytes = 4,
        .res_bytes = dtype_bytes(type),
        .master_bytes = stochastic || type == DTYPE_FP32 ? 0 : 4, // float32 parameters are their own master
        .moment_bytes = full ? 4 : 2,
        .needs_warm_up = true,
        .check_shape = check_shape,
        .packed_bytes = packed_bytes,
        .scratch_bytes = scratch_bytes_of[type],
    };
}

static void close_nothing(void) {}

const Backend *backend_planned(const BackendChoice *choice, char why[256]) {
    static Backend backend;
    const GpuProperties *gpu = choice->planned;
    char name[128];
    snprintf(name, sizeof name, "%.*s", gpu->card ? (int)strcspn(gpu->card, ",") : 0, gpu->card ? gpu->card : "");
    if (gpu->capability && gpu_check_capability(choice, name, gpu->capability) < 0) return NULL;
    backend = gpu_facts(choice, gpu);
    backend.is_planned = true, backend.close = close_nothing;
    snprintf(why, 256, "cuda: planned for%s%s, not opened; %s", *name ? " " : "", name, dtype_name(backend.act_type));
    return &backend;
}
