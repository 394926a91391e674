// fp16 activations, avx2 instructions.
#define ACT_FP16
#define CPU_VARIANT cpu_fp16_avx2
#include "kernels/cpu/variant.h"
