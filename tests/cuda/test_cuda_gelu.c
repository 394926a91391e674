// The kernel that has a product and its GELU in one, whatever a run would have timed as the fastest way.
#include "kernels/cuda/cuda_internal.h"
#include "tests/operations/operations.h"
#include "tests/operations/pair.h"
#include <string.h>

// A device may be a Hopper; the emulator is where it is asked to.
static bool is_hopper(void) {
    const char *capability = getenv("EMU_CAPABILITY");
    return !&emu_order || (capability && !strcmp(capability, "90"));
}

TEST(cuda_matmul_gelu_by_wgmma_agrees_with_the_reference) {
    if (!is_hopper()) return;
    cuda_gelu_form = GELU_BY_WGMMA;
    // tiles of 128 x 192, four and more a block: parts of them beyond both edges, more steps of 64 terms than stages
    operation_matmul_gelu(300, 256, 320, ACTIVATION_GELU, true, true);
    operation_matmul_gelu(130, 192, 128, ACTIVATION_GELU_TANH, true, false);
    operation_matmul_gelu(64, 64, 128, ACTIVATION_RELU2, false, false);
    if (!&emu_order) operation_matmul_gelu(2560, 3072, 128, ACTIVATION_GELU, true, true);
    if (!&emu_order) operation_matmul_gelu(2560, 128, 3072, ACTIVATION_GELU, true, true);
    cuda_gelu_form = GELU_AUTO;
}
