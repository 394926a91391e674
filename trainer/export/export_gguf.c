// Models under the names of GGUF, as the architectures of llama.cpp that compute the same.
#include "trainer/export/export_gguf.h"
#include "common/err.h"
#include "tokenizer/files/vocab_file.h"
#include "trainer/export/pieces.h"
#include <stdio.h>
#include <stdlib.h>

// ---- architectures

typedef enum { BIASES_NONE, BIASES_ANY, BIASES_ALL } Biases; // ALL: a model without them has zeros

typedef struct {
    const char *name, *keys;
    NormName norm;
    bool rope;
    Activation activation; // GELU is one form there, the tanh one
    bool qk_norm;
    Biases biases;
    bool interleaved; // a rotation turns neighbours of a head, not its halves
} Architecture;

static const Architecture architectures[] = {
    {"gpt2", "norm=layernorm position=learned mlp=gelu", NORM_LAYER, false, ACTIVATION_GELU_TANH, false, BIASES_ALL,
     false},
    {"starcoder2", "norm=layernorm position=rope mlp=gelu", NORM_LAYER, true, ACTIVATION_GELU_TANH, false, BIASES_ALL,
     false},
    {"llama", "norm=rmsnorm position=rope mlp=swiglu", NORM_RMS, true, ACTIVATION_SWIGLU, false, BIASES_ANY, true},
    {"qwen3", "the same with qk_norm and without bias", NORM_RMS, true, ACTIVATION_SWIGLU, true, BIASES_NONE, false},
    {"arcee", "norm=rmsnorm position=rope mlp=relu2 without bias", NORM_RMS, true, ACTIVATION_RELU2, false, BIASES_NONE,
     true},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static const Architecture *architecture_of(const ModelShape *shape) {
    const Activation activation = shape->activation == ACTIVATION_GELU ? ACTIVATION_GELU_TANH : shape->activation;
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        const Architecture *row = &architectures[i];
        if (row->norm == shape->norm && row->rope == (shape->rope_theta > 0) && row->activation == activation &&
            row->qk_norm == shape->qk_norm && (!shape->bias || row->biases != BIASES_NONE))
            return row;
    }
    return NULL;
}

// The patterns that llama.cpp has, under its names of them.
static const struct {
    const char *pattern, *name;
    bool whole; // a piece that is a token is that token
} patterns[] = {{"gpt2", "gpt-2", false}, {"llama3", "llama-bpe", true}, {"qwen2", "qwen2", false}};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static size_t pattern_of(const Vocab *vocab) {
    const char *pattern = vocab_pattern(vocab);
    size_t i = 0;
    while (i < PATTERNS && (!pattern || strcmp(patterns[i].pattern, pattern) != 0)) i++;
    return i;
}

static int check_vocabulary(const Vocab *vocab) {
    const size_t i = pattern_of(vocab);
    if (vocab_is_characters(vocab))
        return fail(EX_USAGE, "llama.cpp has no vocabulary of characters: export a folder for transformers");
    if (i == PATTERNS)
        return fail(EX_USAGE,
                    "llama.cpp cuts text by other patterns than %s: make the vocabulary with --pattern gpt2, llama3 or "
                    "qwen2, or export a folder for transformers",
                    vocab_pattern(vocab));
    if (!vocab_encodes_pieces(vocab, patterns[i].whole))
        return fail(EX_USAGE,
                    "the vocabulary has tokens that no merges give, which llama.cpp %s with the pattern %s: export a "
                    "folder for transformers",
                    patterns[i].whole ? "takes for whole pieces" : "does not find", patterns[i].pattern);
    return 0;
}

static int check_shape(const ModelShape *shape) {
    Buffer known = {0};
    ModelOption options[MODEL_OPTIONS];
    model_options(shape, options);
    for (int i = 0; i < MODEL_OPTIONS; i++) {
        const bool computed = i == MODEL_OPTION_norm || i == MODEL_OPTION_qk_norm || i == MODEL_OPTION_rope_theta ||
                              i == MODEL_OPTION_kv_heads;
        if (!computed && options[i].value != options[i].gpt2)
            return fail(EX_USAGE, "llama.cpp does not compute this model: it has no %s", options[i].name);
    }
    if (architecture_of(shape)) return 0;
    for (size_t i = 0; i < ARCHITECTURES; i++) buffer_print(&known, "%s%s", i ? "; " : "", architectures[i].keys);
    fail(EX_USAGE, "llama.cpp does not compute this model: it computes %.*s", (int)known.size, (char *)known.data);
    buffer_close(&known);
    return -1;
}

static int check(const ModelShape *shape, const Vocab *vocab, GgufType type) {
    if (check_shape(shape) < 0) return -1;
    if (type == GGUF_Q8_0 && shape->channels % GGUF_Q8_0_VALUES)
        return fail(EX_USAGE, "q8_0 takes %d numbers of a row together, and n_embd is %d: name another --dtype",
                    GGUF_Q8_0_VALUES, shape->channels);
    return check_vocabulary(vocab);
}

// ---- pairs

static const char *key_of(const Architecture *architecture, const char *name) {
    static char key[GGUF_NAME_BYTES];
    snprintf(key, sizeof key, "%s.%s", architecture->name, name);
    return key;
}

static void add_shape(GgufFile *gguf, const Architecture *architecture, const ModelShape *shape) {
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"context_length", shape->block},
        {"embedding_length", shape->channels},
        {"feed_forward_length", shape_hidden(shape)},
        {"block_count", shape->layers},
        {"attention.head_count", shape->heads},
        {"attention.head_count_kv", shape->kv_heads},
        {"vocab_size", shape->vocab},
        {"rope.dimension_count", architecture->rope ? shape->channels / shape->heads : 0},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value) gguf_add_number(gguf, key_of(architecture, numbers[i].name), (uint32_t)numbers[i].value);
    const bool rms = architecture->norm == NORM_RMS;
    gguf_add_real(gguf, key_of(architecture, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"),
                  1e-5f);
    if (architecture->rope) gguf_add_real(gguf, key_of(architecture, "rope.freq_base"), (float)shape->rope_theta);
}

static void add_tokens(GgufFile *gguf, const Vocab *vocab) {
    enum { NORMAL = 1, CONTROL = 3 };
    Buffer token = {0};
    gguf_add_texts(gguf, "tokenizer.ggml.tokens", vocab_size(vocab));
    for (unsigned id = 0; id < vocab_size(vocab); id++) {
        token.size = 0;
        vocab_spell(vocab, id, &token);
        gguf_item_text(gguf, (Bytes){token.data, token.size});
    }
    buffer_close(&token);
    gguf_add_numbers(gguf, "tokenizer.ggml.token_type", vocab_size(vocab));
    for (unsigned id = 0; id < vocab_size(vocab); id++)
        gguf_item_number(gguf, vocab_is_special(vocab, id) ? CONTROL : NORMAL);
}

static void add_merges(GgufFile *gguf, const Vocab *vocab) {
    Buffer text = {0};
    uint64_t count = 0;
    Bytes line;
    vocab_print_merges(vocab, &text);
    Bytes rest = {text.data, text.size};
    bytes_next_line(&rest, &line); // the version
    for (Bytes lines = rest; bytes_next_line(&lines, &line);) count++;
    gguf_add_texts(gguf, "tokenizer.ggml.merges", count);
    while (bytes_next_line(&rest, &line)) gguf_item_text(gguf, line);
    buffer_close(&text);
}

static void add_template(GgufFile *gguf, const Vocab *vocab) {
    Buffer text = {0};
    vocab_print_chat_template(vocab, &text);
    gguf_add_text(gguf, "tokenizer.chat_template", (Bytes){text.data, text.size});
    buffer_close(&text);
}

static void add_vocabulary(GgufFile *gguf, const Vocab *vocab) {
    const TurnIds turns = vocab_turns(vocab);
    const unsigned end = vocab_end_of_text(vocab);
    gguf_add_text(gguf, "tokenizer.ggml.model", bytes_of_text("gpt2"));
    gguf_add_text(gguf, "tokenizer.ggml.pre", bytes_of_text(patterns[pattern_of(vocab)].name));
    add_tokens(gguf, vocab);
    add_merges(gguf, vocab);
    gguf_add_number(gguf, "tokenizer.ggml.bos_token_id", end);
    gguf_add_number(gguf, "tokenizer.ggml.eos_token_id", turns.known ? turns.ids[TURN_END] : end);
    gguf_add_flag(gguf, "tokenizer.ggml.add_bos_token", false);
    if (turns.known) add_template(gguf, vocab);
}

// ---- tensors

static const PieceName names[] = {
    {PARAM_WTE, 0, "token_embd.weight"},
    {PARAM_WPE, 0, "position_embd.weight"},
    {PARAM_LN1_W, 0, "blk.%d.attn_norm.weight"},
    {PARAM_LN1_B, 0, "blk.%d.attn_norm.bias"},
    {PARAM_QKV_W, PIECE_WHOLE, "blk.%d.attn_qkv.weight"},
    {PARAM_QKV_W, 0, "blk.%d.attn_q.weight"},
    {PARAM_QKV_W, 1, "blk.%d.attn_k.weight"},
    {PARAM_QKV_W, 2, "blk.%d.attn_v.weight"},
    {PARAM_QKV_B, PIECE_WHOLE, "blk.%d.attn_qkv.bias"},
    {PARAM_QKV_B, 0, "blk.%d.attn_q.bias"},
    {PARAM_QKV_B, 1, "blk.%d.attn_k.bias"},
    {PARAM_QKV_B, 2, "blk.%d.attn_v.bias"},
    {PARAM_Q_GAIN, 0, "blk.%d.attn_q_norm.weight"},
    {PARAM_K_GAIN, 0, "blk.%d.attn_k_norm.weight"},
    {PARAM_ATT_W, 0, "blk.%d.attn_output.weight"},
    {PARAM_ATT_B, 0, "blk.%d.attn_output.bias"},
    {PARAM_LN2_W, 0, "blk.%d.ffn_norm.weight"},
    {PARAM_LN2_B, 0, "blk.%d.ffn_norm.bias"},
    {PARAM_FC_W, 0, "blk.%d.ffn_gate.weight"},
    {PARAM_FC_W, 1, "blk.%d.ffn_up.weight"},
    {PARAM_FC_W, PIECE_WHOLE, "blk.%d.ffn_up.weight"},
    {PARAM_FC_B, 0, "blk.%d.ffn_gate.bias"},
    {PARAM_FC_B, 1, "blk.%d.ffn_up.bias"},
    {PARAM_FC_B, PIECE_WHOLE, "blk.%d.ffn_up.bias"},
    {PARAM_PROJ_W, 0, "blk.%d.ffn_down.weight"},
    {PARAM_PROJ_B, 0, "blk.%d.ffn_down.bias"},
    {PARAM_LNF_W, 0, "output_norm.weight"},
    {PARAM_LNF_B, 0, "output_norm.bias"},
    {PARAM_HEAD, 0, "output.weight"},
};
enum { NAMES = sizeof names / sizeof *names };

// One or several matrices of the table hold the products that are one here.
static bool is_of(const PieceName *name, const Architecture *architecture) {
    const bool whole = name->part == PIECE_WHOLE;
    if (name->id == PARAM_QKV_W || name->id == PARAM_QKV_B) return whole == !architecture->rope;
    if (name->id == PARAM_FC_W || name->id == PARAM_FC_B)
        return whole == (architecture->activation != ACTIVATION_SWIGLU);
    return true;
}

static Piece *pieces_for(const Model *model, const Architecture *architecture, int *count) {
    PieceName own[NAMES];
    int own_count = 0;
    for (int i = 0; i < NAMES; i++)
        if (is_of(&names[i], architecture)) own[own_count++] = names[i];
    Piece *pieces = pieces_of(model, own, own_count, count);
    for (int i = 0; architecture->interleaved && i < *count; i++)
        if (strstr(pieces[i].name, ".attn_q.") || strstr(pieces[i].name, ".attn_k."))
            pieces[i].head = model->shape.channels / model->shape.heads;
    return pieces;
}

static int write_piece(void *to, const Piece *piece, const float *values, size_t count) {
    (void)piece;
    return gguf_write(to, values, count);
}

static int write_pieces(GgufFile *gguf, const char *from, const char *to, const Piece *pieces, int count) {
    SafeFile file;
    if (safe_open(&file, from) < 0) return -1;
    int result = gguf_open(gguf, to);
    for (int i = 0; i < count && result == 0; i++) result = piece_copy(&file, &pieces[i], write_piece, gguf);
    if (result == 0) result = gguf_commit(gguf);
    safe_close(&file);
    return result;
}

int gguf_export(const char *from, const char *to, const ModelShape *shape, const Vocab *vocab, GgufType type) {
    if (check(shape, vocab, type) < 0) return -1;
    const Architecture *architecture = architecture_of(shape);
    char source[PATH_MAX_BYTES];
    GgufFile gguf = {0};
    Model model;
    ModelShape written = *shape;
    int count;
    written.bias |= architecture->biases == BIASES_ALL; // which a checkpoint has as zeros
    model_open(&model, &written);
    Piece *pieces = pieces_for(&model, architecture, &count);
    gguf_add_text(&gguf, "general.architecture", bytes_of_text(architecture->name));
    gguf_add_type(&gguf, type);
    add_shape(&gguf, architecture, shape);
    add_vocabulary(&gguf, vocab);
    for (int i = 0; i < count; i++) {
        const bool vector = piece_is_vector(&pieces[i]);
        gguf_name(&gguf, pieces[i].name, vector || pieces[i].tensor->id == PARAM_WPE ? DTYPE_FP32 : type,
                  (uint64_t)pieces[i].rows, vector ? 0 : (uint64_t)pieces[i].tensor->cols);
    }
    path_join(source, from, "model.safetensors");
    const int result = write_pieces(&gguf, source, to, pieces, count);
    gguf_abandon(&gguf);
    free(pieces);
    model_close(&model);
    return result;
}
