// fp16 activations, portable instructions.
#define ACT_FP16
#define CPU_VARIANT cpu_fp16_portable
#include "kernels/cpu/variant.h"
