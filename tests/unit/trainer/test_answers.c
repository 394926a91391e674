// loss_tokens = answers: which targets count, and steps and evaluations that divide by their number. Against rows that
// are computed alone, and, of gradients, finite differences (test_trainer_step.c) and PyTorch
// (tests/oracle/trainer/test_answers.py).
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/model/answers.h"
#include "trainer/model/evaluate.h"
#include <math.h>

enum { SYSTEM = 1, USER, ASSISTANT, END, EOT, VOCAB = 29 };
static const TurnIds turns = {true, {SYSTEM, USER, ASSISTANT, END}};

TEST(targets_count_behind_the_marker_of_an_assistant_and_in_plain_documents) {
    static const struct {
        uint16_t ids[9];      // of a row of 8 targets
        const char *expected; // 1 where x[t+1] counts
    } rows[] = {
        {{EOT, USER, 20, END, ASSISTANT, 21, END, EOT, USER}, "00001100"},
        {{EOT, SYSTEM, 20, END, USER, 21, END, ASSISTANT, 22}, "00000001"},
        {{20, 21, END, ASSISTANT, 22, 23, END, USER, 24}, "00011100"},     // began before the row
        {{22, 23, END, EOT, 30, 31, EOT, USER, 20}, "00011100"},           // a plain document counts with its end
        {{EOT, EOT, 30, EOT, EOT, USER, END, ASSISTANT, END}, "01100001"}, // an empty document, empty texts
        {{ASSISTANT, END, ASSISTANT, END, END, USER, ASSISTANT, 40, 41}, "10100011"}, // two answers in a row
        {{10, 11, 12, 13, 14, 15, 16, 17, 18}, "00000000"},
        {{EOT, ASSISTANT, 10, 11, EOT, 12, USER, EOT, 13}, "01111101"}, // without an <|end|>
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t wide[9];
        uint8_t counted[8], again[8];
        uint64_t count = 0;
        for (int t = 0; t < 9; t++) wide[t] = rows[i].ids[t];
        const uint64_t found = answers_count(&turns, EOT, rows[i].ids, 2, 1, 8, counted);
        CHECK_EQUAL(answers_count(&turns, EOT, wide, 4, 1, 8, again), found);
        for (int t = 0; t < 8; t++) {
            CHECK_EQUAL(counted[t], rows[i].expected[t] == '1');
            CHECK_EQUAL(again[t], counted[t]);
            count += counted[t];
        }
        CHECK_EQUAL(found, count);
    }
}

static TinyShape shape_of(int batch, int accumulation, const char *options) {
    return *TINY_SHAPE(.vocab = VOCAB, .batch = batch, .accumulation = accumulation, .chunk_rows = 20, .threads = 1,
                       .options = options);
}

static void open_tiny(Tiny *tiny, const TinyShape *shape) {
    tiny_open(tiny, shape);
    tiny->model.shape.turns = turns, tiny->model.shape.end_of_text = EOT;
}

// The sum of the losses of a sample's targets that count, and their number.
static double loss_of(uint64_t sample, const char *options, uint64_t *targets) {
    const TinyShape shape = shape_of(1, 1, options);
    Tiny tiny;
    open_tiny(&tiny, &shape);
    const StepResult result = tiny_step(&tiny, sample, AFTER_STEPS(0));
    tiny_close(&tiny);
    *targets = result.targets;
    return result.targets ? result.loss * (double)result.targets : 0;
}

TEST(a_step_divides_by_the_targets_of_all_its_micro_batches) {
    enum { SAMPLES = 8 };
    static const char *const options[] = {"loss_tokens=answers,document_mask=False",
                                          "loss_tokens=answers,reduce_order=fixed,z_loss=1e-2,logit_softcap=9"};
    for (int i = 0; i < 2; i++) {
        double sum = 0, norm = 0;
        uint64_t count = 0, targets, without = 0;
        for (uint64_t sample = 0; sample < SAMPLES; sample++) {
            sum += loss_of(sample, options[i], &targets);
            count += targets, without += !targets;
        }
        CHECK(without && count && count < SAMPLES * 16); // rows without a target that counts
        for (int batch = 1; batch <= SAMPLES; batch *= 2) {
            const TinyShape shape = shape_of(batch, SAMPLES / batch, options[i]);
            Tiny tiny;
            open_tiny(&tiny, &shape);
            const StepResult result = tiny_step(&tiny, 0, AFTER_STEPS(0));
            CHECK(result.finite && result.applied);
            CHECK_EQUAL(result.targets, count);
            CHECK(fabs(result.loss - sum / (double)count) < 2e-6 * result.loss);
            if (batch == 1) norm = (double)result.norm;
            CHECK(fabs((double)result.norm - norm) < 2e-6 * norm);
            tiny_close(&tiny);
        }
    }
}

// The loss scale is that of the gradients as they are computed, before the division by the share of targets that count.
TEST(a_step_in_fp16_has_the_norm_of_fp32_with_every_loss_scale_that_does_not_overflow) {
    TinyShape shape = shape_of(2, 2, "loss_tokens=answers");
    StepResult want = {0};
    static const float scales[] = {1, 1024, 0x1p15f, 0x1p40f};
    for (int i = -1; i < 4; i++) {
        shape.type = i < 0 ? DTYPE_FP32 : DTYPE_FP16;
        Tiny tiny;
        open_tiny(&tiny, &shape);
        const StepResult found = tiny_step(&tiny, 0, &(StepPosition){.loss_scale = i < 0 ? 1 : scales[i]});
        if (i < 0) want = found;
        CHECK(found.targets == want.targets && found.targets > 0 && found.targets < 4 * 16);
        CHECK(found.finite == (i < 3) && found.applied == (i < 3));
        CHECK(fabs(found.loss - want.loss) < 2e-3 * want.loss);
        if (i < 3) CHECK(fabs((double)found.norm - (double)want.norm) < 5e-3 * (double)want.norm);
        tiny_close(&tiny);
    }
}

TEST(a_step_without_targets_that_count_changes_nothing) {
    static const char *const options[] = {"loss_tokens=answers", "loss_tokens=answers,weight_decay=1,z_loss=1e-2",
                                          "loss_tokens=answers,reduce_order=fixed,grad_clip=0"};
    for (OptimizerName name = OPTIMIZER_ADAMW; name <= OPTIMIZER_MUON; name++)
        for (int i = 0; i < 3; i++) {
            TinyShape shape = shape_of(2, 2, options[i]);
            shape.optimizer = optimizer_of(name), shape.type = i == 1 ? DTYPE_FP16 : DTYPE_FP32;
            shape.offload = i == 2 ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE;
            Tiny tiny;
            open_tiny(&tiny, &shape);
            CHECK(tiny_step(&tiny, 0, AFTER_STEPS(0)).applied); // moments that another step would move
            float *before = tiny_read(&tiny, tiny.plan.params);
            tiny.model.shape.turns = (TurnIds){true, {90, 91, 92, 93}}, tiny.model.shape.end_of_text = 94; // of no row
            const StepResult result = tiny_step(&tiny, 4, AFTER_STEPS(1));
            CHECK_EQUAL(result.targets, 0);
            CHECK(result.finite && !result.applied && isnan(result.loss) && isnan(result.norm));
            float *after = tiny_read(&tiny, tiny.plan.params);
            CHECK(!memcmp(before, after, tiny.model.elements * sizeof *before));
            tiny.model.shape.turns = turns, tiny.model.shape.end_of_text = EOT;
            const StepResult next = tiny_step(&tiny, 8, AFTER_STEPS(1)); // as if it had not been
            Tiny other;
            open_tiny(&other, &shape);
            tiny_step(&other, 0, AFTER_STEPS(0));
            const StepResult want = tiny_step(&other, 8, AFTER_STEPS(1));
            float *now = tiny_read(&tiny, tiny.plan.params), *wanted = tiny_read(&other, other.plan.params);
            CHECK(next.loss == want.loss && next.norm == want.norm);
            CHECK(!memcmp(now, wanted, tiny.model.elements * sizeof *now));
            free(before), free(after), free(now), free(wanted);
            tiny_close(&tiny), tiny_close(&other);
        }
}

TEST(evaluations_count_targets_and_their_bytes_whatever_the_batch) {
    enum { SAMPLES = 7, T = 16 };
    static const char options[] = "loss_tokens=answers,document_mask=False";
    uint8_t bytes[VOCAB], counted[T];
    double want = 0;
    uint64_t count = 0, text = 0;
    for (int id = 0; id < VOCAB; id++) bytes[id] = id > EOT ? (uint8_t)id : 0;
    for (int batch = 1; batch <= 4; batch++) {
        TinyShape shape = shape_of(1, 1, options);
        shape.eval_batch = batch;
        Tiny tiny;
        open_tiny(&tiny, &shape);
        const EvaluateRequest request = {
            .split = SPLIT_TRAIN, .mode = SAMPLING_SEQUENTIAL, .samples = SAMPLES, .token_bytes = bytes};
        EvaluateResult found;
        CHECK(evaluate(&tiny.network, &tiny.source, &request, &found) == FEED_BATCH);
        tiny_close(&tiny);
        for (uint64_t sample = 0; sample < SAMPLES && batch == 1; sample++) {
            uint16_t ids[T + 1];
            uint64_t targets;
            for (int t = 0; t <= T; t++) ids[t] = test_row_id(SPLIT_TRAIN, sample, t, T, VOCAB);
            answers_count(&turns, EOT, ids, 2, 1, T, counted);
            for (int t = 0; t < T; t++) text += counted[t] ? bytes[ids[t + 1]] : 0;
            want += loss_of(sample, options, &targets);
            count += targets;
        }
        CHECK_EQUAL(found.targets, count);
        CHECK_EQUAL(found.bytes, text);
        CHECK(fabs(found.loss - want / (double)count) < 2e-6 * found.loss);
        CHECK(found.text_nats > 0 && found.text_nats < found.loss * (double)count);
    }
}
