// The backward pass: from the gradient of the last norm's output down to the embedding.
//
// dres is the gradient of the residual stream, dres_act the same as activations for the matmuls. Each norm's backward
// adds its own gradient to it, and sums the bias gradient of the branch that was added there. What the forward pass did
// not keep is made again first, by the same operations in the same order: the same bits.
#include "trainer/model/network.h"

void network_backward(const Network *network, const PassLayout *pass, int B, int T, bool add) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    int N = B * T, C = shape->channels, H = shape->heads, L = shape->layers;
    Act *narrow = network_at(network, pass->narrow), *wide = network_at(network, pass->wide);
    Act *dres_act = network_at(network, pass->dres_act);
    Res *dres = network_at(network, pass->dres);

    ops->layernorm_backward(dres, dres_act, network_grad(network, PARAM_LNF_W, 0),
                            network_grad(network, PARAM_LNF_B, 0), network_grad(network, PARAM_PROJ_B, L - 1), narrow,
                            network_at(network, pass->res3), network_at(network, pass->mean3),
                            network_at(network, pass->rstd3), network_param(network, PARAM_LNF_W, 0), N, C, true, add);
    for (int l = L - 1; l >= 0; l--) {
        Block block = network_block(network, pass, l);
        if (pass->recompute == RECOMPUTE_BLOCK && l < L - 1) // the last one's are still there, but for gelu
            network_block_forward(network, &block, l, block.res1, NULL, narrow, B, T);
        else if (pass->recompute != RECOMPUTE_NONE)
            ops->gelu_forward(block.gelu, block.fc, (size_t)N * 4 * (size_t)C, shape->exact_gelu);

        ops->matmul_backward_weight(network_grad(network, PARAM_PROJ_W, l), dres_act, block.gelu, N, C, 4 * C, add);
        ops->matmul_gelu_backward(wide, network_grad(network, PARAM_FC_B, l), dres_act, block.fc,
                                  network_weight(network, PARAM_PROJ_W, l), N, shape->exact_gelu, add);
        ops->matmul_backward_weight(network_grad(network, PARAM_FC_W, l), wide, block.ln2, N, 4 * C, C, add);
        ops->matmul_backward_input(narrow, wide, network_weight(network, PARAM_FC_W, l), N);
        ops->layernorm_backward(dres, dres_act, network_grad(network, PARAM_LN2_W, l),
                                network_grad(network, PARAM_LN2_B, l), network_grad(network, PARAM_ATT_B, l), narrow,
                                block.res2, block.mean2, block.rstd2, network_param(network, PARAM_LN2_W, l), N, C,
                                false, add);

        ops->matmul_backward_weight(network_grad(network, PARAM_ATT_W, l), dres_act, block.att, N, C, C, add);
        ops->matmul_backward_input(narrow, dres_act, network_weight(network, PARAM_ATT_W, l), N);
        ops->attention_backward(wide, network_grad(network, PARAM_QKV_B, l), narrow, block.att, block.lse, block.qkv, B,
                                T, H, C / H, add);
        ops->matmul_backward_weight(network_grad(network, PARAM_QKV_W, l), wide, block.ln1, N, 3 * C, C, add);
        ops->matmul_backward_input(narrow, wide, network_weight(network, PARAM_QKV_W, l), N);
        ops->layernorm_backward(dres, dres_act, network_grad(network, PARAM_LN1_W, l),
                                network_grad(network, PARAM_LN1_B, l),
                                l ? network_grad(network, PARAM_PROJ_B, l - 1) : NULL, narrow, block.res1, block.mean1,
                                block.rstd1, network_param(network, PARAM_LN1_W, l), N, C, false, add);
    }
    ops->embed_backward(network_grad(network, PARAM_WTE, 0), network_grad(network, PARAM_WPE, 0), dres,
                        network_at(network, pass->tokens), B, T, C, add);
}
