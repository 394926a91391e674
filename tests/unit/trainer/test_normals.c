// Normal numbers of each instruction set.
#include "tests/test.h"
#include "trainer/shape/normals.h"

TEST(normal_numbers_of_each_instruction_set_have_the_same_bits) {
    enum { COUNT = 1003 };
    static double portable[COUNT], vector[COUNT];
    normals_portable(1337, 5, UINT32_MAX - 7, COUNT, portable);
    for (Isa isa = ISA_PORTABLE; isa <= cpu_isa(); isa++) {
        normals_on(isa)(1337, 5, UINT32_MAX - 7, COUNT, vector);
        assert_memory_equal(vector, portable, sizeof vector);
    }
}
