// Sampling. The first token of a text costs a forward pass over the whole context; each following token costs one of a
// single token, because the keys and values of the tokens before it are kept. Once the text is longer than a block the
// context moves on by one for each token. Then all its positions, and so all keys and values, are others: every token
// costs a pass over the whole block.
#include "trainer/model/sample.h"
#include "common/err.h"
#include "common/math/portable_math.h"
#include "common/rng.h"
#include "common/sizes.h"
#include <stdlib.h>

enum {
    FEW = 256, // candidates among which top_p is looked for first
};

typedef struct {
    double weight; // its probability times the sum of the weights
    float logit;
    uint32_t id;
} Candidate;

static int likeliest_first(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

// Moves candidate i down to its place in a heap whose root is the least likely.
static void sift(Candidate *heap, size_t count, size_t i) {
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && likeliest_first(&heap[child], &heap[child + 1]) < 0) child++;
        if (likeliest_first(&heap[i], &heap[child]) >= 0) return;
        const Candidate moved = heap[i];
        heap[i] = heap[child], heap[child] = moved;
    }
}

// The `most` likeliest of the vocabulary, the likeliest first.
static void select_likeliest(const float *logits, size_t vocab, Candidate *candidates, size_t most) {
    for (size_t v = 0; v < most; v++) candidates[v] = (Candidate){.logit = logits[v], .id = (uint32_t)v};
    if (most < vocab)
        for (size_t i = most / 2; i--;) sift(candidates, most, i);
    for (size_t v = most; v < vocab; v++)
        if (logits[v] > candidates[0].logit)
            candidates[0] = (Candidate){.logit = logits[v], .id = (uint32_t)v}, sift(candidates, most, 0);
    qsort(candidates, most, sizeof *candidates, likeliest_first);
}

// The sum of the weights.
static double weigh(Candidate *candidates, size_t count, float highest, double temperature) {
    double total = 0;
    for (size_t i = 0; i < count; i++) {
        candidates[i].weight = portable_exp(((double)candidates[i].logit - (double)highest) / temperature);
        total += candidates[i].weight;
    }
    return total;
}

// The likeliest of `limit` candidates whose weights reach `enough`; *total is their sum. Sorts no more than it needs.
static size_t select_nucleus(const Sampler *sampler, const float *logits, size_t vocab, Candidate *candidates,
                             size_t limit, float highest, double enough, double *total) {
    for (size_t count = FEW;; count *= 8) {
        if (count > limit) count = limit;
        select_likeliest(logits, vocab, candidates, count);
        weigh(candidates, count, highest, sampler->temperature);
        size_t kept = 0;
        for (*total = 0; kept < count && *total < enough; kept++) *total += candidates[kept].weight;
        if (*total >= enough || count == limit) return kept;
    }
}

static uint32_t draw(const Sampler *sampler, const float *logits, size_t vocab, Candidate *candidates, uint64_t index) {
    size_t count = sampler->top_k && sampler->top_k < vocab ? sampler->top_k : vocab;
    if (sampler->temperature <= 0) count = 1;
    if (count < vocab)
        select_likeliest(logits, vocab, candidates, count);
    else
        for (size_t v = 0; v < vocab; v++) candidates[v] = (Candidate){.logit = logits[v], .id = (uint32_t)v};
    if (sampler->temperature <= 0) return candidates[0].id;
    float highest = -INFINITY;
    for (size_t i = 0; i < count; i++) highest = candidates[i].logit > highest ? candidates[i].logit : highest;
    double total = weigh(candidates, count, highest, sampler->temperature);
    if (sampler->top_p > 0 && sampler->top_p < 1)
        count = select_nucleus(sampler, logits, vocab, candidates, count, highest, sampler->top_p * total, &total);
    const double target = rng_uniform(sampler->seed, sampler->stream, index) * total;
    double at = 0;
    for (size_t i = 0; i < count; i++) {
        at += candidates[i].weight;
        if (at > target) return candidates[i].id;
    }
    return candidates[count - 1].id;
}

// Logits of the token after ids[length - 1]. kept: the cache holds the keys and values of all tokens but the last. -1
// (81) if one is not finite.
static int next_logits(Network *network, const void *ids, size_t length, bool kept, void *window, float *logits) {
    const PassLayout *pass = &network->plan->sample;
    const size_t block = (size_t)network->model->shape.block, used = length < block ? length : block;
    const size_t padded = round_up(used, SAMPLE_PADDED);
    const size_t T = kept ? used : padded < block ? padded : block, from = kept ? used - 1 : 0;
    const unsigned bytes = shape_id_bytes(&network->model->shape);
    memset(window, 0, (T + 1) * bytes); // attention is causal: the padding has no influence
    memcpy(window, (const char *)ids + (length - used) * bytes, used * bytes);
    network_tokens(network, pass, window, 1, (int)T);
    network_forward_last(network, pass, (int)T, (int)from);
    network_logits(network, pass, (int)(used - 1 - from), logits);
    bool finite = true;
    for (int v = 0; v < network->model->shape.vocab; v++) finite &= isfinite(logits[v]) != 0;
    if (!finite) return fail(EX_NONFINITE, "the logits are not finite: no token can be drawn from them");
    // an embedding of zeros, as of the id that ends a text in a model trained without such an id (trainer import)
    const int end = network->model->shape.end_of_text;
    if (end >= 0 && logits[end] == 0) logits[end] = -INFINITY;
    return 0;
}

void sample_warm_up(Network *network, float *logits) {
    const PassLayout *pass = &network->plan->sample;
    int block = network->model->shape.block;
    network_zero_tokens(network, pass, 1);
    for (int T = 0; T < block;) {
        T = T + SAMPLE_PADDED < block ? T + SAMPLE_PADDED : block;
        network_forward(network, pass, 1, T);
    }
    for (int row = 0; row < block && row <= 16; row = row ? 2 * row : 1) { // all alignments a row can have
        network_logits(network, pass, row, logits);
        if (pass->cache_stride) network_forward_last(network, pass, row + 1, row);
    }
}

ssize_t sample(Network *network, const Sampler *sampler, void *ids, size_t length, size_t count,
               bool (*emit)(void *context, uint32_t id), void *context) {
    const size_t vocab = (size_t)network->model->shape.vocab, block = (size_t)network->model->shape.block;
    const bool cache = network->plan->sample.cache_stride;
    float *logits = allocate_zeroed(vocab, sizeof *logits);
    Candidate *candidates = allocate_zeroed(vocab, sizeof *candidates);
    const unsigned bytes = shape_id_bytes(&network->model->shape);
    void *window = allocate_zeroed(block + 1, bytes);
    int result = 0;
    for (size_t i = 0; i < count; i++) {
        result = next_logits(network, ids, length, cache && i && length <= block, window, logits);
        if (result < 0) break;
        const uint32_t id = draw(sampler, logits, vocab, candidates, i);
        id_put(ids, length++, bytes, id);
        if (emit && !emit(context, id)) break;
        if (id == (uint32_t)network->model->shape.end_of_text) break;
    }
    free(logits);
    free(candidates);
    free(window);
    return result < 0 ? -1 : (ssize_t)length;
}
