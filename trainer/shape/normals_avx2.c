// Normal numbers with AVX2.
#include "common/rng.h"
#include "trainer/shape/normals.h"

void normals_avx2(uint64_t seed, uint64_t stream, uint64_t first, size_t count, double *values) {
    rng_normals(seed, stream, first, count, values);
}
