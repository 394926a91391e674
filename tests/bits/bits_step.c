// Steps of small models with reduce_order=fixed, without a loader and without files: prints for each model the SHA-256
// of its losses, norms and links of the chain, of an evaluation, sampled ids, weights and optimizer state. `make
// check-bits` links it with each build, and statically with another C library.
#include "common/hash.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/engine/chain.h"
#include "trainer/model/evaluate.h"
#include "trainer/model/sample.h"

enum { STEPS = 4, SAMPLED = 20 };

static const struct {
    const char *name;
    OptimizerName optimizer;
    TinyShape shape;
} models[] = {
    {"gpt2",
     OPTIMIZER_ADAMW,
     {TINY_MEMBERS, .dropout = 0.1, .options = "reduce_order=fixed,eval_interval=2,gelu=tanh"}},
    {"llama",
     OPTIMIZER_MUON,
     {TINY_MEMBERS, .accumulation = 3, .channels = 40, .heads = 4, .bias = false, .end_of_text = 5, .threads = 3,
      .options = "reduce_order=fixed,eval_interval=2,mlp=swiglu,norm=rmsnorm,position=rope,n_kv_head=2,qk_norm=True,"
                 "tie_embeddings=False"}},
    {"odd",
     OPTIMIZER_ADAMW,
     {TINY_MEMBERS, .batch = 3, .channels = 26, .block = 13, .chunk_rows = 5, .threads = 1,
      .options = "reduce_order=fixed,eval_interval=2,mlp=gelu,logit_softcap=5,z_loss=0.01,grad_clip=0.1"}},
};

typedef struct {
    Tiny tiny;
    Chain chain;
    RunState state;
    Sha256 sha;
} Steps;

void test_failed(const char *what, const char *file, int line) {
    die(EX_BUG, "%s:%d: %s: %s", file, line, what, err_text());
}

static void take_batch(void *self, const FeedBatch *batch) {
    Steps *steps = self;
    chain_add_batch(&steps->chain, &steps->tiny.network, batch);
}

static void make_step(Steps *steps) {
    static const uint8_t fingerprint[32];
    Tiny *tiny = &steps->tiny;
    const uint64_t step = steps->state.step;
    const int64_t samples = tiny->config.batch_size.value * tiny->config.gradient_accumulation_steps;
    chain_begin(&steps->chain);
    const StepResult result = tiny_step(tiny, step * (uint64_t)samples, AFTER_STEPS(step));
    steps->state.step++;
    CHECK(chain_share(&steps->chain, &tiny->network) == 0);
    chain_end(&steps->chain, &tiny->network, &tiny->config, fingerprint, &result, &steps->state);
    sha256_add(&steps->sha, &result.loss, sizeof result.loss),
        sha256_add(&steps->sha, &result.norm, sizeof result.norm);
    sha256_add(&steps->sha, steps->state.chain, sizeof steps->state.chain);
}

static void evaluate_and_sample(Steps *steps) {
    const EvaluateRequest request = {.split = SPLIT_VAL, .mode = SAMPLING_SEQUENTIAL, .samples = 5};
    EvaluateResult found;
    uint16_t ids[1 + SAMPLED] = {1};
    batch_stream_cancel(&steps->tiny.stream);
    CHECK(evaluate(&steps->tiny.network, &steps->tiny.source, &request, &found) == FEED_BATCH);
    sha256_add(&steps->sha, &found.loss, sizeof found.loss);
    CHECK(sample(&steps->tiny.network, &(Sampler){.temperature = 0.8, .top_p = 0.9, .seed = 7}, ids, 1, SAMPLED, NULL,
                 NULL) > 0);
    sha256_add(&steps->sha, ids, sizeof ids);
}

static void add_tensors(Steps *steps) {
    const Tiny *tiny = &steps->tiny;
    const Optimizer *optimizer = tiny->plan.optimizer;
    float *params = tiny_read(tiny, tiny->plan.params);
    sha256_add(&steps->sha, params, tiny->model.elements * sizeof *params);
    free(params);
    for (int i = 0; i < optimizer->state_count; i++)
        sha256_add(&steps->sha, network_at(&tiny->network, tiny->plan.states[i]),
                   optimizer_elements(&optimizer->states[i], &tiny->model) * sizeof(float));
}

int main(void) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        static Steps steps;
        uint8_t hash[32];
        char digits[65];
        TinyShape shape = models[i].shape;
        shape.optimizer = optimizer_of(models[i].optimizer);
        tiny_open(&steps.tiny, &shape);
        steps.tiny.stream.received = take_batch, steps.tiny.stream.received_self = &steps;
        chain_open(&steps.chain, &steps.tiny.network, &steps.tiny.config);
        run_state_init(&steps.state);
        sha256_open(&steps.sha);
        while (steps.state.step < STEPS) make_step(&steps);
        evaluate_and_sample(&steps);
        add_tensors(&steps);
        sha256_close(&steps.sha, hash);
        hex_encode(digits, hash, sizeof hash);
        printf("%s %s\n", models[i].name, digits);
        chain_close(&steps.chain);
        tiny_close(&steps.tiny);
    }
    return 0;
}
