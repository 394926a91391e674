// bf16 activations, portable instructions.
#define ACT_BF16
#define CPU_UNIT cpu_bf16_portable
#include "kernels/cpu/variant.h"
