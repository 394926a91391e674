// Detects instruction sets at run time.
#include "common/machine/cpu.h"
#include "common/err.h"
#include <stdlib.h>
#include <string.h>

Isa cpu_isa(void) {
    Isa isa = ISA_PORTABLE;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma"))
        isa = ISA_AVX2;
    if (isa == ISA_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2"))
        isa = ISA_AVX512;
#endif
    const char *cap = getenv("MILLRACE_ISA");
    for (Isa i = ISA_PORTABLE; cap && i <= ISA_AVX512; i++)
        if (!strcmp(cap, cpu_isa_name(i))) return i < isa ? i : isa;
    if (cap && *cap) die(EX_USAGE, "MILLRACE_ISA is '%s', not portable, avx2 or avx512", cap);
    return isa;
}

const char *cpu_isa_name(Isa isa) {
    static const char *const names[] = {"portable", "avx2", "avx512"};
    return names[isa];
}
