// fp32 activations, avx512 instructions.
#define CPU_VARIANT cpu_fp32_avx512
#include "kernels/cpu/variant.h"
