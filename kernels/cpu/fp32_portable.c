// fp32 activations, portable instructions.
#define CPU_UNIT cpu_fp32_portable
#include "kernels/cpu/variant.h"
