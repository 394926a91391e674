// What watches the device in a run: micro-batches that are computed twice, and the time of steps.
#include "common/err.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/records/step_times.h"

static const Backend *whole;
static int embeds, wrong_embed; // the embedding gradient of this call has a wrong bit

static void embed_backward(Grad *dwte, Grad *dwpe, const Res *dout, const void *rows, int B, int T, int C, int vocab,
                           bool add) {
    whole->embed_backward(dwte, dwpe, dout, rows, B, T, C, vocab, add);
    if (++embeds == wrong_embed) *(uint32_t *)dwpe ^= 1;
}

// One step of three micro-batches from the first weights; the caller frees the parameters after it.
static FeedResult step_with(int recheck_interval, float **params) {
    Tiny tiny;
    TinyShape shape = tiny_shape;
    StepResult result;
    shape.accumulation = 3, shape.dropout = 0.1;
    tiny_open(&tiny, &shape);
    tiny.config.recheck_interval = recheck_interval;
    whole = tiny.backend, embeds = 0;
    Backend wrong = *whole;
    wrong.embed_backward = embed_backward;
    tiny.network.ops = &wrong;
    tiny_start(&tiny, 0);
    FeedResult found = step_gradients(&tiny.network, &tiny.config, &tiny.stream, AFTER_STEPS(40));
    if (found == FEED_BATCH) CHECK(step_apply(&tiny.network, &tiny.config, AFTER_STEPS(40), &result) == 0);
    *params = tiny_read(&tiny, tiny.plan.params);
    tiny_close(&tiny);
    return found;
}

// fault 57
TEST(recheck_finds_a_single_wrong_bit_and_changes_nothing_else) {
    float *params[4];
    const size_t some = 1000 * sizeof(float);
    wrong_embed = 0;
    CHECK(step_with(0, &params[0]) == FEED_BATCH && embeds == 3);
    CHECK(step_with(20, &params[1]) == FEED_BATCH && embeds == 4);
    CHECK(step_with(30, &params[2]) == FEED_BATCH && embeds == 3); // not in step 40
    CHECK(!memcmp(params[0], params[1], some) && !memcmp(params[0], params[2], some));
    for (wrong_embed = 1; wrong_embed <= 2; wrong_embed++) {
        CHECK(step_with(20, &params[3]) == FEED_ERROR);
        CHECK_ERROR(EX_GPU, "step 40: the same micro-batch gave other bits");
        free(params[3]);
    }
    for (int i = 0; i < 3; i++) free(params[i]);
}

// fault 64
TEST(step_times_name_what_is_slower_than_before) {
    StepTimes times = {0};
    uint64_t median = 0;
    int ratios = 0;
    for (int step = 0; step < STEP_TIMES_WINDOW; step++) ratios += step_times_add(&times, 100, &median) != 0;
    for (int step = 1; step < STEP_TIMES_WINDOW; step++) // single slow steps are not a slower median
        ratios += step_times_add(&times, step % 3 ? 90 : 9000, &median) != 0;
    CHECK_EQUAL(ratios, 0);
    CHECK(step_times_add(&times, 90, &median) == 0.9);
    for (int step = 1; step < STEP_TIMES_WINDOW; step++) step_times_add(&times, 180, &median);
    CHECK(step_times_add(&times, 180, &median) == 2); // of 90, the shortest median
    CHECK_EQUAL(median, 180);
}
