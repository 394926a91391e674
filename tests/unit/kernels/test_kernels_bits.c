// The operations of a training step: the same bits at any number of threads.
#include "tests/unit/trainer/fixture_trainer.h"
#include <xxhash.h>

typedef struct {
    int B, T, C, H, vocab, chunk;
} Size;

// Of the gradients and the loss of each step, which has two micro-batches, and of the parameters at the end.
static uint64_t hash_after_steps(Dtype dtype, int threads, Size size, uint64_t steps) {
    enum { MICROS = 2 };
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.layers = 1, .heads = size.H, .channels = size.C, .block = size.T, .vocab = size.vocab,
                                .batch = size.B, .accumulation = MICROS, .chunk_rows = size.chunk, .type = dtype,
                                .threads = threads));
    const size_t bytes = tiny.model.elements * sizeof(float);
    uint64_t hash = 0;
    for (uint64_t step = 0; step < steps; step++) {
        const StepResult result = tiny_step(&tiny, step * MICROS * (uint64_t)size.B, AFTER_STEPS(step));
        CHECK(result.finite);
        hash = hash * 31 + XXH3_64bits(network_at(&tiny.network, tiny.plan.grads), bytes) +
               XXH3_64bits(&result.loss, sizeof result.loss);
    }
    hash = hash * 31 + XXH3_64bits(network_at(&tiny.network, tiny.plan.params), bytes);
    tiny_close(&tiny);
    return hash;
}

// Under MILLRACE_ISA, which has the slower instructions, and in a build of the address sanitizer less of each.
static bool is_capped(void) {
#ifdef __SANITIZE_ADDRESS__
    return true;
#else
    return getenv("MILLRACE_ISA") != NULL;
#endif
}

TEST(kernels_bits_do_not_depend_on_threads) {
    const uint64_t steps = is_capped() ? 1 : 3;
    static const Size sizes[] = {
        {2, 70, 96, 2, 150, 64}, {1, 192, 256, 4, 600, 192}, {2, 70, 64, 2, 600, 140} // a head with long sums
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int type = 0; type < 3; type++) {
            const Dtype dtype = (Dtype)type;
            const uint64_t one = hash_after_steps(dtype, 1, sizes[i], steps);
            CHECK(one == hash_after_steps(dtype, 2, sizes[i], steps));
            CHECK(one == hash_after_steps(dtype, 4, sizes[i], steps));
        }
}

// The shapes of real models, where a library divides a sum among its threads: C = 768 in bf16, C = 384 in every type.
TEST_CI(kernels_bits_do_not_depend_on_threads_at_the_widths_of_gpt2) {
    static const int threads[] = {3, 8, 2, 4, 6, 16};
    const size_t counts = is_capped() ? 2 : 6;
    for (int run = 0; run < 4; run++) {
        Size size = run ? (Size){2, 256, 384, 6, 600, 512} : (Size){4, 256, 768, 12, 600, 1024};
        if (is_capped()) size.B = 1, size.chunk = size.T;
        const Dtype dtype = run ? (Dtype)(run - 1) : DTYPE_BF16;
        const uint64_t one = hash_after_steps(dtype, 1, size, 1);
        for (size_t i = 0; i < counts; i++) CHECK(one == hash_after_steps(dtype, threads[i], size, 1));
    }
}
