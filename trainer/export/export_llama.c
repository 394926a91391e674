// Models with options as transformers' Llama, or with qk_norm as its Qwen3, if these compute the same.
#include "trainer/export/export_llama.h"
#include "common/err.h"
#include "trainer/export/export.h"
#include "trainer/export/pieces.h"
#include <stdlib.h>
#include <string.h>

static const PieceName names[] = {
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

static int write_piece(void *to, const Piece *piece, const float *values, size_t count) {
    return export_write(to, piece->name, values, count);
}

static int write_pieces(const char *from, const char *to, const Model *model, Dtype type) {
    SafeFile file;
    SafeWriter writer = {0};
    int count;
    if (safe_open(&file, from) < 0) return -1;
    Piece *pieces = pieces_of(model, names, sizeof names / sizeof *names, &count);
    int result = safe_create(&writer, to, type);
    for (int i = 0; i < count && result == 0; i++)
        safe_name(&writer, pieces[i].name, (uint64_t)pieces[i].rows,
                  piece_is_vector(&pieces[i]) ? 0 : (uint64_t)pieces[i].tensor->cols);
    for (int i = 0; i < count && result == 0; i++) result = piece_copy(&file, &pieces[i], write_piece, &writer);
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
