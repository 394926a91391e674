// bf16 activations, portable instructions.
#define ACT_BF16
#define CPU_VARIANT cpu_bf16_portable
#include "kernels/cpu/variant.h"
