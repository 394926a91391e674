// Times every operation alone on one backend, out of the descriptions that the tests compare (tests/operations):
// bench_operations [device=cpu|cuda dtype=auto B=4 T=256 C=768 H=12 V=50304]. The best of the runs of a fifth of a
// second.
#include "tests/operations/operations.h"
#include "tests/operations/pair.h"

void test_failed(const char *what, const char *file, int line) {
    fprintf(stderr, "bench_operations: %s:%d: not %s: %s\n", file, line, what, err_code() ? err_text() : "");
    exit(err_code() ? err_code() : EX_BUG);
}

int main(int count, char **arguments) {
    int B = 4, T = 256, C = 768, H = 12, V = 50304;
    char device[8] = "cpu", dtype[16] = "";
    const struct {
        const char *format;
        void *value;
    } keys[] = {{"B=%d", &B}, {"T=%d", &T},           {"C=%d", &C},         {"H=%d", &H},
                {"V=%d", &V}, {"device=%7s", device}, {"dtype=%15s", dtype}};
    for (int i = 1; i < count; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            known = known || sscanf(arguments[i], keys[k].format, keys[k].value) == 1;
        if (!known) return fprintf(stderr, "bench_operations: not '%s'\n", arguments[i]), EX_USAGE;
    }
    if (*dtype) setenv("TEST_DTYPE", dtype, 1);
    pair_device = strcmp(device, "cuda") ? DEVICE_CPU : DEVICE_CUDA;
    pair_timing = true;
    const int N = B * T;
    const size_t parameters = (size_t)V * (size_t)C;
    printf("B=%d T=%d C=%d H=%d V=%d on %s\n", B, T, C, H, V, device);
    operation_embed(B, T, C, V, V - 47, false);
    operation_layernorm(N, C, true, true, false);
    operation_layernorm_backward(N, C, false, false, true, false);
    operation_matmul(N, 3 * C, C);
    operation_matmul(N, 4 * C, C);
    operation_matmul(N, V, C);
    operation_matmul_gelu(N, 4 * C, C, ACTIVATION_GELU, true, false);
    operation_gelu(N, 4 * C);
    operation_layernorm(N, C, true, false, true);
    operation_layernorm_backward(N, C, false, true, false, true);
    operation_swiglu(N, 8 * C / 3 / 64 * 64, false);
    operation_heads(B, T, H, H, C / H, true, true, true);
    operation_attention(B, T, H, C / H, false, false);
    if (pair_device == DEVICE_CPU) operation_attention(B, T, H, C / H, true, false);
    operation_dropout(B, T, C);
    operation_cross_entropy(N, T, V - 47, V, 0, N, 0, 0);
    operation_cross_entropy(N, T, V - 47, V, 0, N, 30, 1e-4);
    operation_add_gradients(parameters);
    operation_round_to_bf16(parameters);
    operation_gradient_norm(parameters);
    operation_adamw(parameters, parameters);
    return 0;
}
