// fp32 activations, avx2 instructions.
#define CPU_VARIANT cpu_fp32_avx2
#include "kernels/cpu/variant.h"
