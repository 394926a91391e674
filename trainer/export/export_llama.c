// Models with options as transformers' Llama, or with qk_norm as its Qwen3, if these compute the same.
#include "trainer/export/export_llama.h"
#include "common/err.h"
#include "trainer/export/export.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    ParamId id;
    int part; // of tensor_parts()
    const char *name;
} names[] = {
    {PARAM_WTE, 0, "model.embed_tokens.weight"},
    {PARAM_LN1_W, 0, "model.layers.%d.input_layernorm.weight"},
    {PARAM_QKV_W, 0, "model.layers.%d.self_attn.q_proj.weight"},
    {PARAM_QKV_W, 1, "model.layers.%d.self_attn.k_proj.weight"},
    {PARAM_QKV_W, 2, "model.layers.%d.self_attn.v_proj.weight"},
    {PARAM_QKV_B, 0, "model.layers.%d.self_attn.q_proj.bias"},
    {PARAM_QKV_B, 1, "model.layers.%d.self_attn.k_proj.bias"},
    {PARAM_QKV_B, 2, "model.layers.%d.self_attn.v_proj.bias"},
    {PARAM_Q_GAIN, 0, "model.layers.%d.self_attn.q_norm.weight"},
    {PARAM_K_GAIN, 0, "model.layers.%d.self_attn.k_norm.weight"},
    {PARAM_ATT_W, 0, "model.layers.%d.self_attn.o_proj.weight"},
    {PARAM_ATT_B, 0, "model.layers.%d.self_attn.o_proj.bias"},
    {PARAM_LN2_W, 0, "model.layers.%d.post_attention_layernorm.weight"},
    {PARAM_FC_W, 0, "model.layers.%d.mlp.gate_proj.weight"},
    {PARAM_FC_W, 1, "model.layers.%d.mlp.up_proj.weight"},
    {PARAM_FC_B, 0, "model.layers.%d.mlp.gate_proj.bias"},
    {PARAM_FC_B, 1, "model.layers.%d.mlp.up_proj.bias"},
    {PARAM_PROJ_W, 0, "model.layers.%d.mlp.down_proj.weight"},
    {PARAM_PROJ_B, 0, "model.layers.%d.mlp.down_proj.bias"},
    {PARAM_LNF_W, 0, "model.norm.weight"},
    {PARAM_HEAD, 0, "lm_head.weight"},
};

typedef struct {
    const Tensor *tensor;
    int first, rows; // of the tensor
    char name[SAFE_NAME_BYTES];
} Piece;

static void set_rows(Piece *piece, int part, const ModelShape *shape) {
    int rows[TENSOR_PARTS];
    tensor_parts(piece->tensor, shape, rows);
    for (int i = 0; i < part; i++) piece->first += rows[i];
    piece->rows = rows[part];
}

// The tensors of the file to write; the caller frees them.
static Piece *pieces_of(const Model *model, int *count) {
    enum { NAMES = sizeof names / sizeof *names };
    Piece *pieces = allocate_zeroed((size_t)model->count * NAMES, sizeof *pieces);
    *count = 0;
    for (int i = 0; i < model->count; i++)
        for (int k = 0; k < NAMES; k++) {
            if (names[k].id != model->tensors[i].id) continue;
            Piece *piece = &pieces[(*count)++];
            piece->tensor = &model->tensors[i];
            set_rows(piece, names[k].part, &model->shape);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(piece->name, sizeof piece->name, names[k].name, piece->tensor->layer);
#pragma GCC diagnostic pop
        }
    return pieces;
}

// Copies row by row, outputs x inputs; a vector is one row. Matrices of the source are inputs x outputs.
static int copy_piece(SafeWriter *writer, const SafeFile *file, const Piece *piece) {
    const Tensor *tensor = piece->tensor;
    const bool turned = tensor_transposed(tensor), vector = tensor->kind >= KIND_GAIN;
    const size_t all = (size_t)tensor->file_rows, cols = (size_t)tensor->cols;
    const size_t first = (size_t)piece->first, rows = (size_t)piece->rows;
    const size_t lines = vector ? 1 : rows, length = vector ? rows : cols;
    char name[SAFE_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", tensor_prefix(tensor), tensor->name);
    const SafeTensor *found = safe_find(file, name);
    if (!found || strcmp(found->dtype, "F32") || found->end - found->begin != all * cols * sizeof(float))
        return fail(EX_DATA, "'%s' is missing or of another type or shape", name);
    if (safe_check(file, found) < 0) return -1;
    float *line = allocate_zeroed(length, sizeof *line);
    int result = 0;
    for (size_t n = 0; n < lines && result == 0; n++) {
        for (size_t i = 0; i < length; i++)
            line[i] = dtype_value(DTYPE_FP32, file->data + found->begin,
                                  turned   ? i * all + first + n
                                  : vector ? first + i
                                           : (first + n) * cols + i);
        result = export_write(writer, piece->name, line, length);
    }
    free(line);
    return result;
}

static int write_pieces(const char *from, const char *to, const Model *model, Dtype type) {
    SafeFile file;
    SafeWriter writer = {0};
    int count;
    if (safe_open(&file, from) < 0) return -1;
    Piece *pieces = pieces_of(model, &count);
    int result = safe_create(&writer, to, type);
    for (int i = 0; i < count && result == 0; i++)
        safe_name(&writer, pieces[i].name, (uint64_t)pieces[i].rows,
                  pieces[i].tensor->kind >= KIND_GAIN ? 0 : (uint64_t)pieces[i].tensor->cols);
    for (int i = 0; i < count && result == 0; i++) result = copy_piece(&writer, &file, &pieces[i]);
    if (result == 0) result = safe_finish(&writer, NULL);
    safe_abandon(&writer);
    free(pieces);
    safe_close(&file);
    return result;
}

int llama_write(const char *from, const char *to, const ModelShape *shape, Dtype type) {
    Model model;
    model_open(&model, shape);
    int result = write_pieces(from, to, &model, type);
    model_close(&model);
    return result;
}

int llama_check(const ModelShape *shape) {
    ModelOption options[MODEL_OPTIONS];
    const char *other = NULL;
    char not_gpt2[160] = "";
    model_options(shape, options);
    for (int i = 0; i < MODEL_OPTIONS; i++) {
        if (!other) other = options[i].llama;
        if (options[i].value != options[i].gpt2) strcat(strcat(not_gpt2, *not_gpt2 ? ", " : ""), options[i].name);
    }
    if (!other && shape->activation != ACTIVATION_SWIGLU) other = "mlp is not swiglu";
    if (!other) return 0;
    if (shape->activation == ACTIVATION_SWIGLU) strcat(strcat(not_gpt2, *not_gpt2 ? ", " : ""), "mlp=swiglu");
    return fail(
        EX_USAGE,
        "no model of transformers has these options: a GPT-2 does not have %s; a Llama, with qk_norm a Qwen3, has "
        "norm=rmsnorm, position=rope and mlp=swiglu, and here %s",
        not_gpt2, other);
}

void llama_config_print(const ModelShape *shape, Dtype type, Buffer *out) {
    const char *const yes_no[] = {"false", "true"};
    buffer_print(out, "{\n \"architectures\": [\"%s\"],\n \"model_type\": \"%s\",\n",
                 shape->qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM", shape->qk_norm ? "qwen3" : "llama");
    buffer_print(out,
                 " \"num_hidden_layers\": %d,\n \"num_attention_heads\": %d,\n \"num_key_value_heads\": %d,\n"
                 " \"hidden_size\": %d,\n \"head_dim\": %d,\n \"intermediate_size\": %d,\n"
                 " \"max_position_embeddings\": %d,\n \"vocab_size\": %d,\n \"hidden_act\": \"silu\",\n"
                 " \"rms_norm_eps\": 1e-05,\n \"rope_theta\": %.17g,\n"
                 " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.17g},\n"
                 "%s \"attention_bias\": %s,\n \"mlp_bias\": %s,\n \"attention_dropout\": 0.0,\n"
                 " \"initializer_range\": 0.02,\n \"tie_word_embeddings\": %s,\n"
                 " \"bos_token_id\": %d,\n \"eos_token_id\": %d,\n \"torch_dtype\": \"%s\"\n}\n",
                 shape->layers, shape->heads, shape->kv_heads, shape->channels, shape->channels / shape->heads,
                 shape_hidden(shape), shape->block, shape->vocab, shape->rope_theta, shape->rope_theta,
                 shape->qk_norm ? " \"use_sliding_window\": false,\n" : "", yes_no[shape->bias], yes_no[shape->bias],
                 yes_no[!shape->untied], shape->end_of_text, shape->end_of_text, dtype_name(type));
}
