// fp32 activations, portable instructions.
#define CPU_VARIANT cpu_fp32_portable
#include "kernels/cpu/variant.h"
