// One unit of vector kernels. The file that includes this is compiled for an instruction set, and defines CPU_VARIANT,
// the unit's name, and ACT_BF16 or ACT_FP16 for activations of two bytes.
#pragma once

#include "kernels/cpu/cpu_internal.h"
#include <omp.h>

#include "kernels/cpu/act.h"

#include "kernels/cpu/ops/columns.h"

#include "kernels/cpu/ops/adamw.h"
#include "kernels/cpu/ops/attention.h"
#include "kernels/cpu/ops/cross_entropy.h"
#include "kernels/cpu/ops/embed.h"
#include "kernels/cpu/ops/gelu.h"
#include "kernels/cpu/ops/layernorm.h"
#include "kernels/cpu/ops/pack.h"

static void install(Backend *backend, OptimizerState state) {
    backend->embed_forward = embed_forward;
    backend->embed_backward = embed_backward;
    backend->layernorm_forward = layernorm_forward;
    backend->layernorm_backward = layernorm_backward;
    backend->gelu_forward = gelu_forward;
    backend->gelu_backward = gelu_backward;
    backend->attention_forward = attention_forward;
    backend->attention_backward = attention_backward;
    backend->cross_entropy = cross_entropy;
    backend->sum_losses = sum_losses;
    backend->gradient_norm = gradient_norm;
    backend->adamw = state == STATE_FP32 ? adamw : state == STATE_BF16 ? adamw_m8 : adamw_sr;
}

const CpuVariant CPU_VARIANT = {install, attention_bytes, pack_transposed, pack_plain, widen, narrow};
