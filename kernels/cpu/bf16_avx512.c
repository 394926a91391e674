// bf16 activations, avx512 instructions.
#define ACT_BF16
#define CPU_VARIANT cpu_bf16_avx512
#include "kernels/cpu/variant.h"
