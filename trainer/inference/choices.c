// Evaluates an item at a time: its endings are the rows of a batch, each after the context. Padding has no influence,
// because attention is causal.
#include "trainer/inference/choices.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/json_read.h"
#include "common/log.h"
#include "common/utf8.h"
#include "tokenizer/tokenizer.h"
#include <stdlib.h>

enum { LENGTH_MULTIPLE = 64, FILE_MAX_BYTES = 1 << 30 }; // few lengths, so that cached kernels are reused

typedef struct {
    Network *network;
    Encoder *encoder;
    const Vocab *vocab;
    unsigned id_bytes; // of an id
    ChoicesItem item;
    Buffer context, endings[ENDINGS_MAX]; // ids
    uint8_t *rows;                        // (rows, T+1) of a batch
    float *losses;                        // (rows, T)
} Choices;

// The ids of three texts in a row.
static int encode(Choices *choices, const Bytes parts[3], Buffer *ids) {
    Buffer text = {0};
    for (int i = 0; i < 3; i++) buffer_add(&text, parts[i].data, parts[i].size);
    ids->size = 0;
    buffer_reserve(ids, encoder_ids_max(text.size) * choices->id_bytes);
    const ssize_t count = encoder_encode(choices->encoder, (Bytes){text.data, text.size}, ids->data);
    if (count >= 0) ids->size = (size_t)count * choices->id_bytes;
    buffer_close(&text);
    return count < 0 ? -1 : 0;
}

static Bytes text_of(const json_t *string) {
    return (Bytes){(const uint8_t *)json_string_value(string), json_string_length(string)};
}

// As lm-evaluation-harness: the ids of an ending are the ids of the whole text after as many as its context has, whose
// white space at the end belongs to the ending. A blank joins the two if neither has one.
static int read_ending(Choices *choices, Bytes context, Bytes ending, int i) {
    const int block = choices->network->plan->eval.block;
    const bool has_blank =
        (context.size && context.data[context.size - 1] == ' ') || (ending.size && *ending.data == ' ');
    const size_t before = text_trimmed(context).size ? choices->context.size : 0;
    Buffer *ids = &choices->endings[i];
    if (encode(choices, (Bytes[]){context, bytes_of_text(has_blank ? "" : " "), ending}, ids) < 0) return -1;
    if (ids->size <= before) return fail(EX_DATA, "ending %d has no token of its own after its context", i);
    memmove(ids->data, ids->data + before, ids->size -= before);
    choices->item.tokens[i] = (int)(ids->size / choices->id_bytes);
    if (choices->item.tokens[i] <= block) return 0;
    return fail(EX_DATA, "ending %d has %d tokens, and a sequence of the evaluation %d", i, choices->item.tokens[i],
                block);
}

static int read_endings(Choices *choices, Bytes context, const json_t *endings) {
    ChoicesItem *item = &choices->item;
    item->endings = (int)json_array_size(endings);
    if (json_array_size(endings) < 2 || json_array_size(endings) > ENDINGS_MAX)
        return fail(EX_DATA, "'endings' is not a list of 2 to %d texts", ENDINGS_MAX);
    for (int i = 0; i < item->endings; i++) {
        const json_t *ending = json_array_get(endings, (size_t)i);
        if (!json_is_string(ending)) return fail(EX_DATA, "ending %d is not a text", i);
        if (read_ending(choices, context, text_of(ending), i) < 0) return -1;
    }
    return 0;
}

static int read_item(Choices *choices, const json_t *object) {
    const json_t *context = json_object_get(object, "ctx"), *label = json_object_get(object, "label");
    if (!json_is_string(context)) return fail(EX_DATA, "no text 'ctx'");
    if (encode(choices, (Bytes[3]){text_trimmed(text_of(context))}, &choices->context) < 0) return -1;
    uint32_t begin = 0; // an empty context is the start of a document
    id_put(&begin, 0, choices->id_bytes, vocab_end_of_text(choices->vocab));
    if (!choices->context.size) buffer_add(&choices->context, &begin, choices->id_bytes);
    if (read_endings(choices, text_of(context), json_object_get(object, "endings")) < 0) return -1;
    json_int_t number = json_is_integer(label) ? json_integer_value(label) : -1;
    if (json_is_string(label)) { // in some copies of HellaSwag
        char *end;
        number = strtol(json_string_value(label), &end, 10);
        if (*end || end == json_string_value(label)) number = -1;
    }
    if (number < 0 || number >= choices->item.endings)
        return fail(EX_DATA, "'label' is not the number of an ending, 0 to %d", choices->item.endings - 1);
    choices->item.label = (int)number;
    return 0;
}

// The losses of endings first .. first+B-1.
static void evaluate_endings(Choices *choices, int first, int B) {
    const PassLayout *pass = &choices->network->plan->eval;
    ChoicesItem *item = &choices->item;
    int used[ENDINGS_MAX], longest = 0; // ids of each row
    for (int b = 0; b < B; b++) {
        used[b] = (int)(choices->context.size / choices->id_bytes) + item->tokens[first + b];
        used[b] = used[b] < pass->block + 1 ? used[b] : pass->block + 1;
        longest = longest > used[b] ? longest : used[b];
    }
    int T = (longest - 1 + LENGTH_MULTIPLE - 1) / LENGTH_MULTIPLE * LENGTH_MULTIPLE;
    T = T < pass->block ? T : pass->block;
    const size_t row_bytes = (size_t)(T + 1) * choices->id_bytes;
    memset(choices->rows, 0, (size_t)B * row_bytes);
    for (int b = 0; b < B; b++) {
        uint8_t *row = choices->rows + (size_t)b * row_bytes;
        const size_t ending = choices->endings[first + b].size, before = (size_t)used[b] * choices->id_bytes - ending;
        memcpy(row, choices->context.data + choices->context.size - before, before);
        memcpy(row + before, choices->endings[first + b].data, ending);
    }
    network_tokens(choices->network, pass, choices->rows, B, T);
    network_forward(choices->network, pass, B, T);
    network_losses(choices->network, pass, B, T, 0, false, false);
    network_read(choices->network, pass->losses, DTYPE_FP32, 0, (size_t)B * (size_t)T, choices->losses);
    for (int b = 0; b < B; b++) {
        const float *end = choices->losses + (size_t)b * (size_t)T + used[b] - 1;
        item->losses[first + b] = 0;
        for (const float *loss = end - item->tokens[first + b]; loss < end; loss++)
            item->losses[first + b] += (double)*loss;
    }
}

static int evaluate_line(Choices *choices, Bytes line) {
    ChoicesItem *item = &choices->item;
    const int rows = choices->network->plan->eval.rows;
    json_error_t error;
    json_t *object = json_parse(line, JSON_ANY_TEXT, &error);
    const int result = json_is_object(object) ? read_item(choices, object)
                       : object               ? fail(EX_DATA, "not a JSON object")
                                              : fail(EX_DATA, "not a JSON object: %s", error.text);
    json_decref(object);
    if (result < 0) return -1;
    for (int first = 0; first < item->endings; first += rows)
        evaluate_endings(choices, first, item->endings - first < rows ? item->endings - first : rows);
    item->by_sum = item->by_mean = 0;
    for (int i = 1; i < item->endings; i++) {
        const double *losses = item->losses;
        if (losses[i] < losses[item->by_sum]) item->by_sum = i;
        if (losses[i] / item->tokens[i] < losses[item->by_mean] / item->tokens[item->by_mean]) item->by_mean = i;
    }
    return 0;
}

static int evaluate_lines(Choices *choices, Bytes text, const char *path,
                          void (*found)(void *context, const ChoicesItem *item), void *context) {
    Progress progress = {0};
    uint64_t number = 0, items = 0;
    int result = 0;
    progress_start(&progress, "evaluating choices", "B", text.size);
    for (Bytes rest = utf8_unmarked(text), line; result == 0 && bytes_next_line_or_rest(&rest, &line);) {
        number++;
        if (!bytes_trimmed(line).size) continue;
        result = evaluate_line(choices, line);
        if (result == 0)
            items++, found(context, &choices->item);
        else
            fail_in("'%s' line %llu", path, (unsigned long long)number);
        progress_update(&progress, text.size - rest.size);
    }
    progress_finish(&progress);
    if (result == 0 && !items) return fail(EX_NOINPUT, "'%s' holds no item", path);
    return result;
}

int choices_evaluate(Network *network, const Vocab *vocab, const char *path,
                     void (*found)(void *context, const ChoicesItem *item), void *context) {
    const PassLayout *pass = &network->plan->eval;
    Buffer text = {0};
    int result = file_read_stream(&text, strcmp(path, "-") ? path : "/dev/stdin", FILE_MAX_BYTES);
    if (result == 0) {
        Choices choices = {.network = network, .vocab = vocab, .id_bytes = vocab_id_bytes(vocab)};
        choices.encoder = encoder_open(vocab, INVALID_REPLACE);
        const size_t ids = (size_t)pass->rows * (size_t)(pass->block + 1);
        choices.rows = allocate_zeroed(ids, choices.id_bytes);
        choices.losses = allocate_zeroed(ids, sizeof *choices.losses);
        result = evaluate_lines(&choices, (Bytes){text.data, text.size}, path, found, context);
        for (int i = 0; i < ENDINGS_MAX; i++) buffer_close(&choices.endings[i]);
        buffer_close(&choices.context);
        free(choices.rows), free(choices.losses);
        encoder_close(choices.encoder);
    }
    buffer_close(&text);
    return result;
}
