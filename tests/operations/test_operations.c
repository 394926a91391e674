// Every operation of kernels/ops.def (operations.h) at shapes that reach each of its paths: on the CPU in three types
// and on CUDA, emulated or on a device.
#include "tests/operations/operations.h"
#include "tests/operations/pair.h"

enum { ANY = 64 }; // a shape's field that does not matter to the operation

OPERATION(embedding_agrees_with_the_reference) {
    operation_embed(3, 50, 136, 192, 60, false);
    operation_embed(1, 40, 1048, 128, 60, true);     // two blocks of channels
    operation_embed(3, 30, 8, 200064, 200019, true); // ids of 4 bytes
}

OPERATION(embedding_gradient_is_gathered_in_order) {
    operation_embed(2, 520, 72, 128, 20,
                    true); // two chunks of sorted tokens, or 33 of the small ones that the emulator
                           // has, too; 50 rows of a token, which two warps add
    operation_embed(1, 4128, 8, 128, 60, false); // more chunks of the small ones than a block has threads
}

OPERATION(layernorm_agrees_with_the_reference) {
    operation_layernorm(35, 768, true, true, false);
    operation_layernorm(5, 64, false, false, false);
    operation_layernorm(9, 1024, true, false, false);
    operation_layernorm(7, 1600, true, true, false);
}

OPERATION(layernorm_gradient_agrees_with_the_reference) {
    operation_layernorm_backward(1600, 64, true, false, false, false); // more rows than warps: 384 blocks of 4
    operation_layernorm_backward(40, 768, false, true, true, false);
    operation_layernorm_backward(9, 1024, false, false, false, false);
    operation_layernorm_backward(9, 1280, false, true, false, false);
    operation_layernorm_backward(9, 1600, false, true, false, false);
    operation_layernorm_backward(9, 1600, true, false, false, false);
}

OPERATION(rms_norm_agrees_with_the_reference) {
    static const int shapes[][2] = {{35, 768}, {1600, 64}, {7, 1600}};
    for (int i = 0; i < 3; i++) {
        operation_layernorm(shapes[i][0], shapes[i][1], true, false, true);
        operation_layernorm_backward(shapes[i][0], shapes[i][1], false, true, false, true);
    }
}

OPERATION(gelu_agrees_with_the_reference) {
    operation_gelu(300, 328);
    operation_gelu(1100, 64); // more rows than 128 blocks of 8 warps take at once
}

OPERATION(swiglu_agrees_with_the_reference) {
    operation_swiglu(70, 344, false);
    operation_swiglu(1100, 64, true); // more rows than 128 blocks of 8 warps take at once
    if (pair_device == DEVICE_CPU) operation_swiglu(33, 13, true);
}

OPERATION(heads_agree_with_the_reference) {
    operation_heads(2, 37, 4, 4, 64, true, true, true);
    operation_heads(1, 1100, 3, 3, 8, true, false, false); // more rows than blocks
    operation_heads(2, 20, 6, 2, 24, false, true, false);
    operation_heads(1, 33, 20, 4, 72, true, true, false); // more heads than groups of threads
    operation_heads(2, 9, 4, 1, 128, true, false, false);
    operation_heads(2, 9, 2, 1, 16, false, false, false);
    if (pair_device == DEVICE_CPU) operation_heads(2, 35, 2, 1, 25, true, false, false);
    if (pair_device == DEVICE_CPU) operation_heads(2, 35, 2, 2, 300, true, true, true);
}

OPERATION(matmul_agrees_with_the_reference) {
    operation_matmul(37, 192, 128);
    operation_matmul(19, 72, 40);                                  // fills no block of a packed layout
    operation_matmul(37, 1088, 64);                                // the head's long sums: two chunks and a part of one
    if (pair_device == DEVICE_CPU) operation_matmul(1300, 50, 40); // a sum of several chunks of tokens
    if (pair_device == DEVICE_CPU) operation_matmul(260, 14, 3072); // rows that are 12 KiB apart
    if (pair_device == DEVICE_CPU)
        operation_matmul(29, 1100, 1024); // and 4 KiB, with a sum of several chunks of outputs
}

OPERATION(matmul_of_a_single_row_agrees_with_the_reference) {
    operation_matmul(1, 192, 128);
    operation_matmul(1, 80, 1088);
    operation_matmul(1, 72, 40);
    if (pair_device == DEVICE_CPU) operation_matmul_row(144, 768), operation_matmul_row(128, 3072);
}

OPERATION(matmul_and_gelu_agree_with_the_reference) {
    for (int form = 0; form < 4; form++) {
        pair_times = form != 1;
        operation_matmul_gelu(37, 192, 128, form / 2 ? ACTIVATION_GELU : ACTIVATION_GELU_TANH, form % 2, form == 3);
    }
    operation_matmul_gelu(37, 192, 128, ACTIVATION_RELU2, true, true);
    pair_times = false;
}

OPERATION(attention_of_64_channels_agrees_with_the_reference) {
    operation_attention(1, 136, 2, 64, false, false);
    operation_attention(2, 77, 2, 64, false, false);
    operation_attention(1, 1, 1, 64, false, false);
}

OPERATION(attention_of_texts_that_share_tokens_agrees_with_the_reference) {
    operation_attention_of_branches(3, 330, 2, 64);
    operation_attention_of_branches(2, 200, 1, 96);
    operation_attention_of_branches(2, 130, 1, 128);
    operation_attention_of_branches(3, 77, 2, 24);
    if (pair_device == DEVICE_CPU) operation_attention_of_branches(2, 90, 2, 25);
}

OPERATION(attention_from_a_row_on_has_the_bits_of_the_whole) {
    const int rows[] = {0, 1, 15, 16, 31, 63, 64, 65, 127, 128, 199};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) operation_attention_from(200, 2, 64, rows[i]);
    operation_attention_from(77, 2, pair_device == DEVICE_CPU ? 25 : 32, 76);
    operation_attention_from(77, 1, 96, 76);
}

OPERATION(attention_of_more_channels_agrees_with_the_reference) {
    operation_attention(1, 136, 1, 96, false, false);
    operation_attention(1, 136, 1, 128, false, false);
}

OPERATION(attention_of_fewer_channels_agrees_with_the_reference) {
    operation_attention(1, 130, 1, 48, false, false);
    operation_attention(1, 70, 2, 8, false, false);
    operation_attention(1, 70, 1, 80, false, false);
}

// Odd widths, where a pair of bf16 is half empty, and widths beyond 256.
OPERATION(attention_agrees_with_the_reference_at_every_head_width) {
    static const int widths[] = {1, 3, 25, 43, 100, 255, 256, 257, 320, 768};
    if (pair_device != DEVICE_CPU) SKIP("CUDA has kernels for multiples of 8 up to 128");
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) operation_attention(1, 70, 2, widths[i], false, false);
}

OPERATION(dropout_agrees_with_the_reference) {
    operation_dropout(2, 33, 384);
    operation_dropout(3, 7, 8);
    if (pair_device != DEVICE_CPU) return; // CUDA has kernels for channels of multiples of 8
    operation_dropout(1, 1, 1);
    operation_dropout(2, 5, 13);
    operation_dropout(3, 40, 129);
}

OPERATION(attention_with_dropout_agrees_with_the_reference) {
    operation_attention(2, 70, 3, 24, true, false);
    operation_attention(1, 137, 2, 64, true, false); // more than two tiles of queries and keys
    operation_attention(1, 70, 1, 96, true, false);
    operation_attention(1, 70, 1, 128, true, false);
    if (pair_device == DEVICE_CPU) operation_attention(2, 70, 3, 25, true, false);
}

OPERATION(attention_within_documents_agrees_with_the_reference) {
    operation_attention(2, 70, 3, 24, false, true);
    operation_attention(2, 200, 2, 64, false, true);
    operation_attention(1, 70, 1, 72, true, true);
    operation_attention(1, 70, 1, 128, false, true);
}

OPERATION(loss_of_capped_logits_agrees_with_the_reference) {
    operation_cross_entropy(12, 6, 65, 128, 0, 12, 15, 0);
    operation_cross_entropy(6, 3, 5003, 5056, 0, 6, 30, 1e-3);
    operation_cross_entropy(6, 3, 5003, 5056, 0, 6, 0, 1e-2);
    operation_cross_entropy(2, 2, 50257, 50304, 0, 2, 30, 1e-4);
}

OPERATION(loss_agrees_with_the_reference) {
    operation_cross_entropy(12, 6, 65, 128, 4, 8, 0, 0);
    operation_cross_entropy(6, 3, 5003, 5056, 0, 6, 0, 0);
    operation_cross_entropy(2, 2, 50257, 50304, 0, 2, 0, 0);
    operation_cross_entropy(6, 3, 200019, 200064, 0, 6, 0, 0); // ids of 4 bytes
    operation_cross_entropy(300, 300, 65, 128, 292, 8, 0, 0);  // sum_losses: more losses than a block has threads
}

OPERATION(gradient_norm_agrees_with_the_reference_beyond_one_round_of_its_sums) {
    operation_gradient_norm(3 * NORM_PIECE + 8);
    operation_norm_of_sums(1100); // 1,024 threads add them
}

OPERATION(sums_of_gradients_agree_with_the_reference) {
    operation_add_gradients(8);
    operation_add_gradients(70000 - 70000 % 8);
    if (pair_device == DEVICE_CPU) operation_add_gradients(65536 + 3);
}

OPERATION(rounding_to_bf16_agrees_with_the_reference) {
    operation_round_to_bf16(4096);
    if (pair_device == DEVICE_CPU) operation_round_to_bf16(65536 + 3);
}

OPERATION(update_agrees_with_the_reference) { operation_adamw(20480 + 264, 8 * 999); }

OPERATION(average_agrees_with_the_reference) {
    operation_average(4096);
    if (pair_device == DEVICE_CPU) operation_average(65536 + 3);
}

OPERATION(symmetric_products_agree_with_the_reference) {
    operation_symmetric(72, 136);
    operation_symmetric(200, 56);
}

OPERATION(muon_agrees_with_the_reference) {
    operation_muon(72, 136);
    operation_muon(200, 64);
}

// A row alone, widths that are no multiple of a vector, and numbers at the edges of fp32.
OPERATION(numbers_at_the_edges_have_the_same_bits_under_every_instruction_set) {
    if (pair_device != DEVICE_CPU) SKIP("these widths are the CPU's");
    pair_edges = true;
    for (int n = 9; n < 40; n += 14) {
        const int rows = n % 3 ? n : 1;
        operation_embed(1, rows, n, 64, 60, true);
        for (int rms = 0; rms < 2; rms++) {
            operation_layernorm(rows, n, true, true, rms);
            operation_layernorm_backward(rows, n, false, true, false, rms);
        }
        operation_gelu(rows, n);
        operation_swiglu(rows, n, true);
        operation_heads(1, rows, 2, 1, n, true, true, false);
        operation_attention(1, rows, 2, n, false, false);
        operation_attention(1, rows, 1, n, true, true);
        operation_cross_entropy(rows, rows, 1000 + n, 1088, 0, rows, n > 9 ? 30 : 0, 1e-3);
        operation_gradient_norm((size_t)n);
        operation_average((size_t)n);
    }
    pair_edges = false;
}
