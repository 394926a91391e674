// Each modern option of the model, and each two of them: loss and gradients against torch in double precision
// (tests/oracle/trainer/make_options.py).
#include "common/rng.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/model/sample.h"
#include <math.h>

enum { BLOCK = 16, ROWS = 2, VOCAB = 97 };
static const char every_option[] =
    "tie_embeddings=False,logit_softcap=2.5,z_loss=0.01,norm=rmsnorm,qk_norm=True,mlp=swiglu,"
    "position=rope,n_kv_head=2";

static TinyShape shape_of(const char *options, Dtype type) {
    return *TINY_SHAPE(.heads = 4, .bias = false, .chunk_rows = 20, .type = type, .threads = 1,
                       .options = strcmp(options, "-") ? options : NULL);
}

// The weights of make_options.py.
static void write_weights(Tiny *tiny) {
    float *params = network_at(&tiny->network, tiny->plan.params);
    for (int i = 0; i < tiny->model.count; i++) {
        const Tensor *tensor = &tiny->model.tensors[i];
        const uint64_t stream = (uint64_t)tensor->id << 32 | (uint64_t)tensor->layer;
        const size_t real = (size_t)tensor->file_rows * (size_t)tensor->cols;
        for (size_t k = 0; k < real; k++) {
            float *at = &params[tensor->offset + k];
            *at = (float)rng_normal(5, stream, k) * 0.125f;
            if (tensor->kind == KIND_GAIN) *at += 1;
        }
    }
    network_pack(&tiny->network);
}

// Of sequence 0 and 1; with `backward` the gradients too.
static double mean_loss(Tiny *tiny, const PassLayout *pass, bool backward) {
    Network *network = &tiny->network;
    StepScalars scalars = {.loss_scale = 1}, *at = network_at(network, tiny->plan.scalars);
    uint16_t ids[ROWS * (BLOCK + 1)];
    for (int i = 0; i < ROWS * (BLOCK + 1); i++)
        ids[i] = test_row_id(0, (uint64_t)(i / (BLOCK + 1)), i % (BLOCK + 1), BLOCK, VOCAB);
    tiny->backend->upload(at, &scalars, sizeof scalars);
    network_tokens(network, pass, ids, ROWS, BLOCK);
    network_forward(network, pass, ROWS, BLOCK);
    network_losses(network, pass, ROWS, BLOCK, 1.0f / (ROWS * BLOCK), backward, false);
    tiny->backend->sum_losses(&at->loss, network_at(network, pass->losses), ROWS * BLOCK);
    if (backward) network_backward(network, pass, ROWS, BLOCK, false);
    tiny->backend->download(&scalars, at, sizeof scalars);
    return scalars.loss / (ROWS * BLOCK);
}

// The norm of the gradient of all tensors of one row of params.def, and its products with two vectors of signs.
static size_t project(const Tiny *tiny, ParamId id, double got[3]) {
    const float *gradients = network_at(&tiny->network, tiny->plan.grads);
    size_t count = 0;
    got[0] = got[1] = got[2] = 0;
    for (int i = 0; i < tiny->model.count; i++) {
        const Tensor *tensor = &tiny->model.tensors[i];
        for (size_t k = 0; tensor->id == id && k < (size_t)tensor->file_rows * (size_t)tensor->cols; k++, count++) {
            const double g = (double)gradients[tensor->offset + k];
            got[0] += g * g;
            for (uint64_t way = 1; way <= 2; way++) got[way] += rng_u64(way, 0, count) & 1 ? -g : g;
        }
    }
    got[0] = sqrt(got[0]);
    return count;
}

static const char *const names[] = {
#define PARAM(id, name, per, rows, cols, kind) #id,
#include "trainer/shape/params.def"
#undef PARAM
};

// tiny NULL: only reads the expected values.
static void check_gradient(const Tiny *tiny, FILE *file, const char *options, double rtol) {
    char name[32];
    double want[3], got[3];
    CHECK(fscanf(file, "%31s %lf %lf %lf", name, &want[0], &want[1], &want[2]) == 4);
    if (!tiny) return;
    int id = 0;
    while (id < PARAM_COUNT && strcmp(names[id], name)) id++;
    const size_t count = project(tiny, (ParamId)id, got);
    CHECK(count > 0);
    // The bias of keys has no gradient: softmax does not depend on it. So the bound has the size of the other tensors'.
    const double bound = rtol * (want[0] + 0.01);
    for (int i = 0; i < 3; i++) {
        const bool near = fabs(got[i] - want[i]) <= bound;
        if (!near) print_error("%s: %s %d: %.9g, torch has %.9g\n", options, name, i, got[i], want[i]);
        CHECK(near);
    }
}

// Returns the number of cases; without `pairs` there are those of no option, one, and all.
static int check_cases(Dtype type, double rtol, bool pairs, const char *order) {
    char path[4096], options[256], all[300];
    double loss;
    int tensors, cases = 0;
    snprintf(path, sizeof path, "%s/options_torch.txt", test_data);
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fscanf(file, "%255s %lf %d", options, &loss, &tensors) == 3) {
        snprintf(all, sizeof all, "%s,reduce_order=%s", strcmp(options, "-") ? options : "bias=False", order);
        TinyShape shape = shape_of(all, type);
        const char *comma = strchr(options, ',');
        Tiny tiny;
        if (!pairs && comma && !strchr(comma + 1, ',')) {
            while (tensors--) check_gradient(NULL, file, options, rtol);
            continue;
        }
        shape.bias = strstr(options, "bias=True");
        tiny_open(&tiny, &shape);
        write_weights(&tiny);
        const double got = mean_loss(&tiny, &tiny.plan.train, true);
        if (fabs(got - loss) > rtol * loss) print_error("%s: loss %.9g, torch has %.9g\n", options, got, loss);
        CHECK(fabs(got - loss) <= rtol * loss);
        for (int i = 0; i < tensors; i++) check_gradient(&tiny, file, options, rtol);
        tiny_close(&tiny);
        cases++;
    }
    fclose(file);
    return cases;
}

TEST_ON_EACH_ISA(options_alone_and_in_pairs_have_the_loss_and_the_gradients_of_torch) {
    CHECK_EQUAL(check_cases(DTYPE_FP32, 1e-5, true, "fast"), 1 + 10 + 44 + 1);
    CHECK_EQUAL(check_cases(DTYPE_FP32, 1e-5, false, "fixed"), 1 + 10 + 1);
}

TEST(options_in_half_types_have_the_loss_and_the_gradients_of_torch) {
    CHECK_EQUAL(check_cases(DTYPE_BF16, 0.06, false, "fast"), 1 + 10 + 1);
    CHECK_EQUAL(check_cases(DTYPE_FP16, 0.008, false, "fast"), 1 + 10 + 1);
}

static float *gradients_of(const TinyShape *shape, double *loss) {
    Tiny tiny;
    tiny_open(&tiny, shape);
    write_weights(&tiny);
    *loss = mean_loss(&tiny, &tiny.plan.train, true);
    float *gradients = tiny_read(&tiny, tiny.plan.grads);
    tiny_close(&tiny);
    return gradients;
}

TEST(gradients_with_options_are_bit_identical_for_every_recompute) {
    for (Dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
        TinyShape shape = shape_of(every_option, type);
        double want, loss;
        Tiny tiny;
        tiny_open(&tiny, &shape);
        const size_t bytes = tiny.model.elements * sizeof(float);
        tiny_close(&tiny);
        float *kept = gradients_of(&shape, &want);
        for (int run = 0; run < 10; run++) {
            shape.recompute = (Recompute)(RECOMPUTE_GELU + run / 2), shape.recompute_layers = run % 2;
            float *again = gradients_of(&shape, &loss);
            CHECK(loss == want && !memcmp(kept, again, bytes));
            free(again);
        }
        free(kept);
    }
}

// Of sequence 0; by_token: with the keys and values of the tokens before, as sampling computes them.
static void last_logits(Tiny *tiny, int T, bool by_token, float *logits) {
    const PassLayout *pass = &tiny->plan.sample;
    uint16_t ids[BLOCK + 1];
    for (int i = 0; i <= T; i++) ids[i] = test_row_id(0, 0, i, BLOCK, VOCAB);
    for (int t = by_token ? 0 : T - 1; t < T; t++) {
        network_tokens(&tiny->network, pass, ids, 1, t + 1);
        network_forward_last(&tiny->network, pass, t + 1, by_token ? t : 0);
    }
    network_logits(&tiny->network, pass, by_token ? 0 : T - 1, logits);
}

TEST_ON_EACH_ISA(logits_with_options_after_kept_tokens_are_those_of_the_whole_text) {
    static const char *const sets[] = {every_option, "position=rope", "n_kv_head=1", "qk_norm=True", "logit_softcap=3"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const TinyShape shape = shape_of(sets[i], DTYPE_FP32);
        float once[VOCAB], by_token[VOCAB];
        Tiny tiny;
        tiny_open(&tiny, &shape);
        write_weights(&tiny);
        CHECK(tiny.plan.sample.cache_stride);
        last_logits(&tiny, BLOCK, false, once), last_logits(&tiny, BLOCK, true, by_token);
        CHECK_CLOSE(by_token, once, VOCAB, 0, 3e-6);
        // The loss of an evaluation is the mean of these logits' losses, without the z-loss: here of the last token.
        const double loss = mean_loss(&tiny, &tiny.plan.eval, false);
        const float *losses = network_at(&tiny.network, tiny.plan.eval.losses);
        double total = 0;
        for (int v = 0; v < VOCAB; v++) total += exp((double)once[v]);
        const double last = log(total) - (double)once[test_row_id(0, 0, BLOCK, BLOCK, VOCAB)];
        CHECK(isfinite(loss) && fabs((double)losses[BLOCK - 1] - last) < 1e-5);
        tiny_close(&tiny);
    }
}

TEST(a_plan_counts_the_parameters_and_the_memory_of_options) {
    const TinyShape plain = shape_of("-", DTYPE_FP32);
    struct {
        const char *options;
        int more; // parameters
    } cases[] = {{"tie_embeddings=False", VOCAB * 32},
                 {"mlp=relu2", 0},
                 {"norm=rmsnorm", 0},
                 {"qk_norm=True", 2 * 2 * 8},
                 {"mlp=swiglu", 2 * 128 * 32}, // 8/3 * 32, rounded up to 128
                 {"position=rope", -BLOCK * 32},
                 {"n_kv_head=1", 2 * 2 * -(32 - 8) * 32}};
    Tiny tiny;
    tiny_open(&tiny, &plain);
    const int base = (int)tiny.model.parameters;
    CHECK(tiny.plan.rotation == tiny.plan.passes);
    tiny_close(&tiny);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const TinyShape shape = shape_of(cases[i].options, DTYPE_FP32);
        tiny_open(&tiny, &shape);
        CHECK_EQUAL((int)tiny.model.parameters - base, cases[i].more);
        tiny_close(&tiny);
    }
}

// Every row of a matrix that is wider than high has the same length in an update: about 1, times rate, 0.2
// sqrt(columns).
TEST(muon_updates_every_row_of_queries_keys_and_values_that_heads_share) {
    TinyShape shape = shape_of(every_option, DTYPE_FP32);
    shape.optimizer = optimizer_of(OPTIMIZER_MUON);
    Tiny tiny;
    tiny_open(&tiny, &shape);
    write_weights(&tiny);
    tiny.config.optimizer = OPTIMIZER_MUON, tiny.config.lr_schedule = LR_CONSTANT, tiny.config.warmup_iters = 0,
    tiny.config.weight_decay = 0;
    float *before = tiny_read(&tiny, tiny.plan.params);
    uint16_t ids[ROWS * (BLOCK + 1)];
    for (int i = 0; i < ROWS * (BLOCK + 1); i++) ids[i] = test_row_id(0, 0, i, BLOCK, VOCAB);
    const StepPosition position = {.loss_scale = 1};
    step_begin(&tiny.network, &tiny.config, &position);
    network_tokens(&tiny.network, &tiny.plan.train, ids, ROWS, BLOCK);
    step_micro_batch(&tiny.network, 1.0f / (ROWS * BLOCK), 0);
    step_end(&tiny.network);
    float *after = tiny_read(&tiny, tiny.plan.params);
    const Tensor *tensor = model_tensor(&tiny.model, PARAM_QKV_W, 1);
    int rows[TENSOR_PARTS];
    CHECK_EQUAL(tensor_parts(tensor, &tiny.model.shape, rows), 3);
    CHECK(rows[0] == 32 && rows[1] == 16 && rows[2] == 16);
    const double unit = tiny.config.learning_rate * 0.2 * sqrt(tensor->cols);
    for (size_t row = (size_t)rows[0]; row < (size_t)tensor->rows; row++) {
        double squares = 0;
        for (size_t c = 0; c < (size_t)tensor->cols; c++) {
            const size_t at = tensor->offset + row * (size_t)tensor->cols + c;
            squares += pow((double)after[at] - (double)before[at], 2);
        }
        CHECK(sqrt(squares) > 0.4 * unit && sqrt(squares) < 1.3 * unit);
    }
    free(before), free(after);
    tiny_close(&tiny);
}
