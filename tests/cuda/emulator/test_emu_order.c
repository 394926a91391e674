// The order of attention's blocks: each rank once, and multiprocessors with about the same work.
#include "kernels/cuda/attention/wave_order.h"
#include "tests/test.h"

enum { MULTIPROCESSORS = 132, BLOCKS = 8, HEADS = 4 * 12 }; // 4 x 1024 tokens of 124M on an H200, 128 rows a block

// The most steps of a multiprocessor, of 2 to 16 a block. ranked: as wave_rank has it.
static int most_steps(bool ranked) {
    int steps[MULTIPROCESSORS] = {0}, most = 0;
    bool seen[BLOCKS * HEADS] = {false};
    for (int id = 0; id < BLOCKS * HEADS; id++) {
        const int rank = wave_rank(id, BLOCKS * HEADS, MULTIPROCESSORS), last = ranked ? rank / HEADS : id % BLOCKS;
        int *mine = &steps[id % MULTIPROCESSORS];
        CHECK(rank >= 0 && rank < BLOCKS * HEADS && !seen[rank]);
        seen[rank] = true;
        *mine += 2 * (BLOCKS - last);
        if (*mine > most) most = *mine;
    }
    return most;
}

// Every block of every head once, and those of a head in the order of their lengths, as the gradient's waits need it.
TEST(cuda_attention_takes_heads_together) {
    enum { OF_HEAD = 6, ALL = 25 };
    for (int together = 1; together <= 30; together++) {
        int next[ALL] = {0};
        for (int id = 0; id < OF_HEAD * ALL; id++) {
            const BlockOfHead x = block_of_head(id, OF_HEAD, ALL, together);
            CHECK(x.head > id / OF_HEAD - together && x.head < ALL && x.head < id / OF_HEAD + together);
            CHECK_EQUAL(x.rank, next[x.head]++);
        }
        for (int head = 0; head < ALL; head++) CHECK_EQUAL(next[head], OF_HEAD);
    }
}

TEST(cuda_attention_divides_a_grid_that_runs_at_once) {
    CHECK_EQUAL(most_steps(false), 40);
    CHECK_EQUAL(most_steps(true), 28); // 26 on average
}
