// Functions of a double whose bits are the same on every processor, compiler and C library: sums, products and
// quotients in one order, without fused multiply-add. A libm's last bits depend on its version and, by ifunc, on the
// processor. Errors are measured by tests/unit/common/test_portable_math.c, in units in the last place (ulp).
#pragma once

#include <stdint.h>

double portable_exp(double x);  // 1.2 ulp; 0 and infinity beyond the range
double portable_log(double x);  // 1 ulp; -infinity of 0, NaN of less
double portable_tanh(double x); // 16 ulp

// Absolute error 2^-52, for |x| <= 10^6.
double portable_sin(double x);
double portable_cos(double x);

// x^n by squares; relative error n * 2^-53
double portable_power(double x, uint64_t n);
