// The instruction set to use: the processor's, or a lower one by MILLRACE_ISA=portable|avx2|avx512 (for tests). Another
// word ends the program (2).
#pragma once

// ON_X86(f_avx2, f_portable): a function for an instruction set of x86-64, or on other processors its portable version.
#ifdef __x86_64__
#define ON_X86(vector, portable) vector
#else
#define ON_X86(vector, portable) portable
#endif

typedef enum { ISA_PORTABLE, ISA_AVX2, ISA_AVX512 } Isa; // AVX512: F BW DQ VL VBMI VBMI2 (Ice Lake, Zen 4 and newer)

Isa cpu_isa(void);
const char *cpu_isa_name(Isa isa);
