// The tensors of the model, laid out from params.def.
#include "trainer/shape/params.h"
#include "trainer/shape/normals.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_MULTIPLE = 64, ALIGN_ELEMENTS = 64 }; // each tensor starts on 128 bytes, in bf16 too

typedef enum { PER_MODEL, PER_LAYER } ParamPer;

static const struct {
    const char *name;
    ParamPer per;
    ParamKind kind;
} params[PARAM_COUNT] = {
#define PARAM(id, name, per, rows, cols, kind) {name, PER_##per, KIND_##kind},
#include "trainer/shape/params.def"
#undef PARAM
};

static void param_size(ParamId id, const ModelShape *shape, int *rows, int *cols) {
    const int V = shape->padded_vocab, T = shape->block, C = shape->channels, D = C / shape->heads;
    const int J = shape_qkv(shape), P = shape_fc(shape), F = shape_hidden(shape);
    switch (id) {
#define PARAM(id, name, per, r, c, kind)                                                                               \
    case PARAM_##id:                                                                                                   \
        *rows = (r), *cols = (c);                                                                                      \
        break;
#include "trainer/shape/params.def"
#undef PARAM
    default:
        assert(false);
    }
    (void)V, (void)T;
}

ModelShape model_shape(const Config *config) {
    const int vocab = config->vocab_size ? (int)config->vocab_size : GPT2_VOCAB;
    return (ModelShape){
        .layers = (int)config->n_layer,
        .heads = (int)config->n_head,
        .channels = (int)config->n_embd,
        .block = (int)config->block_size,
        .vocab = vocab,
        .padded_vocab = padded_vocab(vocab),
        .end_of_text = config->vocab_size ? (int)config->end_of_text : GPT2_VOCAB - 1,
        .turns = config->turns,
        .gpt2_vocab = !config->vocab_size,
        .bias = config->bias,
        .activation = config->mlp == MLP_SWIGLU    ? ACTIVATION_SWIGLU
                      : config->mlp == MLP_RELU2   ? ACTIVATION_RELU2
                      : config->gelu == GELU_EXACT ? ACTIVATION_GELU
                                                   : ACTIVATION_GELU_TANH,
        .untied = !config->tie_embeddings,
#define OPTION(type, field, key, value, gpt2, llama) .field = value,
#include "trainer/shape/options.def"
    };
}

void model_options(const ModelShape *shape, ModelOption options[MODEL_OPTIONS]) {
    const ModelOption rows[MODEL_OPTIONS] = {
#define OPTION(type, field, key, value, gpt2, llama) {KEY_##key, #key, shape->field, gpt2, llama},
#include "trainer/shape/options.def"
    };
    memcpy(options, rows, sizeof rows);
}

double model_token_flops(const Model *model) {
    const ModelShape *shape = &model->shape;
    const double positions = shape->rope_theta > 0 ? 0 : shape->block,
                 read = positions + (shape->untied ? shape->vocab : 0);
    return 6 * ((double)model->parameters - read * shape->channels) +
           12.0 * shape->layers * shape->channels * shape->block;
}

int padded_vocab(int vocab) { return (vocab + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE; }

static bool decays(ParamKind kind) { return kind <= KIND_RESIDUAL; }

static void add_tensor(Model *model, ParamId id, int layer) {
    ParamKind kind = params[id].kind;
    int rows, cols;
    param_size(id, &model->shape, &rows, &cols);
    if (!rows || (kind == KIND_BIAS && !model->shape.bias)) return;
    model->places[layer * PARAM_COUNT + (int)id] = model->count;
    Tensor *tensor = &model->tensors[model->count++];
    *tensor = (Tensor){.id = id, .kind = kind, .layer = layer, .rows = rows, .cols = cols, .offset = model->elements};
    tensor->file_rows = id == PARAM_WTE || id == PARAM_HEAD ? model->shape.vocab : rows;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(tensor->name, sizeof tensor->name, params[id].name, layer);
#pragma GCC diagnostic pop
    model->parameters += (size_t)tensor->file_rows * (size_t)tensor->cols;
    model->elements += (tensor_elements(tensor) + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

// Adds the tensors of one part in the order of params.def: those before the layers, each layer, those after.
static void add_part(Model *model, bool decay) {
    int id = 0;
    for (; id < PARAM_COUNT && params[id].per == PER_MODEL; id++)
        if (decays(params[id].kind) == decay) add_tensor(model, (ParamId)id, 0);
    int first = id;
    for (int layer = 0; layer < model->shape.layers; layer++)
        for (id = first; params[id].per == PER_LAYER; id++)
            if (decays(params[id].kind) == decay) add_tensor(model, (ParamId)id, layer);
    for (; id < PARAM_COUNT; id++)
        if (decays(params[id].kind) == decay) add_tensor(model, (ParamId)id, 0);
}

void model_open(Model *model, const ModelShape *shape) {
    *model = (Model){.shape = *shape};
    size_t most = (size_t)shape->layers * PARAM_COUNT;
    model->tensors = allocate_zeroed(most, sizeof *model->tensors);
    model->places = allocate_zeroed(most, sizeof *model->places);
    memset(model->places, -1, most * sizeof *model->places);
    add_part(model, true);
    model->decay_elements = model->elements;
    add_part(model, false);
}

void model_close(Model *model) {
    free(model->tensors);
    free(model->places);
    *model = (Model){0};
}

const Tensor *model_tensor(const Model *model, ParamId id, int layer) {
    int place = model->places[layer * PARAM_COUNT + (int)id];
    return place < 0 ? NULL : &model->tensors[place];
}

int tensor_parts(const Tensor *tensor, const ModelShape *shape, int rows[TENSOR_PARTS]) {
    rows[0] = tensor->file_rows;
    if (tensor->id == PARAM_QKV_W || tensor->id == PARAM_QKV_B) {
        rows[0] = shape->channels, rows[1] = rows[2] = shape->kv_heads * (shape->channels / shape->heads);
        return 3;
    }
    if ((tensor->id != PARAM_FC_W && tensor->id != PARAM_FC_B) || shape->activation != ACTIVATION_SWIGLU) return 1;
    rows[0] = rows[1] = shape_hidden(shape);
    return 2;
}

void model_init(const Model *model, const Tensor *tensor, uint64_t seed, size_t first, size_t count, float *values) {
    if (tensor->kind >= KIND_GAIN) {
        for (size_t i = 0; i < count; i++) values[i] = tensor->kind == KIND_GAIN;
        return;
    }
    double deviation = tensor->kind == KIND_RESIDUAL ? 0.02 / sqrt(2.0 * model->shape.layers) : 0.02;
    size_t real = (size_t)tensor->file_rows * (size_t)tensor->cols;
    uint64_t stream = (uint64_t)tensor->id << 32 |
                      (uint64_t)tensor->layer; // one random stream per tensor, independent of the rest of the model
    enum { PIECE = 256 };
    double drawn[PIECE];
    Normals *const normals = normals_on(cpu_isa());
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        normals(seed, stream, first + at, n, drawn);
        for (size_t i = 0; i < n; i++) values[at + i] = first + at + i < real ? (float)(deviation * drawn[i]) : 0.0f;
    }
}
