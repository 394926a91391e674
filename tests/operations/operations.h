// Every operation of kernels/ops.def described once: its inputs, the call, what must come out. Each function compares
// the tested backend with the reference (pair.h). Letters as in ops.def.
#pragma once

#include "kernels/backend.h"
#include <stdbool.h>
#include <stddef.h>

// first, add: as in ops.def
void operation_embed(int B, int T, int C, int V, int vocab, bool add);
// rms: the RMS norm, which has no mean
void operation_layernorm(int N, int C, bool with_branch, bool with_bias, bool rms);
// shared: the gradient as activations lies where the gradient does, if their types are equal
void operation_layernorm_backward(int N, int C, bool first, bool add, bool shared, bool rms);
void operation_matmul(int M, int rows, int cols);
void operation_matmul_row(int rows, int cols); // fp32 on AVX-512: a row alone has the bits of a row among others
// Plain, recorded and replayed; the plain run may choose by time how the others run.
void operation_matmul_gelu(int M, int rows, int cols, Activation form, bool biased, bool add);
void operation_gelu(int N, int C);
void operation_swiglu(int N, int F, bool add);
// K < H: heads of queries share one of keys and values. in_place: where K = H
void operation_heads(int B, int T, int H, int K, int D, bool gains, bool rotated, bool in_place);
void operation_attention(int B, int T, int H, int D, bool with_dropout, bool with_starts);
void operation_attention_of_branches(int B, int T, int H, int D);
void operation_attention_from(int T, int H, int D, int from); // the rows from there on have the bits of the whole
void operation_dropout(int B, int T, int C);
void operation_cross_entropy(int N, int T, int vocab, int V, int first, int M, double softcap, double z_loss);
void operation_add_gradients(size_t count);
void operation_round_to_bf16(size_t count);
void operation_gradient_norm(size_t count);
void operation_norm_of_sums(size_t count); // the second half of it
void operation_adamw(size_t count, size_t decay_count);
void operation_average(size_t count);
void operation_symmetric(int M, int n);
void operation_muon(int rows, int cols);
