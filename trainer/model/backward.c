// The backward pass: from the gradient of the last norm's output down to the embedding. The comment after a line is
// the shape of its output; buffers.def has the lifetime of each buffer.
//
// dres is the gradient of the residual stream, dres_act the same as activations, for the matmuls. The backward pass of
// a norm adds its gradient to dres, and sums the bias gradient of the projection that was added before the norm; with
// dropout, the operation that applies the mask sums it. Activations that the forward pass did not keep are first
// computed again, by the same operations in the same order, and are bit-identical.
#include "trainer/model/layer_offload.h"

#define P(id, layer) network_param(network, PARAM_##id, layer)
#define W(id, layer) network_weight(network, PARAM_##id, layer)
#define G(id, layer) network_grad(network, PARAM_##id, layer)

// The shared buffers still hold the last layer's activations, except GELU's output (buffers.def: SHARED).
static Recompute level_of(const PassLayout *pass, int layer, int layers) {
    const Recompute level = pass_recompute(pass, layer);
    return layer == layers - 1 && level ? RECOMPUTE_GELU : level;
}

void network_backward_norm(const Network *network, const PassLayout *pass, int B, int T, bool add) {
    const Buffers x = network_buffers(network, pass, 0);
    const int last = network->model->shape.layers - 1;
    const Norm norm = network_norm(network, pass, NORM_LAST, 0, B * T);
    const NormGradients to = {G(LNF_W, 0), G(LNF_B, 0), network_dropout(network, pass) ? NULL : G(PROJ_B, last)};
    network->ops->layernorm_backward(x.dres, x.dres_act, &to, x.dnorm, x.res3, &norm, true, add); // (N,C)
}

void network_backward_layer(const Network *network, const PassLayout *pass, int l, int B, int T, bool add) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    const int N = B * T, C = shape->channels, L = shape->layers;
    const int F = shape_hidden(shape), fc = shape_fc(shape), J = shape_qkv(shape);
    const bool swiglu = shape->activation == ACTIVATION_SWIGLU;
    const bool has_heads = shape_has_heads(shape);
    const Dropout *dropout = network_dropout(network, pass);
    const Buffers x = network_buffers(network, pass, l);
    layer_offload_await_input(network, pass, l);
    layer_offload_await_gradients(network, l);
    network_block_again(network, pass, l, level_of(pass, l, L), B, T);

    const Act *dmlp = dropout ? x.dmlp : x.dres_act, *dproj = dropout ? x.dproj : x.dres_act;
    if (dropout) ops->dropout(x.dmlp, G(PROJ_B, l), x.dres_act, dropout, l, DROPOUT_MLP_OUT, B, T, C, add); // (N,C)
    ops->matmul_backward_weight(G(PROJ_W, l), dmlp, x.gelu, N, C, F, add);                                  // (C,F)
    if (swiglu) {
        ops->matmul_backward_input(x.dfc, dmlp, W(PROJ_W, l), N); // (N,F)
        ops->swiglu_backward(x.fc, G(FC_B, l), x.dfc, N, F, add); // (N,2F)
    } else
        ops->matmul_gelu_backward(x.dfc, G(FC_B, l), dmlp, x.fc, W(PROJ_W, l), N, shape->activation, add); // (N,F)
    const Act *dfc = swiglu ? x.fc : x.dfc;
    ops->matmul_backward_weight(G(FC_W, l), dfc, x.ln2, N, fc, C, add); // (P,C)
    ops->matmul_backward_input(x.dnorm, dfc, W(FC_W, l), N);            // (N,C)
    const Norm second = network_norm(network, pass, NORM_MLP, l, N);
    const NormGradients of_second = {G(LN2_W, l), G(LN2_B, l), dropout ? NULL : G(ATT_B, l)};
    ops->layernorm_backward(x.dres, x.dres_act, &of_second, x.dnorm, x.res2, &second, false, add); // (N,C)

    if (dropout)
        ops->dropout(x.dproj, G(ATT_B, l), x.dres_act, dropout, l, DROPOUT_ATTENTION_OUT, B, T, C, add); // (N,C)
    ops->matmul_backward_weight(G(ATT_W, l), dproj, x.att, N, C, C, add);                                // (C,C)
    ops->matmul_backward_input(x.dnorm, dproj, W(ATT_W, l), N);                                          // (N,C)
    Act *dheads = x.dqkv;
    const Attention attention = network_attention(network, pass, l, B, T, 0);
    ops->attention_backward(x.dqkv, has_heads ? NULL : G(QKV_B, l), x.dnorm, x.att, x.lse, x.qkv, &attention,
                            add); // (N,3C)
    if (shape->kv_heads < shape->heads) dheads = row_at(x.dqkv, N, 3 * C, ops->act_bytes);
    const Heads heads = network_heads(network, pass, l, B, T, 0);
    if (has_heads)
        ops->heads_backward(dheads, G(Q_GAIN, l), G(K_GAIN, l), G(QKV_B, l), x.dqkv, x.heads, &heads, add); // (N,J)
    ops->matmul_backward_weight(G(QKV_W, l), dheads, x.ln1, N, J, C, add);                                  // (J,C)
    ops->matmul_backward_input(x.dnorm, dheads, W(QKV_W, l), N);                                            // (N,C)
    const Norm first = network_norm(network, pass, NORM_ATTENTION, l, N);
    const NormGradients of_first = {G(LN1_W, l), G(LN1_B, l), l && !dropout ? G(PROJ_B, l - 1) : NULL};
    ops->layernorm_backward(x.dres, x.dres_act, &of_first, x.dnorm, x.res1, &first, false, add); // (N,C)
    network_add_layer_gradients(network, l);
    layer_offload_store_gradients(network, l, add || network->apart);
    layer_offload_fetch_input(network, pass, l);
}

void network_backward_embedding(const Network *network, const PassLayout *pass, int B, int T, bool add) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    const int C = shape->channels;
    const Buffers x = network_buffers(network, pass, 0);
    const Dropout *dropout = network_dropout(network, pass);
    if (dropout) ops->dropout_residual(x.dres, dropout, B, T, C); // (N,C)
    if (shape->untied && !add)                                    // the head has not written it
        ops->zero(G(WTE, 0), (size_t)shape->padded_vocab * (size_t)C * ops->grad_bytes);
    ops->embed_backward(G(WTE, 0), G(WPE, 0), x.dres, x.tokens, B, T, C, shape->vocab, add); // (V,C), (T,C)
    network_add_kept_gradients(network);
}

void network_backward(const Network *network, const PassLayout *pass, int B, int T, bool add) {
    network_backward_norm(network, pass, B, T, add);
    for (int l = network->model->shape.layers - 1; l >= 0; l--) network_backward_layer(network, pass, l, B, T, add);
    network_backward_embedding(network, pass, B, T, add);
}
