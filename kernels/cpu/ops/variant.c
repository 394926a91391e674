// The vector kernels, as one variant: the Makefile compiles this file nine times, for each activation type (ACT_FP32,
// ACT_BF16 or ACT_FP16) and each instruction set. CPU_VARIANT is the name of the variant's table.
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/ops/adamw.h"
#include "kernels/cpu/ops/attention.h"
#include "kernels/cpu/ops/cross_entropy.h"
#include "kernels/cpu/ops/dropout.h"
#include "kernels/cpu/ops/embed.h"
#include "kernels/cpu/ops/gelu.h"
#include "kernels/cpu/ops/heads.h"
#include "kernels/cpu/ops/layernorm.h"
#include "kernels/cpu/ops/matmul_panels.h"
#include "kernels/cpu/ops/matmul_row.h"
#include "kernels/cpu/ops/muon.h"
#include "kernels/cpu/ops/swiglu.h"

static void install(Backend *backend) {
#define OP(name, scratch, arguments) backend->name = cpu_##name;
#include "kernels/ops.def"
#undef OP
}

static size_t scratch_bytes(const Shape *shape) {
    size_t most = 0;
#define OP(name, scratch, arguments) most = size_larger(most, cpu_##scratch##_scratch(shape));
#include "kernels/ops.def"
#undef OP
    return round_up(most, 64);
}

const CpuVariant CPU_VARIANT = {install,         scratch_bytes,  pack_tiles, multiply_row, multiply_row_plain,
                                multiply_panels, panels_scratch, W > 4,      widen,        narrow};
