// Sampling with kept keys and values against sampling that computes the whole context for each token.
#include "common/utf8.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/inference/sample_text.h"

enum { BLOCK = 48, TOKENS = 80 };

static TinyShape shape_of(Dtype type) { return *TINY_SHAPE(.block = BLOCK, .type = type, .threads = 1); }

TEST_ON_EACH_ISA(sampling_gives_the_same_text_with_its_cache_and_without) {
    const Sampler samplers[] = {{.temperature = 0},
                                {.temperature = 1, .top_k = 20, .seed = 3},
                                {.temperature = 0.8, .top_p = 0.7, .seed = 4, .stream = 2}};
    const TinyShape shape = shape_of(DTYPE_FP32);
    Tiny tiny;
    tiny_open(&tiny, &shape);
    tiny.model.shape.end_of_text = -1; // none ends the text
    const size_t stride = tiny.plan.sample.cache_stride;
    CHECK(stride && tiny.plan.sample.cache + 2 * stride <= tiny.plan.bytes);
    for (size_t i = 0; i < 3; i++)
        for (size_t length = 1; length <= 70; length += 23) { // from a single token to more than a block
            uint16_t ids[2][TOKENS];
            for (int cache = 0; cache < 2; cache++) {
                for (size_t k = 0; k < length; k++) ids[cache][k] = (uint16_t)(7 * k % 90);
                tiny.plan.sample.cache_stride = cache ? stride : 0;
                sample(&tiny.network, &samplers[i], ids[cache], length, TOKENS - length, NULL, NULL);
            }
            CHECK(!memcmp(ids[0], ids[1], sizeof ids[0]));
        }
    tiny_close(&tiny);
}

// The logits of the last of `T` tokens, computed at once or token by token.
static void last_logits(const TinyShape *shape, int T, bool by_token, float *logits) {
    Tiny tiny;
    tiny_open(&tiny, shape);
    const PassLayout *pass = &tiny.plan.sample;
    uint16_t ids[BLOCK + 1];
    for (int i = 0; i <= T; i++) ids[i] = (uint16_t)(i == 20 ? shape->end_of_text : 11 * i % 90);
    for (int t = by_token ? 0 : T - 1; t < T; t++) {
        network_tokens(&tiny.network, pass, ids, 1, t + 1);
        network_forward_last(&tiny.network, pass, t + 1, by_token ? t : 0);
    }
    network_logits(&tiny.network, pass, by_token ? 0 : T - 1, logits);
    tiny_close(&tiny);
}

static void compare_logits(Dtype type, int end_of_text, double tolerance) {
    TinyShape shape = shape_of(type);
    shape.end_of_text = end_of_text;
    float once[97], by_token[97];
    last_logits(&shape, 40, false, once), last_logits(&shape, 40, true, by_token);
    CHECK_CLOSE(by_token, once, 97, 0, tolerance);
}

TEST_ON_EACH_ISA(logits_of_a_token_after_kept_ones_are_those_of_the_whole_text) {
    compare_logits(DTYPE_FP32, 0, 1e-6);
    compare_logits(DTYPE_FP32, 96, 1e-6); // with document_mask
    compare_logits(DTYPE_BF16, 0, 4e-3);
    compare_logits(DTYPE_FP16, 0, 5e-4);
}

static const float *sorted_logits;

static int by_logit(const void *a, const void *b) {
    const float x = sorted_logits[*(const int *)a], y = sorted_logits[*(const int *)b];
    return x < y ? 1 : x > y ? -1 : *(const int *)a - *(const int *)b;
}

// The token that a sampler without top_k draws: all are sorted.
static int drawn_id(const float *logits, int *order, int vocab, const Sampler *sampler) {
    long double total = 0, at = 0, enough, target;
    for (int i = 0; i < vocab; i++) order[i] = i, total += expl((long double)logits[i] / sampler->temperature);
    enough = sampler->top_p > 0 ? sampler->top_p * total : total;
    target = rng_uniform(sampler->seed, sampler->stream, 0);
    sorted_logits = logits;
    if (sampler->top_p > 0) qsort(order, (size_t)vocab, sizeof *order, by_logit);
    int kept = 0;
    for (total = 0; kept < vocab && total < enough; kept++)
        total += expl((long double)logits[order[kept]] / sampler->temperature);
    for (int i = 0; i < kept; i++)
        if ((at += expl((long double)logits[order[i]] / sampler->temperature)) > target * total) return order[i];
    return order[kept - 1];
}

TEST(a_token_is_drawn_from_the_whole_vocabulary_or_its_likeliest_part) {
    TinyShape shape = shape_of(DTYPE_FP32);
    shape.layers = 1, shape.vocab = 50257;
    Tiny tiny;
    tiny_open(&tiny, &shape);
    float *logits = malloc((size_t)shape.vocab * sizeof *logits);
    int *order = malloc((size_t)shape.vocab * sizeof *order), differ = 0;
    CHECK(logits && order);
    for (int i = 0; i < 24; i++) {
        uint16_t ids[3] = {50, (uint16_t)(7 * i)};
        const Sampler sampler = {
            .temperature = i % 2 ? 0.02 : 1, .top_p = i % 3 * 0.45, .seed = 9, .stream = (uint64_t)i};
        sample(&tiny.network, &sampler, ids, 2, 1, NULL, NULL);
        network_logits(&tiny.network, &tiny.plan.sample, 1, logits);
        differ += ids[2] != drawn_id(logits, order, shape.vocab, &sampler);
    }
    CHECK_EQUAL(differ, 0);
    free(logits), free(order);
    tiny_close(&tiny);
}

typedef struct {
    Buffer all;
    size_t pieces, cut; // cut: pieces that end within a character
    size_t most;        // pieces that are wanted
} Sampled;

static bool add_sampled(void *context, Bytes text) {
    Sampled *sampled = context;
    uint32_t point = 0;
    for (const uint8_t *at = text.data, *end = at + text.size; at < end;) at += utf8_decode(at, end, &point);
    sampled->pieces++, sampled->cut += point == UTF8_CUT;
    buffer_add(&sampled->all, text.data, text.size);
    return sampled->pieces < sampled->most;
}

static Sampled sampled_pieces(Tiny *tiny, const char *start, const char *stop, size_t most) {
    Sampled sampled = {.most = most};
    const Sampler sampler = {.temperature = 5, .seed = 5};
    const Vocab *vocab = vocab_open();
    CHECK(vocab &&
          sample_text(&tiny->network, vocab, &sampler, bytes_of_text(start), 120, stop, add_sampled, &sampled) == 0);
    vocab_close(vocab);
    return sampled;
}

static Sampled sampled_text(Tiny *tiny, const char *start, const char *stop) {
    return sampled_pieces(tiny, start, stop, SIZE_MAX);
}

TEST(sampled_text_comes_in_whole_characters_and_ends_before_the_stop_string) {
    TinyShape shape = shape_of(DTYPE_FP32);
    shape.layers = 1, shape.vocab = 50257;
    Tiny tiny;
    tiny_open(&tiny, &shape);
    tiny.model.shape.end_of_text = -1;
    Sampled whole = sampled_text(&tiny, "a", "");
    CHECK(whole.pieces > 80 && whole.cut == 0 && whole.all.size > 400);
    char stop[12] = {0};
    memcpy(stop, whole.all.data + whole.all.size / 2, sizeof stop - 1);
    const uint8_t *found = memmem(whole.all.data, whole.all.size, stop, strlen(stop));
    Sampled stopped = sampled_text(&tiny, "a", stop);
    CHECK_EQUAL(stopped.all.size, found - whole.all.data);
    CHECK(!memcmp(stopped.all.data, whole.all.data, stopped.all.size));
    Sampled cut = sampled_pieces(&tiny, "a", "", 8);
    CHECK(cut.pieces == 8 && !memcmp(cut.all.data, whole.all.data, cut.all.size));
    buffer_close(&whole.all), buffer_close(&stopped.all), buffer_close(&cut.all);
    tiny_close(&tiny);
}

TEST(sampled_bytes_that_are_not_utf8_become_replacement_characters_but_not_those_of_the_start) {
    static const char *const starts[] = {"a", "a\xc3"}; // the second one ends within a character
    TinyShape shape = shape_of(DTYPE_FP32);
    shape.layers = 1, shape.vocab = 50257;
    Tiny tiny;
    tiny_open(&tiny, &shape);
    tiny.model.shape.end_of_text = -1;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        Sampled sampled = sampled_text(&tiny, starts[i], "");
        CHECK_EQUAL(utf8_valid((Bytes){sampled.all.data, sampled.all.size}), sampled.all.size);
        CHECK(memmem(sampled.all.data, sampled.all.size, UTF8_REPLACED, 3));
        buffer_close(&sampled.all);
    }
    Sampled raw = sampled_text(&tiny, "a\xffz", "");
    CHECK(!memcmp(raw.all.data, "a\xffz", 3));
    buffer_close(&raw.all);
    tiny_close(&tiny);
}
