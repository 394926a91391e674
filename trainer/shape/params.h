// The shape of the model and its tensors: the offset of each in the flat ranges of parameters and gradients.
#pragma once

#include "common/id_array.h"
#include "kernels/backend.h"
#include "trainer/config/config.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPT2_VOCAB = 50257 };

typedef struct {
    int layers, heads, channels, block; // L, H, C, T
    int vocab, padded_vocab;            // padded rows of the embedding are zero and stay so
    bool bias;
    Activation activation;
    int end_of_text; // the id that ends a document
    TurnIds turns;   // the markers of conversations
    bool gpt2_vocab; // the ids are GPT-2's; another vocabulary can have as many
    bool untied;     // the head has its own weights, not the embedding's
#define OPTION(type, field, key, value, gpt2, llama) type field;
#include "trainer/shape/options.def"
} ModelShape;

ModelShape model_shape(const Config *config);

// The rows of options.def for one model.
typedef struct {
    int key;
    const char *name;   // of the key
    double value, gpt2; // of a word: its number
    const char *llama;
} ModelOption;

enum {
#define OPTION(type, field, key, value, gpt2, llama) MODEL_OPTION_##field,
#include "trainer/shape/options.def"
    MODEL_OPTIONS
};

void model_options(const ModelShape *shape, ModelOption options[MODEL_OPTIONS]);

static inline unsigned shape_id_bytes(const ModelShape *s) { return id_bytes((uint64_t)s->vocab); } // of a token id

// Outputs of the product of queries, keys and values, of the first product of an MLP, and inputs of its second.
static inline int shape_qkv(const ModelShape *s) { return (s->heads + 2 * s->kv_heads) * (s->channels / s->heads); }
static inline int shape_hidden(const ModelShape *s) {
    const int whole = 4 * s->channels, part = (8 * s->channels / 3 + 63) / 64 * 64;
    return s->activation == ACTIVATION_SWIGLU && part < whole ? part : whole;
}
static inline int shape_fc(const ModelShape *s) {
    return shape_hidden(s) * (s->activation == ACTIVATION_SWIGLU ? 2 : 1);
}

// Whether attention reads something else than the product of queries, keys and values, and whether in another place.
static inline bool shape_keeps_heads(const ModelShape *s) { return s->qk_norm || s->kv_heads < s->heads; }
static inline bool shape_has_heads(const ModelShape *s) { return s->rope_theta > 0 || shape_keeps_heads(s); }

typedef enum {
#define PARAM(id, name, per, rows, cols, kind) PARAM_##id,
#include "trainer/shape/params.def"
#undef PARAM
    PARAM_COUNT
} ParamId;

typedef enum { KIND_EMBED, KIND_MATRIX, KIND_RESIDUAL, KIND_GAIN, KIND_BIAS, PARAM_KINDS } ParamKind;

typedef struct {
    ParamId id;
    ParamKind kind;
    int layer; // 0 for tensors of the whole model
    int rows, cols;
    int file_rows; // rows without padding, as in files
    size_t offset; // elements from the start of the flat range
    char name[64]; // name in Hugging Face GPT-2 files, without tensor_prefix
} Tensor;

typedef struct {
    ModelShape shape;
    Tensor *tensors; // in arena order; owned
    int count;
    int *places;           // index of tensor (layer, id) in `tensors`, -1: none; owned
    size_t elements;       // of the flat range, gaps (always zero) included
    size_t decay_elements; // the first of them: weight decay applies to these
    size_t parameters;     // without padding and gaps: the number that is reported
} Model;

// Floating-point operations of a training step for each token: 6 for each parameter that is multiplied with, and 12 L C
// T for attention (the formula of nanoGPT's estimate_mfu). Recomputation does not count.
double model_token_flops(const Model *model);

int padded_vocab(int vocab); // the next multiple of 64: aligned rows for the matmuls

void model_open(Model *model, const ModelShape *shape);
void model_close(Model *model);

// NULL when the shape has no such tensor: a bias without `bias`, or one of an option.
const Tensor *model_tensor(const Model *model, ParamId id, int layer);
static inline size_t tensor_elements(const Tensor *tensor) { return (size_t)tensor->rows * (size_t)tensor->cols; }

// Initial values of elements [first, first + count) of the tensor: a pure function of the seed and the element.
void model_init(const Model *model, const Tensor *tensor, uint64_t seed, size_t first, size_t count, float *values);

// Rows of the matrices that one tensor holds, one after another: queries, keys and values, or gate and up, or one
// alone. Returns their number.
enum { TENSOR_PARTS = 3 };
int tensor_parts(const Tensor *tensor, const ModelShape *shape, int rows[TENSOR_PARTS]);

// The prefix of its name in files of GPT2LMHeadModel.
static inline const char *tensor_prefix(const Tensor *tensor) { return tensor->id == PARAM_HEAD ? "" : "transformer."; }

// Whether Hugging Face files hold it transposed.
static inline bool tensor_transposed(const Tensor *tensor) {
    return tensor->kind == KIND_MATRIX || tensor->kind == KIND_RESIDUAL;
}
