// Normal numbers with AVX-512.
#include "common/rng.h"
#include "trainer/shape/normals.h"

void normals_avx512(uint64_t seed, uint64_t stream, uint64_t first, size_t count, double *values) {
    rng_normals(seed, stream, first, count, values);
}
