// bf16 activations, avx2 instructions.
#define ACT_BF16
#define CPU_VARIANT cpu_bf16_avx2
#include "kernels/cpu/variant.h"
