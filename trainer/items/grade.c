// The texts of an item are one sequence: the tokens with which all of them begin, once, and then the rest of each text,
// which attention hides from the other texts.
// Sequences are sorted by their length inside a list of items, and a batch has as many as the evaluation pass holds, so
// that short ones cost as much as the same tokens in long rows. Logits are computed of the scored rows alone.
//
// Processor time of one thread of 124M in batches of 4 sequences, without the start (1.7 s), in turns on a busy machine
// with AVX-512, 2026-11-29: 6 items of ten shots and four answers, 24 texts of 350 tokens, 2.9 to 5.0 s, and if each
// text is computed whole 11.7 to 15.6 s; 60 items of four answers of 17 tokens 3.6 to 6.9 s, and 7.5 to 11.3 s.
#include "trainer/items/grade.h"
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "common/sizes.h"
#include "trainer/items/grade_internal.h"
#include "trainer/model/sample.h"
#include "trainer/ranks/ranks.h"
#include <math.h>
#include <stdlib.h>

enum { FINE = 8, COARSE = 64, FINE_TO = 128 }; // lengths are rounded up to multiples: few shapes, and little padding

// A sequence of a batch: neighbouring texts of an item. The ids with which all of them begin are there once, and after
// them the others of each text, but for its last one, which nothing reads.
typedef struct {
    ItemText *texts;
    int count, shared, length; // of texts; of ids
} Sequence;

typedef struct {
    const Grading *grading;
    Network *network;
    const PassLayout *pass;
    Collective *ranks;
    ItemReader reader;
    ItemList list;
    Grade *grade;
    Sequence *order;             // by length
    uint8_t *rows;               // (B,T+1) ids of a batch
    int32_t *starts, *positions; // (B,T) of a batch
    unsigned bytes;              // of an id
    // Of up to `room` scored rows of a batch:
    int room, count;
    int *places;            // in the batch, b*T + t
    ItemText **owners;      // their texts
    uint8_t *targets;       // (count+1) ids, from the second on
    uint8_t *activations;   // (count,C)
    float *losses, *logits; // (count); (vocab) of one row
} Pass;

// ---- the texts of a list

static bool is_likeliest(const float *logits, int vocab, uint32_t target) {
    bool likeliest = true;
    for (int v = 0; v < vocab; v++) likeliest &= !(logits[v] > logits[target]);
    for (uint32_t v = 0; v < target; v++) likeliest &= logits[v] != logits[target];
    return likeliest && !isnan(logits[target]);
}

// Computes and adds up the losses of the scored rows so far.
static void score_rows(Pass *pass) {
    const int vocab = pass->network->model->shape.vocab, padded = pass->network->model->shape.padded_vocab;
    if (!pass->count) return;
    network_score(pass->network, pass->pass, pass->places, pass->targets, pass->count, pass->activations, pass->losses);
    for (int i = 0; i < pass->count; i++) {
        TextScore *score = &pass->owners[i]->score;
        score->loss += (double)pass->losses[i];
        if (!(score->greedy > 0)) continue;
        network_read(pass->network, pass->pass->logits, pass->network->ops->act_type, (size_t)i * (size_t)padded,
                     (size_t)vocab, pass->logits);
        score->greedy = is_likeliest(pass->logits, vocab, id_at(pass->targets, (size_t)i + 1, pass->bytes));
    }
    pass->count = 0;
}

// The place of id t of a text whose own ids begin at `begin` of sequence b.
static int place_of(const Sequence *sequence, int begin, int t) {
    return t < sequence->shared ? t : begin + t - sequence->shared;
}

static void lay_sequence(Pass *pass, const Sequence *sequence, int b, int T) {
    int32_t *starts = pass->starts + (size_t)b * (size_t)T, *positions = pass->positions + (size_t)b * (size_t)T;
    const size_t row = (size_t)b * (size_t)(T + 1);
    for (int t = 0; t < T; t++) starts[t] = t, positions[t] = 0; // the padding sees itself, and nothing sees it
    for (int i = 0, begin = sequence->shared; i < sequence->count; i++) {
        const ItemText *text = &sequence->texts[i];
        for (int t = i ? sequence->shared : 0; t < text->count - 1; t++) {
            const int place = place_of(sequence, begin, t);
            const uint32_t id = id_at(pass->list.ids.data, text->first + (size_t)t, pass->bytes);
            id_put(pass->rows, row + (size_t)place, pass->bytes, id);
            starts[place] = t < sequence->shared ? 0 : begin, positions[place] = t;
        }
        begin += text->count - 1 - sequence->shared;
    }
}

static void score_sequence(Pass *pass, const Sequence *sequence, int b, int T) {
    for (int i = 0, begin = sequence->shared; i < sequence->count; i++) {
        ItemText *text = &sequence->texts[i];
        text->score = (TextScore){.greedy = 1};
        for (int t = text->count - text->scored; t < text->count; t++) {
            pass->places[pass->count] = b * T + place_of(sequence, begin, t - 1), pass->owners[pass->count] = text;
            id_put(pass->targets, (size_t)++pass->count, pass->bytes,
                   id_at(pass->list.ids.data, text->first + (size_t)t, pass->bytes));
            if (pass->count == pass->room) score_rows(pass);
        }
        begin += text->count - 1 - sequence->shared;
    }
}

static void score_batch(Pass *pass, const Sequence *sequences, int B, int T) {
    memset(pass->rows, 0, (size_t)B * (size_t)(T + 1) * pass->bytes);
    for (int b = 0; b < B; b++) lay_sequence(pass, &sequences[b], b, T);
    network_tokens(pass->network, pass->pass, pass->rows, B, T);
    network_forward_branches(pass->network, pass->pass, pass->starts, pass->positions, B, T);
    for (int b = 0; b < B; b++) score_sequence(pass, &sequences[b], b, T);
    score_rows(pass);
}

static int longest_first(const void *a, const void *b) {
    const Sequence *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? 1 : -1;
    return x->texts < y->texts ? -1 : x->texts > y->texts; // in the order of the file
}

// The ids that two texts begin with, at most `most` of them.
static int count_shared(const Pass *pass, const ItemText *a, const ItemText *b, int most) {
    const uint8_t *ids = pass->list.ids.data;
    int same = 0;
    while (same < most &&
           id_at(ids, a->first + (size_t)same, pass->bytes) == id_at(ids, b->first + (size_t)same, pass->bytes))
        same++;
    return same;
}

// The sequence of the first of `count` texts: as many as `most` tokens hold, while each adds at most half of the tokens
// that it has alone. Texts that were cut by different numbers of ids do not begin with the same ones.
static Sequence sequence_of(const Pass *pass, ItemText *texts, int count, int most) {
    Sequence all = {texts, 1, texts->count - 1, texts->count - 1};
    for (int ids = all.length; all.count < count; all.count++) {
        const int more = texts[all.count].count - 1, least = more < all.shared ? more : all.shared;
        const int shared = count_shared(pass, texts, &texts[all.count], least);
        const int length = (ids += more) - all.count * shared;
        if (length > most || length > all.length + more / 2) break;
        all.shared = shared, all.length = length;
    }
    return all;
}

// Sequences of all texts to pass->order. Returns their number.
static size_t order_texts(Pass *pass, size_t most) {
    size_t count = 0;
    for (size_t i = 0; i < pass->list.item_count; i++) {
        const GradedItem *item = &pass->list.items[i];
        for (int first = 0; first < item->texts; count++) {
            const Sequence next =
                sequence_of(pass, &pass->list.texts[item->first + (size_t)first], item->texts - first, (int)most);
            pass->order[count] = next;
            pass->grade->computed += (uint64_t)next.length;
            pass->grade->apart += first == 0 && next.count < item->texts;
            first += next.count;
        }
        for (int k = 0; k < item->texts; k++)
            pass->grade->tokens += (uint64_t)pass->list.texts[item->first + (size_t)k].count - 1;
    }
    qsort(pass->order, count, sizeof *pass->order, longest_first);
    return count;
}

static int score_texts(Pass *pass) {
    const size_t rows = (size_t)pass->pass->rows, block = (size_t)pass->pass->block;
    const size_t longest = block * size_smaller(rows, 2); // network_forward_branches
    unsigned turn = 0;
    int status = 0;
    pass->order = allocate_zeroed(pass->list.text_count, sizeof *pass->order);
    const size_t count = order_texts(pass, longest);
    for (size_t at = 0; at < count && status == 0; turn = (turn + 1) % pass->ranks->world) {
        const size_t length = (size_t)pass->order[at].length;
        const size_t limit = length > block ? longest : block;
        const size_t T = size_smaller(round_up(length, length < FINE_TO ? FINE : COARSE), limit);
        const size_t most = size_smaller(rows * block / T, rows * (block + 1) / (T + 1));
        const size_t B = size_smaller(most, count - at);
        for (size_t i = at; i < at + B; i++)
            for (int k = 0; k < pass->order[i].count; k++) pass->order[i].texts[k].owner = turn;
        if (turn == pass->ranks->rank) {
            status = stop_check("items were graded");
            if (status == 0) score_batch(pass, &pass->order[at], (int)B, (int)T);
        }
        at += B;
    }
    free(pass->order);
    return status;
}

// ---- answers

typedef struct {
    const Pass *pass;
    TurnIds turns;
    size_t most; // bytes
    Buffer text;
    uint32_t tokens;
} Answering;

static bool add_token(void *self, uint32_t id) {
    Answering *answering = self;
    if (vocab_is_special(answering->pass->reader.vocab, id)) return false;
    answering->tokens++;
    const Bytes token = vocab_bytes(answering->pass->reader.vocab, id);
    buffer_add(&answering->text, token.data, token.size);
    return bytes_trimmed((Bytes){answering->text.data, answering->text.size}).size <= answering->most &&
           !stop_requested;
}

// Generates the likeliest answer, until it has ended or is longer than the right one.
static int answer_item(Pass *pass, GradedItem *item) {
    const ItemText *text = &pass->list.texts[item->first];
    const size_t prompt = (size_t)(text->count - text->scored), room = (size_t)pass->pass->block - prompt;
    const Sampler sampler = {.temperature = 0};
    Answering answering = {.pass = pass, .most = item->answer.size};
    uint8_t *ids = allocate_zeroed(prompt + room + 1, pass->bytes);
    memcpy(ids, pass->list.ids.data + text->first * pass->bytes, prompt * pass->bytes);
    const ssize_t length = sample(pass->network, &sampler, ids, prompt, room, add_token, &answering);
    const Bytes said = bytes_trimmed((Bytes){answering.text.data, answering.text.size});
    item->said = (Said){.tokens = answering.tokens,
                        .right = said.size == item->answer.size && !memcmp(said.data, item->answer.data, said.size)};
    if (said.size) memcpy(item->said.text, said.data, size_smaller(said.size, SAID_BYTES - 1));
    buffer_close(&answering.text), free(ids);
    if (length < 0 && err_code() != EX_NONFINITE) return -1;
    err_clear(); // the loss of the answer is not finite, either
    return stop_check("items were graded");
}

static int answer_items(Pass *pass) {
    unsigned turn = 0;
    int status = 0;
    for (size_t i = 0; i < pass->list.item_count && status == 0; i++) {
        GradedItem *item = &pass->list.items[i];
        if (item->kind != ITEM_ANSWERS) continue;
        pass->list.texts[item->first].owner = turn;
        if (turn == pass->ranks->rank) status = stop_check("items were graded");
        if (turn == pass->ranks->rank && status == 0) status = answer_item(pass, item);
        turn = (turn + 1) % pass->ranks->world;
    }
    return status;
}

// ---- ranks

// What each rank has computed of the texts goes to all.
static int share_scores(Pass *pass) {
    const size_t count = pass->list.text_count, world = pass->ranks->world;
    if (world == 1) return 0;
    TextScore *all = allocate_zeroed(world * count, sizeof *all);
    for (size_t i = 0; i < count; i++) all[pass->ranks->rank * count + i] = pass->list.texts[i].score;
    const int status = collective_all_gather(pass->ranks, all, world * count * sizeof *all, count * sizeof *all);
    for (size_t i = 0; i < count && status == 0; i++)
        pass->list.texts[i].score = all[pass->list.texts[i].owner * count + i];
    free(all);
    return status;
}

static int share_said(Pass *pass) {
    const size_t world = pass->ranks->world;
    size_t count = 0, at = 0;
    for (size_t i = 0; i < pass->list.item_count; i++) count += pass->list.items[i].kind == ITEM_ANSWERS;
    if (world == 1 || !count) return 0;
    Said *all = allocate_zeroed(world * count, sizeof *all);
    for (size_t i = 0; i < pass->list.item_count; i++)
        if (pass->list.items[i].kind == ITEM_ANSWERS) all[pass->ranks->rank * count + at++] = pass->list.items[i].said;
    const int status = collective_all_gather(pass->ranks, all, world * count * sizeof *all, count * sizeof *all);
    at = 0;
    for (size_t i = 0; i < pass->list.item_count && status == 0; i++) {
        GradedItem *item = &pass->list.items[i];
        if (item->kind == ITEM_ANSWERS) item->said = all[pass->list.texts[item->first].owner * count + at++];
    }
    free(all);
    return status;
}

// ---- a file

static void open_pass(Pass *pass, const Grading *grading, Grade *grade) {
    Network *network = grading->network;
    const PassLayout *layout = &network->plan->eval;
    const ModelShape *shape = &network->model->shape;
    const size_t rows = (size_t)layout->rows * (size_t)layout->block;
    *pass =
        (Pass){.grading = grading, .grade = grade, .network = network, .pass = layout, .ranks = network->collective};
    pass->reader = (ItemReader){grading->vocab, encoder_open(grading->vocab, INVALID_REPLACE), layout->block};
    pass->bytes = vocab_id_bytes(grading->vocab);
    pass->room = (int)size_smaller(rows, (size_t)network->plan->chunk_rows);
    const size_t room = (size_t)pass->room;
    pass->rows = allocate_zeroed(rows + (size_t)layout->rows, pass->bytes);
    pass->starts = allocate_zeroed(rows, sizeof *pass->starts);
    pass->positions = allocate_zeroed(rows, sizeof *pass->positions);
    pass->places = allocate_zeroed(room, sizeof *pass->places),
    pass->owners = allocate_zeroed(room, sizeof(ItemText *));
    pass->targets = allocate_zeroed(room + 1, pass->bytes);
    pass->activations = allocate_zeroed(room * (size_t)shape->channels, network->ops->act_bytes);
    pass->losses = allocate_zeroed(room, sizeof *pass->losses);
    pass->logits = allocate_zeroed((size_t)shape->vocab, sizeof *pass->logits);
}

static void close_pass(Pass *pass) {
    encoder_close(pass->reader.encoder);
    items_free(&pass->list);
    free(pass->rows), free(pass->starts), free(pass->positions), free(pass->places), free(pass->owners),
        free(pass->targets);
    free(pass->activations), free(pass->losses), free(pass->logits);
}

static int grade_list(Pass *pass) {
    if (ranks_agree(pass->ranks, score_texts(pass)) < 0 || share_scores(pass) < 0) return -1;
    if (ranks_agree(pass->ranks, answer_items(pass)) < 0) return -1;
    return share_said(pass);
}

int grade_check(const Grading *grading, ItemsFile *file) {
    Pass pass = {.grading = grading};
    ItemList list = {0};
    uint64_t items = 0;
    int status;
    pass.reader =
        (ItemReader){grading->vocab, encoder_open(grading->vocab, INVALID_REPLACE), grading->network->plan->eval.block};
    items_rewind(file);
    while ((status = items_read(file, &pass.reader, &list)) > 0) items += list.item_count, items_free(&list);
    items_free(&list);
    encoder_close(pass.reader.encoder);
    items_rewind(file);
    if (status == 0 && !items) return fail(EX_NOINPUT, "'%s' holds no item", file->path);
    return status;
}

int grade_items(Grade *grade, const Grading *grading, ItemsFile *file) {
    Progress progress = {0};
    Pass pass;
    int status;
    *grade = (Grade){0};
    open_pass(&pass, grading, grade);
    items_rewind(file);
    progress_start(&progress, "grading", "B", file->rest.size);
    grade_write_head(grading, file);
    while ((status = items_read(file, &pass.reader, &pass.list)) > 0) {
        status = grade_list(&pass);
        for (size_t i = 0; i < pass.list.item_count && status == 0; i++)
            grade_add(grade, grading, &pass.list.items[i], &pass.list.texts[pass.list.items[i].first]);
        items_free(&pass.list);
        if (status < 0) break;
        progress_update(&progress, file->map.size - file->rest.size);
    }
    progress_finish(&progress);
    close_pass(&pass);
    if (status == 0 && !grade->items) return fail(EX_NOINPUT, "'%s' holds no item", file->path);
    return status;
}
