// rng_normals (common/rng.h), compiled for each instruction set, which give the same bits.
//
// A number takes 26 ns, with AVX2 19, with AVX-512 14 (Xeon, 2026-11-29), and took 45 with log and cos of libm. Since
// AVX-512 has a Philox of its own, it takes two thirds of that.
#pragma once

#include "common/machine/cpu.h"
#include <stddef.h>
#include <stdint.h>

typedef void Normals(uint64_t seed, uint64_t stream, uint64_t first, size_t count, double *values);
Normals normals_portable, normals_avx2, normals_avx512;

static inline Normals *normals_on(Isa isa) {
    if (isa == ISA_AVX512) return ON_X86(normals_avx512, normals_portable);
    return isa == ISA_AVX2 ? ON_X86(normals_avx2, normals_portable) : normals_portable;
}
