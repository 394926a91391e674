// fp16 activations, avx512 instructions.
#define ACT_FP16
#define CPU_VARIANT cpu_fp16_avx512
#include "kernels/cpu/variant.h"
