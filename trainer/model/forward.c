// The forward pass: embedding, L blocks, the last norm, and the head in chunks of rows.
//
// Each norm adds the branch before it to the residual stream: sum = in + branch, out = norm(sum).
#include "trainer/model/network.h"

Block network_block(const Network *network, const PassLayout *pass, int layer) {
    size_t at = (size_t)layer * pass->block_stride;
    return (Block){
        .res1 = network_at(network, pass->res1 + (size_t)layer * pass->res1_stride),
        .ln1 = network_at(network, pass->ln1 + at),
        .mean1 = network_at(network, pass->mean1 + at),
        .rstd1 = network_at(network, pass->rstd1 + at),
        .qkv = network_at(network, pass->qkv + at),
        .lse = network_at(network, pass->lse + at),
        .att = network_at(network, pass->att + at),
        .res2 = network_at(network, pass->res2 + at),
        .ln2 = network_at(network, pass->ln2 + at),
        .mean2 = network_at(network, pass->mean2 + at),
        .rstd2 = network_at(network, pass->rstd2 + at),
        .fc = network_at(network, pass->fc + at),
        .gelu = network_at(network, pass->gelu + (size_t)layer * pass->gelu_stride),
    };
}

void network_block_forward(const Network *network, const Block *block, int layer, const Res *in, const Act *branch,
                           Act *narrow, int B, int T) {
    const Backend *ops = network->ops;
    int N = B * T, C = network->model->shape.channels, H = network->model->shape.heads;
    ops->layernorm_forward(block->res1, block->ln1, block->mean1, block->rstd1, in, branch,
                           network_param(network, PARAM_LN1_W, layer), network_param(network, PARAM_LN1_B, layer), N,
                           C);
    ops->matmul_forward(block->qkv, block->ln1, network_weight(network, PARAM_QKV_W, layer),
                        network_param(network, PARAM_QKV_B, layer), N);
    ops->attention_forward(block->att, block->lse, block->qkv, B, T, H, C / H);
    ops->matmul_forward(narrow, block->att, network_weight(network, PARAM_ATT_W, layer),
                        network_param(network, PARAM_ATT_B, layer), N);
    ops->layernorm_forward(block->res2, block->ln2, block->mean2, block->rstd2, block->res1, narrow,
                           network_param(network, PARAM_LN2_W, layer), network_param(network, PARAM_LN2_B, layer), N,
                           C);
    ops->matmul_gelu_forward(block->gelu, block->fc, block->ln2, network_weight(network, PARAM_FC_W, layer),
                             network_param(network, PARAM_FC_B, layer), N, network->model->shape.exact_gelu);
}

void network_forward(const Network *network, const PassLayout *pass, int B, int T) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    int N = B * T, C = shape->channels;
    Act *branch = network_at(network, pass->narrow);
    Res *residual = network_at(network, pass->res1);

    ops->embed_forward(residual, network_at(network, pass->tokens), network_param(network, PARAM_WTE, 0),
                       network_param(network, PARAM_WPE, 0), B, T, C);
    for (int l = 0; l < shape->layers; l++) {
        Block block = network_block(network, pass, l);
        network_block_forward(network, &block, l, residual, l ? branch : NULL, branch, B, T);
        ops->matmul_forward(branch, block.gelu, network_weight(network, PARAM_PROJ_W, l),
                            network_param(network, PARAM_PROJ_B, l), N);
        residual = block.res2;
    }
    ops->layernorm_forward(network_at(network, pass->res3), network_at(network, pass->ln3),
                           network_at(network, pass->mean3), network_at(network, pass->rstd3), residual, branch,
                           network_param(network, PARAM_LNF_W, 0), network_param(network, PARAM_LNF_B, 0), N, C);
}

// Never (N,V): each chunk's logits become their own gradient, are used, and make room for the next.
void network_losses(const Network *network, const PassLayout *pass, int B, int T, float scale, bool backward,
                    bool add) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    const Weight *head = network_weight(network, PARAM_WTE, 0);
    int N = B * T, C = shape->channels, V = shape->padded_vocab, chunk = network->plan->chunk_rows;
    const StepScalars *scalars = network_at(network, network->plan->scalars);
    Act *logits = network_at(network, pass->logits);
    for (int first = 0; first < N; first += chunk) {
        int M = N - first < chunk ? N - first : chunk;
        size_t row = (size_t)first * (size_t)C * ops->act_bytes;
        Act *ln3 = network_at(network, pass->ln3 + row);
        ops->matmul_forward(logits, ln3, head, NULL, M);
        ops->cross_entropy(logits, network_at(network, pass->losses), network_at(network, pass->tokens), first, M, T,
                           shape->vocab, V, scale, &scalars->loss_scale, backward);
        if (!backward) continue;
        ops->matmul_backward_input(network_at(network, pass->narrow + row), logits, head, M);
        ops->matmul_backward_weight(network_grad(network, PARAM_WTE, 0), logits, ln3, M, V, C, add || first);
    }
}

void network_logits(const Network *network, const PassLayout *pass, int row, float *logits) {
    const Backend *ops = network->ops;
    const ModelShape *shape = &network->model->shape;
    size_t at = (size_t)row * (size_t)shape->channels * ops->act_bytes;
    ops->matmul_forward(network_at(network, pass->logits), network_at(network, pass->ln3 + at),
                        network_weight(network, PARAM_WTE, 0), NULL, 1);
    network_read(network, pass->logits, ops->act_type, 0, (size_t)shape->vocab, logits);
}
