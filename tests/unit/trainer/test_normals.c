// Normal numbers of each instruction set.
#include "tests/test.h"
#include "trainer/shape/normals.h"

TEST(normal_numbers_of_each_instruction_set_have_the_same_bits) {
    enum { COUNT = 1003 };
    const uint64_t seed = 0x9e3779b97f4a7c15, stream = 0xc2b2ae3d27d4eb4f;
    static double portable[COUNT], vector[COUNT];
    normals_portable(seed, stream, UINT32_MAX - 7, COUNT, portable);
    for (Isa isa = ISA_PORTABLE; isa <= cpu_isa(); isa++) {
        normals_on(isa)(seed, stream, UINT32_MAX - 7, COUNT, vector);
        assert_memory_equal(vector, portable, sizeof vector);
    }
}
