// The forward pass: embedding, L blocks, the last norm, and the head in chunks of rows. The comment after a line is
// the shape of its output; buffers.def has the lifetime of each buffer.
//
// A norm first adds the branch before it to the residual stream: sum = in + branch, out = norm(sum).
#include "common/math/portable_math.h"
#include "trainer/model/layer_offload.h"
#include "trainer/model/network.h"

#define P(id, layer) network_param(network, PARAM_##id, layer)
#define W(id, layer) network_weight(network, PARAM_##id, layer)

Buffers network_buffers(const Network *network, const PassLayout *pass, int layer) {
    Buffers x = {
#define BUFFER(group, type, name, elements)                                                                            \
    .name = network_at(network, pass->name + pass_instance(pass, GROUP_##group, layer)),
#include "trainer/plan/buffers.def"
#undef BUFFER
    };
    if (pass->cache_stride) x.qkv = network_at(network, pass->cache + (size_t)layer * pass->cache_stride);
    return x;
}

static const int32_t *starts_of(const Network *network, const PassLayout *pass) {
    return network->plan->document_mask || network->branches ? network_at(network, pass->starts) : NULL;
}
static const int32_t *positions_of(const Network *network, const PassLayout *pass) {
    return network->branches ? network_at(network, pass->losses) : NULL;
}

Norm network_norm(const Network *network, const PassLayout *pass, NormId id, int layer, int N) {
    const Buffers x = network_buffers(network, pass, layer);
    const struct {
        const Par *weight, *bias;
        float *mean, *rstd;
    } of[] = {{P(LN1_W, layer), P(LN1_B, layer), x.mean1, x.rstd1},
              {P(LN2_W, layer), P(LN2_B, layer), x.mean2, x.rstd2},
              {P(LNF_W, 0), P(LNF_B, 0), x.mean3, x.rstd3}};
    const ModelShape *shape = &network->model->shape;
    return (Norm){.N = N,
                  .C = shape->channels,
                  .weight = of[id].weight,
                  .bias = of[id].bias,
                  .mean = shape->norm == NORM_RMS ? NULL : of[id].mean,
                  .rstd = of[id].rstd};
}

Heads network_heads(const Network *network, const PassLayout *pass, int layer, int B, int T, int from) {
    const ModelShape *shape = &network->model->shape;
    const int D = shape->channels / shape->heads;
    const float *rotation = network_at(network, network->plan->rotation);
    return (Heads){.B = B,
                   .T = T - from,
                   .H = shape->heads,
                   .K = shape->kv_heads,
                   .D = D,
                   .q_gain = P(Q_GAIN, layer),
                   .k_gain = P(K_GAIN, layer),
                   .rotation = shape->rope_theta > 0 ? rotation + (size_t)from * (size_t)D : NULL,
                   .positions = positions_of(network, pass)};
}

const Dropout *network_dropout(const Network *network, const PassLayout *pass) {
    const StepScalars *scalars = network_at(network, network->plan->scalars);
    return pass->backward && network->plan->dropout ? &scalars->dropout : NULL;
}

Attention network_attention(const Network *network, const PassLayout *pass, int layer, int B, int T, int from) {
    const int heads = network->model->shape.heads;
    return (Attention){.B = B,
                       .T = T,
                       .H = heads,
                       .D = network->model->shape.channels / heads,
                       .starts = starts_of(network, pass),
                       .positions = positions_of(network, pass),
                       .dropout = network_dropout(network, pass),
                       .layer = layer,
                       .from = from};
}

// Runs the part of a block that `level` recomputes; RECOMPUTE_BLOCK: all of it. Rows before `from` of a sequence are
// left out: B is 1 unless from is 0.
static void block_forward(const Network *network, const PassLayout *pass, int l, Recompute level, const Res *in,
                          const Act *branch, int B, int T, int from) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    const Buffers x = network_buffers(network, pass, l);
    const Dropout *dropout = network_dropout(network, pass);
    const int N = B * T - from, C = shape->channels;
    const Norm first = network_norm(network, pass, NORM_ATTENTION, l, N);
    const Norm second = network_norm(network, pass, NORM_MLP, l, N);
    const Heads heads = network_heads(network, pass, l, B, T, from);
    Act *qkv = row_at(x.qkv, from, 3 * C, ops->act_bytes), *att = row_at(x.att, from, C, ops->act_bytes);
    Act *before = shape_keeps_heads(shape) ? x.heads : qkv;

    if (level >= RECOMPUTE_NORM) ops->layernorm_forward(x.res1, x.ln1, in, branch, &first);        // (N,C)
    if (level >= RECOMPUTE_QKV) ops->matmul_forward(before, x.ln1, W(QKV_W, l), P(QKV_B, l), N);   // (N,J)
    if (level >= RECOMPUTE_QKV && shape_has_heads(shape)) ops->heads_forward(qkv, before, &heads); // (N,3C)
    if (level >= RECOMPUTE_BLOCK) {
        const Attention attention = network_attention(network, pass, l, B, T, from);
        ops->attention_forward(x.att, x.lse, x.qkv, &attention);         // (N,C), lse (B,H,T)
        ops->matmul_forward(x.branch, att, W(ATT_W, l), P(ATT_B, l), N); // (N,C)
        if (dropout) ops->dropout(x.branch, NULL, x.branch, dropout, l, DROPOUT_ATTENTION_OUT, B, T, C, false); // (N,C)
    }
    const bool kept = level < RECOMPUTE_BLOCK; // res2, the sum
    if (level >= RECOMPUTE_NORM)
        ops->layernorm_forward(x.res2, x.ln2, kept ? x.res2 : x.res1, kept ? NULL : x.branch, &second); // (N,C)
    const bool swiglu = shape->activation == ACTIVATION_SWIGLU;
    const int F = shape_hidden(shape);
    if (level >= RECOMPUTE_MLP && !swiglu)
        ops->matmul_gelu_forward(x.gelu, x.fc, x.ln2, W(FC_W, l), P(FC_B, l), N, shape->activation); // (N,F), (N,F)
    else if (level >= RECOMPUTE_MLP)
        ops->matmul_forward(x.fc, x.ln2, W(FC_W, l), P(FC_B, l), N); // (N,2F)
    else if (level >= RECOMPUTE_GELU && !swiglu)
        ops->gelu_forward(x.gelu, x.fc, (size_t)N * (size_t)F, shape->activation);  // (N,F)
    if (level >= RECOMPUTE_GELU && swiglu) ops->swiglu_forward(x.gelu, x.fc, N, F); // (N,F)
}

void network_block_again(const Network *network, const PassLayout *pass, int l, Recompute level, int B, int T) {
    block_forward(network, pass, l, level, network_buffers(network, pass, l).res1, NULL, B, T, 0);
}

static void forward_embedding(const Network *network, const PassLayout *pass, int B, int T, int from) {
    const Backend *ops = network->ops;
    const int C = network->model->shape.channels;
    const Buffers x = network_buffers(network, pass, 0);
    const Dropout *dropout = network_dropout(network, pass);
    const Par *wpe = P(WPE, 0);
    if (wpe) wpe = row_at(wpe, from, C, ops->par_bytes);
    const ModelShape *shape = &network->model->shape;
    const void *tokens = row_at(x.tokens, from, 1, shape_id_bytes(shape));
    const int32_t *positions = positions_of(network, pass);
    ops->embed_forward(x.res1, tokens, positions, P(WTE, 0), wpe, B, T - from, C, shape->vocab); // (N,C)
    if (dropout) ops->dropout_residual(x.res1, dropout, B, T, C);                                // (N,C)
}

static void forward_layer(const Network *network, const PassLayout *pass, int l, int B, int T, int from) {
    const Backend *ops = network->ops;
    const int C = network->model->shape.channels;
    const Buffers x = network_buffers(network, pass, l);
    const Res *in = l ? network_buffers(network, pass, l - 1).res2 : x.res1;
    const Dropout *dropout = network_dropout(network, pass);
    block_forward(network, pass, l, RECOMPUTE_BLOCK, in, l ? x.branch : NULL, B, T, from);
    layer_offload_store_input(network, pass, l);
    ops->matmul_forward(x.branch, x.gelu, W(PROJ_W, l), P(PROJ_B, l), B * T - from);                  // (N,C)
    if (dropout) ops->dropout(x.branch, NULL, x.branch, dropout, l, DROPOUT_MLP_OUT, B, T, C, false); // (N,C)
}

static void forward_norm(const Network *network, const PassLayout *pass, int N) {
    const Buffers x = network_buffers(network, pass, network->model->shape.layers - 1);
    const Norm norm = network_norm(network, pass, NORM_LAST, 0, N);
    network->ops->layernorm_forward(x.res3, x.ln3, x.res2, x.branch, &norm); // (N,C)
}

static void forward(const Network *network, const PassLayout *pass, int B, int T, int from) {
    collective_settle(network->collective);
    forward_embedding(network, pass, B, T, from);
    for (int l = 0; l < network->model->shape.layers; l++) forward_layer(network, pass, l, B, T, from);
    forward_norm(network, pass, B * T - from);
}

void network_forward(const Network *network, const PassLayout *pass, int B, int T) { forward(network, pass, B, T, 0); }

void network_forward_branches(Network *network, const PassLayout *pass, const int32_t *starts, const int32_t *positions,
                              int B, int T) {
    const size_t bytes = (size_t)B * (size_t)T * sizeof *starts;
    network->ops->upload(network_at(network, pass->starts), starts, bytes);
    network->ops->upload(network_at(network, pass->losses), positions, bytes); // which are computed later
    network->branches = true;
    network_forward(network, pass, B, T);
    network->branches = false;
}

void network_forward_last(const Network *network, const PassLayout *pass, int T, int from) {
    forward(network, pass, 1, T, from);
}

void network_forward_embedding(const Network *network, const PassLayout *pass, int B, int T) {
    forward_embedding(network, pass, B, T, 0);
}
void network_forward_layer(const Network *network, const PassLayout *pass, int layer, int B, int T) {
    forward_layer(network, pass, layer, B, T, 0);
}
void network_forward_norm(const Network *network, const PassLayout *pass, int B, int T) {
    forward_norm(network, pass, B * T);
}

// The logits are never a whole (N,V): a chunk of logits becomes its own gradient, is used, and makes room for the next.
void network_losses(const Network *network, const PassLayout *pass, int B, int T, float scale, bool backward,
                    bool add) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    const int N = B * T, C = shape->channels, V = shape->padded_vocab, chunk = network->plan->chunk_rows;
    const StepScalars *scalars = network_at(network, network->plan->scalars);
    const Buffers x = network_buffers(network, pass, 0);
    Grad *dhead = network_grad(network, shape->untied ? PARAM_HEAD : PARAM_WTE, 0);
    for (int first = 0; first < N; first += chunk) {
        const int M = N - first < chunk ? N - first : chunk;
        const CrossEntropy loss = {.first = first,
                                   .M = M,
                                   .T = T,
                                   .vocab = shape->vocab,
                                   .V = V,
                                   .counted = network->plan->answers ? x.counted : NULL,
                                   .softcap = (float)shape->softcap,
                                   .z_loss = pass->backward ? network->plan->z_loss : 0,
                                   .gradient = backward,
                                   .scale = scale,
                                   .loss_scale = &scalars->loss_scale};
        const Act *ln3 = row_at(x.ln3, first, C, ops->act_bytes);
        Act *dln3 = row_at(x.dnorm, first, C, ops->act_bytes);
        ops->matmul_forward(x.logits, ln3, W(HEAD, 0), NULL, M); // (M,V)
        ops->cross_entropy(x.logits, x.losses, x.tokens, &loss); // losses (M), logits become their gradient (M,V)
        if (!backward) continue;
        ops->matmul_backward_input(dln3, x.logits, W(HEAD, 0), M);                // (M,C)
        ops->matmul_backward_weight(dhead, x.logits, ln3, M, V, C, add || first); // (V,C)
    }
}

void network_score(const Network *network, const PassLayout *pass, const int *rows, const void *ids, int count,
                   void *activations, float *losses) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    const int C = shape->channels;
    const Buffers x = network_buffers(network, pass, 0);
    const size_t row_bytes = (size_t)C * ops->act_bytes;
    for (int i = 0, next; i < count; i = next) { // rows in a sequence at once
        for (next = i + 1; next < count && rows[next] == rows[next - 1] + 1;) next++;
        ops->download((char *)activations + (size_t)i * row_bytes, row_at(x.ln3, rows[i], C, ops->act_bytes),
                      (size_t)(next - i) * row_bytes);
    }
    ops->upload(x.branch, activations, (size_t)count * row_bytes);
    ops->upload(x.tokens, ids, ((size_t)count + 1) * shape_id_bytes(shape));
    const CrossEntropy loss = {
        .M = count, .T = count, .vocab = shape->vocab, .V = shape->padded_vocab, .softcap = (float)shape->softcap};
    ops->matmul_forward(x.logits, x.branch, W(HEAD, 0), NULL, count); // (M,V)
    ops->cross_entropy(x.logits, x.losses, x.tokens, &loss);          // losses (M)
    ops->download(losses, x.losses, (size_t)count * sizeof *losses);
}

void network_logits(const Network *network, const PassLayout *pass, int row, float *logits) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    const Buffers x = network_buffers(network, pass, 0);
    const Act *ln3 = row_at(x.ln3, row, shape->channels, ops->act_bytes);
    ops->matmul_forward(x.logits, ln3, W(HEAD, 0), NULL, 1); // (1,V)
    network_read(network, pass->logits, ops->act_type, 0, (size_t)shape->vocab, logits);
    const float cap = (float)shape->softcap;
    for (int v = 0; cap > 0 && v < shape->vocab; v++) logits[v] = cap * (float)portable_tanh((double)(logits[v] / cap));
}
