// Items: the losses of texts that are computed together against those of each text alone, in the memory of a pass.
#include "common/err.h"
#include "common/machine/stop.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "tokenizer/merge/vocab.h"
#include "trainer/items/grade.h"
#include <math.h>

enum { BLOCK = 64, TEXTS = 4, LETTERS = 26 };

// The counter of forward passes, which each begin with the embedding.
static struct {
    const Backend *backend;
    int count, stop_at;
    uint64_t allocations[2]; // before the first pass and the last one
} passes;

static void count_pass(Res *out, const void *rows, const int32_t *positions, const Par *wte, const Par *wpe, int B,
                       int T, int C, int vocab) {
    passes.allocations[passes.count++ > 0] = test_allocations();
    if (passes.count == passes.stop_at) stop_requested = 1;
    passes.backend->embed_forward(out, rows, positions, wte, wpe, B, T, C, vocab);
}

static const Vocab *letters(void) {
    static const char text[] = "abcdefghijklmnopqrstuvwxyz";
    const Vocab *vocab = vocab_open_characters_text((Bytes){(const uint8_t *)text, LETTERS}, "letters");
    CHECK(vocab);
    return vocab;
}

// Letter i of a text; each seed has other ones.
static char letter(int seed, int i) { return (char)('a' + (seed * 7 + i * i * 5 + i * 3) % LETTERS); }

typedef struct {
    int context, endings[TEXTS]; // letters
} Made;

// The letters of text `i`: endings differ in their first letters.
static int write_text(char *to, const Made *made, int i) {
    int n = 0;
    for (; n < made->context; n++) to[n] = letter(made->context, n);
    for (int k = 0; k < made->endings[i]; k++) to[n++] = k ? letter(i + 40, k) : (char)('b' + 3 * i);
    to[n] = 0;
    return n;
}

static Buffer write_items(const Made *made, size_t count) {
    Buffer text = {0};
    for (size_t item = 0; item < count; item++) {
        buffer_print(
            &text, "{\"task\":\"t\",\"id\":%zu,\"kind\":\"choice\",\"span\":\"ending\",\"label\":0,\"texts\":[", item);
        for (int i = 0; i < TEXTS; i++) {
            char whole[3 * BLOCK];
            write_text(whole, &made[item], i);
            buffer_print(&text, "%s[\"%.*s\",\"%s\"]", i ? "," : "", made[item].context, whole,
                         whole + made[item].context);
        }
        buffer_print(&text, "]}\n");
    }
    return text;
}

static void add_line(void *self, Bytes line) { buffer_add(self, line.data, line.size); }

// Grades the items; `out` gets the lines.
static int grade_made(Tiny *tiny, const Vocab *vocab, const Made *made, size_t count, Grade *grade, Buffer *out) {
    Buffer text = write_items(made, count);
    ItemsFile file = {.path = "made", .map = {text.data, text.size}};
    Backend counting = *tiny->backend;
    const Grading grading = {
        .network = &tiny->network, .vocab = vocab, .model = "tiny", .write = add_line, .self = out};
    passes.backend = tiny->backend, passes.count = 0;
    counting.embed_forward = count_pass;
    tiny->network.ops = &counting;
    const int status = grade_items(grade, &grading, &file);
    tiny->network.ops = tiny->backend;
    buffer_close(&text);
    return status;
}

// The loss of an ending whose text is computed alone.
static double loss_alone(Tiny *tiny, const Made *made, int i) {
    const PassLayout *pass = &tiny->plan.eval;
    char text[3 * BLOCK];
    uint16_t ids[3 * BLOCK] = {LETTERS};
    float losses[BLOCK];
    const int count = 1 + write_text(text, made, i), cut = count > BLOCK ? count - BLOCK : 0, T = count - cut - 1;
    for (int k = 1; k < count; k++) ids[k] = (uint16_t)(text[k - 1] - 'a');
    network_tokens(&tiny->network, pass, ids + cut, 1, T);
    network_forward(&tiny->network, pass, 1, T);
    network_losses(&tiny->network, pass, 1, T, 1, false, false);
    tiny->backend->download(losses, network_at(&tiny->network, pass->losses), (size_t)T * sizeof *losses);
    double total = 0;
    for (int t = T - made->endings[i]; t < T; t++) total += (double)losses[t];
    return total;
}

static const Made mixed[] = {
    {50, {4, 9, 2, 7}},     // with all endings longer than a sequence
    {60, {3, 3, 3, 3}},     // all texts as long as a sequence
    {90, {5, 5, 5, 5}},     // cut by the same number
    {70, {5, 6, 2, 9}},     // by different ones: nothing is in common
    {20, {40, 3, 40, 30}},  // too little in common; only the second one costs less in the sequence of the first
    {0, {3, 4, 5, 6}},      // only the beginning
    {7, {1, 1, 1, 1}},      // the texts as they are read are the same
    {30, {30, 30, 30, 30}}, // three of them are as long as two sequences
    {12, {5, 8, 1, 1}},
};
enum { MIXED = sizeof mixed / sizeof *mixed };

static void compare_with_alone(const char *options, bool document_mask) {
    const Vocab *vocab = letters();
    Tiny tiny;
    Grade grade;
    Buffer out = {0};
    tiny_open(&tiny, TINY_SHAPE(.block = BLOCK, .heads = 4, .vocab = LETTERS + 1, .chunk_rows = 20, .options = options,
                                .end_of_text = document_mask ? LETTERS : 0));
    passes.stop_at = 0;
    CHECK(grade_made(&tiny, vocab, mixed, MIXED, &grade, &out) == 0);
    buffer_add(&out, "", 1);
    const char *at = (const char *)out.data;
    for (int item = 0; item < MIXED; item++) {
        double got[TEXTS], alone[TEXTS];
        at = strstr(at, "\"losses\":[") + strlen("\"losses\":[");
        for (int i = 0; i < TEXTS; i++) {
            char *end;
            got[i] = strtod(at, &end), at = end + 1;
            alone[i] = loss_alone(&tiny, &mixed[item], i);
            if (fabs(got[i] - alone[i]) > 1e-5 * alone[i])
                printf("%s: item %d text %d: %.9g, alone %.9g\n", options ? options : "-", item, i, got[i], alone[i]);
            CHECK(fabs(got[i] - alone[i]) <= 1e-5 * alone[i]);
        }
    }
    buffer_close(&out), grade_free(&grade), tiny_close(&tiny), vocab_close(vocab);
}

TEST_ON_EACH_ISA(texts_that_share_their_beginning_have_the_losses_of_each_alone) {
    static const char *const options[] = {NULL, "position=rope,n_kv_head=2", "qk_norm=True,norm=rmsnorm,mlp=swiglu",
                                          "position=rope,qk_norm=True,logit_softcap=3"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) compare_with_alone(options[i], i % 2);
}

TEST(what_texts_begin_with_is_computed_once_in_passes_that_allocate_nothing_and_stop) {
    const Vocab *vocab = letters();
    Tiny tiny;
    Grade grade;
    Buffer out = {0};
    tiny_open(&tiny, TINY_SHAPE(.block = BLOCK, .vocab = LETTERS + 1, .chunk_rows = 20));
    passes.stop_at = 0;
    CHECK(grade_made(&tiny, vocab, mixed, MIXED, &grade, &out) == 0); // products of new shapes are prepared
    grade_free(&grade);
    CHECK(grade_made(&tiny, vocab, mixed, MIXED, &grade, &out) == 0);
    CHECK_EQUAL(grade.tokens, 222 + 252 + 252 + 252 + 193 + 18 + 32 + 240 + 63);
    CHECK_EQUAL(grade.computed, 69 + 69 + 75 + 252 + (62 + 60 + 50) + 18 + 8 + (118 + 60) + 24);
    CHECK_EQUAL(grade.apart, 4);
    CHECK_EQUAL(grade.tasks[0].uneven, 1);
    CHECK(passes.count > 4);
    CHECK_EQUAL(passes.allocations[0], passes.allocations[1]);
    grade_free(&grade), buffer_close(&out);

    passes.stop_at = 2;
    CHECK(grade_made(&tiny, vocab, mixed, MIXED, &grade, &out) < 0);
    stop_requested = 0;
    CHECK_EQUAL(err_code(), EX_AGAIN);
    CHECK_EQUAL(passes.count, 2);
    buffer_add(&out, "", 1);
    CHECK(!strstr((const char *)out.data, "losses"));
    err_clear();
    buffer_close(&out), grade_free(&grade), tiny_close(&tiny), vocab_close(vocab);
}
