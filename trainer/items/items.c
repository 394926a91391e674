// Reads items, and finds the tokens of each that are scored.
#include "trainer/items/items.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include "common/hash.h"
#include "common/id_array.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include "common/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

int items_open(ItemsFile *file, const char *path) {
    static const char *const packed[] = {"\x1F\x8B", "\x28\xB5\x2F\xFD", "\xFD\067zXZ"}; // gzip, zstd, xz
    *file = (ItemsFile){.path = path};
    if (input_map(&file->map, path) < 0) return -1;
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (file->map.size > 4 && !memcmp(file->map.data, packed[i], strlen(packed[i])))
            return fail(EX_DATA, "'%s' is compressed: unpack it first", path);
    sha256(file->map.data, file->map.size, file->sha256);
    return items_rewind(file), 0;
}

void items_rewind(ItemsFile *file) {
    file->rest = utf8_unmarked(file->map), file->line = 0, file->seen_count = 0;
    if (file->seen) memset(file->seen, 0, file->seen_slots * sizeof *file->seen);
}

void items_close(ItemsFile *file) {
    free(file->seen);
    file_unmap(&file->map);
    *file = (ItemsFile){0};
}

// ---- texts and ids

static Bytes text_of(const json_t *string) {
    return (Bytes){(const uint8_t *)json_string_value(string), json_string_length(string)};
}

// Whether a key has a value: null is as if it were left out.
static bool is_given(const json_t *value) { return value && !json_is_null(value); }

static int count_chars(Bytes text) {
    int count = 0;
    for (uint32_t point; text.size; count++) {
        const unsigned length = utf8_decode(text.data, text.data + text.size, &point);
        text = (Bytes){text.data + length, text.size - length};
    }
    return count;
}

// Appends the ids of a text. Returns their number, or -1.
static ssize_t add_ids(const ItemReader *reader, Buffer *ids, Bytes text) {
    const unsigned bytes = vocab_id_bytes(reader->vocab);
    buffer_reserve(ids, encoder_ids_max(text.size) * bytes);
    const ssize_t count = encoder_encode(reader->encoder, text, ids->data + ids->size);
    if (count > 0) ids->size += (size_t)count * bytes;
    return count;
}

static void add_id(const ItemReader *reader, Buffer *ids, uint32_t id) {
    const unsigned bytes = vocab_id_bytes(reader->vocab);
    uint32_t stored = 0;
    id_put(&stored, 0, bytes, id);
    buffer_add(ids, &stored, bytes);
}

static ItemText *new_text(const ItemReader *reader, ItemList *list) {
    list->texts = array_grow(list->texts, list->text_count, sizeof *list->texts);
    ItemText *text = &list->texts[list->text_count++];
    *text = (ItemText){.first = list->ids.size / vocab_id_bytes(reader->vocab)};
    return text;
}

// Sets `scored` to the ids after the context, and `count` to those with the one of the beginning.
static int read_text(const ItemReader *reader, ItemList *list, Bytes shots, const json_t *pair) {
    const json_t *context = json_array_get(pair, 0), *ending = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_string(context) || !json_is_string(ending))
        return fail(EX_DATA, "a text is not [context, ending]");
    Bytes end = text_of(ending), before;
    Buffer joined = {0};
    buffer_add(&joined, shots.data, shots.size);
    buffer_add(&joined, text_of(context).data, text_of(context).size);
    before = text_trimmed((Bytes){joined.data, joined.size});
    const bool is_open = before.size == joined.size; // its last byte is no white space
    buffer_add(&joined, end.data, end.size);
    before.data = joined.data;
    ItemText *text = new_text(reader, list);
    const size_t begin = list->ids.size;
    const ssize_t first = add_ids(reader, &list->ids, before);
    list->ids.size = begin;
    add_id(reader, &list->ids, vocab_end_of_text(reader->vocab));
    const ssize_t count = add_ids(reader, &list->ids, (Bytes){joined.data, joined.size});
    buffer_close(&joined);
    if (first < 0 || count < 0) return -1;
    if (is_open && end.size && *end.data == ' ') end = (Bytes){end.data + 1, end.size - 1};
    text->count = (int)count + 1, text->scored = (int)(count - first);
    text->chars = count_chars(end), text->bytes = (int)end.size;
    return 0;
}

// ---- spans

static uint32_t text_id(const ItemReader *reader, const ItemList *list, const ItemText *text, int i) {
    return id_at(list->ids.data, text->first + (size_t)i, vocab_id_bytes(reader->vocab));
}

// The ids of one place that all texts of an item have the same, from the beginning or, with `back`, from the end; at
// most those that the shortest has, whose number is *shortest.
static int count_same(const ItemReader *reader, const ItemList *list, const GradedItem *item, bool back,
                      int *shortest) {
    const ItemText *texts = &list->texts[item->first];
    *shortest = texts->count;
    for (int i = 1; i < item->texts; i++)
        if (texts[i].count < *shortest) *shortest = texts[i].count;
    for (int same = 0;; same++)
        for (int i = 0; i < item->texts; i++) {
            if (same == *shortest) return same;
            const int at = back ? texts->count - 1 - same : same, of = back ? texts[i].count - 1 - same : same;
            if (text_id(reader, list, texts, at) != text_id(reader, list, &texts[i], of)) return same;
        }
}

static int set_spans(const ItemReader *reader, const ItemList *list, GradedItem *item) {
    int shortest, same = count_same(reader, list, item, item->span == SPAN_COMMON, &shortest);
    if (item->span == SPAN_COMMON && same == 0) return fail(EX_DATA, "its texts do not end alike: no id is common");
    if (item->span == SPAN_COMMON && same == shortest) item->is_overlap = true, same--;
    if (item->span == SPAN_DIFFERING && same == shortest) item->is_overlap = true, same--;
    for (size_t i = item->first; i < item->first + (size_t)item->texts; i++) {
        ItemText *text = &list->texts[i];
        if (item->span == SPAN_DIFFERING) text->scored = text->count - same;
        if (item->span == SPAN_COMMON) text->scored = same;
    }
    return 0;
}

// Leaves out the id of the beginning where it is not wanted, and what a sequence does not hold.
static int fit_text(const ItemReader *reader, ItemText *text, bool begin) {
    const int most = begin ? reader->block : reader->block + 1;
    if (text->scored < 1 || text->count < 2) return fail(EX_DATA, "no token of its own stands after its context");
    if (!begin && text->scored < text->count - 1) text->first++, text->count--;
    if (text->count > most) text->cut = text->count - most;
    text->first += (size_t)text->cut, text->count -= text->cut;
    if (text->scored < text->count) return 0;
    return fail(EX_DATA, "%d tokens of a text are scored, and a sequence of the evaluation has %d: cut the text",
                text->scored, reader->block);
}

// ---- items

// The keys that may be left out.
static int check_optional(const json_t *object) {
    const json_t *shots = json_object_get(object, "shots"), *begin = json_object_get(object, "begin"),
                 *chance = json_object_get(object, "chance");
    if (is_given(shots) && !json_is_string(shots)) return fail(EX_DATA, "'shots' is not a text");
    if (is_given(begin) && !json_is_boolean(begin)) return fail(EX_DATA, "'begin' is not true or false");
    if (is_given(chance) && !json_is_number(chance)) return fail(EX_DATA, "'chance' is not a number");
    return 0;
}

static int read_span(const json_t *span, ItemSpan *out) {
    static const char *const spans[] = {"ending", "differing", "common"};
    for (*out = SPAN_ENDING; *out <= SPAN_COMMON; (*out)++)
        if (json_is_string(span) && !strcmp(json_string_value(span), spans[*out])) return 0;
    return fail(EX_DATA, "'span' is not ending, differing or common");
}

static int read_texts(const ItemReader *reader, ItemList *list, GradedItem *item, const json_t *object) {
    const json_t *texts = json_object_get(object, "texts"), *span = json_object_get(object, "span"),
                 *shots = json_object_get(object, "shots"), *label = json_object_get(object, "label");
    const bool begin = !json_is_false(json_object_get(object, "begin"));
    item->texts = (int)json_array_size(texts);
    if (item->kind == ITEM_CHOICE && (item->texts < 2 || item->texts > ITEM_TEXTS_MAX))
        return fail(EX_DATA, "'texts' is not a list of 2 to %d texts", ITEM_TEXTS_MAX);
    if (item->kind == ITEM_GREEDY && item->texts != 1)
        return fail(EX_DATA, "kind greedy, and 'texts' is not a list of one text");
    if ((item->kind == ITEM_CHOICE || is_given(span)) && read_span(span, &item->span) < 0) return -1;
    if (item->kind == ITEM_GREEDY) item->span = SPAN_ENDING;
    if (item->kind == ITEM_CHOICE) {
        if (!json_is_integer(label) || json_integer_value(label) < 0 || json_integer_value(label) >= item->texts)
            return fail(EX_DATA, "'label' is not the number of a text, 0 to %d", item->texts - 1);
        item->label = (int)json_integer_value(label);
    }
    for (int i = 0; i < item->texts; i++)
        if (read_text(reader, list, text_of(shots), json_array_get(texts, (size_t)i)) < 0) return fail_in("text %d", i);
    if (set_spans(reader, list, item) < 0) return -1;
    for (size_t i = item->first; i < list->text_count; i++)
        if (fit_text(reader, &list->texts[i], begin) < 0) return fail_in("text %zu", i - item->first);
    return 0;
}

static int add_message(const ItemReader *reader, Buffer *ids, const TurnIds *turns, const json_t *message) {
    static const char *const roles[] = {"system", "user", "assistant"};
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    const char *key;
    json_t *value;
    size_t turn = TURN_SYSTEM;
    json_object_foreach((json_t *)message, key, value)
        if (is_given(value) && strcmp(key, "role") && strcmp(key, "content"))
            return fail(EX_DATA, "it has '%.100s', and only role and content are read: take it out", key);
    while (turn < TURN_END && (!json_is_string(role) || strcmp(json_string_value(role), roles[turn]))) turn++;
    if (turn == TURN_END || !json_is_string(content))
        return fail(EX_DATA, "a message is not of a role, system, user or assistant, and a text as content");
    add_id(reader, ids, turns->ids[turn]);
    if (add_ids(reader, ids, text_of(content)) < 0) return -1;
    return add_id(reader, ids, turns->ids[TURN_END]), 0;
}

static int read_conversation(const ItemReader *reader, ItemList *list, GradedItem *item, const json_t *object) {
    const json_t *messages = json_object_get(object, "messages"), *answer = json_object_get(object, "answer");
    const TurnIds turns = vocab_turns(reader->vocab);
    if (!turns.known) return fail(EX_DATA, "kind answers, and the model knows no messages: train it with --turns");
    if (!json_array_size(messages) || !json_is_string(answer) || !bytes_trimmed(text_of(answer)).size)
        return fail(EX_DATA, "kind answers without messages and the text of an answer");
    const json_t *last = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "role");
    if (!json_is_string(last) || strcmp(json_string_value(last), "user"))
        return fail(EX_DATA, "the last message is not of the user: the answer is the key 'answer'");
    if (json_string_length(json_object_get(object, "shots")))
        return fail(EX_DATA, "kind answers reads no 'shots': write them as messages");
    const Bytes right = bytes_trimmed(text_of(answer));
    if (right.size >= SAID_BYTES) return fail(EX_DATA, "the answer has more than %d bytes", SAID_BYTES - 1);
    ItemText *text = new_text(reader, list);
    add_id(reader, &list->ids, vocab_end_of_text(reader->vocab));
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (add_message(reader, &list->ids, &turns, json_array_get(messages, i)) < 0) return fail_in("message %zu", i);
    add_id(reader, &list->ids, turns.ids[TURN_ASSISTANT]);
    const ssize_t count = add_ids(reader, &list->ids, right);
    if (count < 0) return -1;
    add_id(reader, &list->ids, turns.ids[TURN_END]);
    buffer_add(&item->answer, right.data, right.size);
    item->texts = 1;
    text->count = (int)(list->ids.size / vocab_id_bytes(reader->vocab) - text->first), text->scored = (int)count + 1;
    text->chars = count_chars(right), text->bytes = (int)right.size;
    return fit_text(reader, text, true);
}

// A text or a number as JSON.
static char *name_of(const json_t *id) {
    Buffer text = {0};
    if (json_is_string(id))
        json_add_string(&text, json_string_value(id));
    else
        buffer_print(&text, "%lld", (long long)json_integer_value(id));
    char *name = allocate_text((const char *)text.data, text.size);
    buffer_close(&text);
    return name;
}

// Whether a text is one line without control characters, so that it can stand in a table.
static bool is_name(const json_t *string) {
    Bytes text = text_of(string);
    for (uint32_t point; text.size;) {
        const unsigned length = utf8_decode(text.data, text.data + text.size, &point);
        if (point < ' ' || (point >= 0x7F && point < 0xA0) || point == 0x2028 || point == 0x2029) return false;
        text = (Bytes){text.data + length, text.size - length};
    }
    return json_string_length(string) > 0;
}

static int read_item(const ItemReader *reader, ItemList *list, const json_t *object) {
    static const char *const kinds[] = {"choice", "greedy", "answers"};
    const json_t *task = json_object_get(object, "task"), *id = json_object_get(object, "id"),
                 *kind = json_object_get(object, "kind"), *chance = json_object_get(object, "chance");
    if (json_object_get(object, "ctx"))
        return fail(EX_DATA, "an item of 'ctx' and 'endings': docs/grade.md has the line of jq that converts it");
    if (!json_is_string(task)) return fail(EX_DATA, "no text 'task'");
    if (!is_name(task)) return fail(EX_DATA, "'task' is empty, or has a line end or a control character");
    if (!json_is_string(id) && !json_is_integer(id)) return fail(EX_DATA, "'id' is neither a text nor a whole number");
    list->items = array_grow(list->items, list->item_count, sizeof *list->items);
    GradedItem *item = &list->items[list->item_count++];
    *item = (GradedItem){.task = allocate_text(json_string_value(task), strlen(json_string_value(task))),
                         .id = name_of(id),
                         .first = list->text_count,
                         .chance = json_is_number(chance) ? json_number_value(chance) : NAN};
    while (item->kind <= ITEM_ANSWERS && (!json_is_string(kind) || strcmp(json_string_value(kind), kinds[item->kind])))
        item->kind++;
    if (item->kind > ITEM_ANSWERS) return fail(EX_DATA, "'kind' is not choice, greedy or answers");
    if (check_optional(object) < 0) return -1;
    return item->kind == ITEM_ANSWERS ? read_conversation(reader, list, item, object)
                                      : read_texts(reader, list, item, object);
}

static int read_line(const ItemReader *reader, ItemList *list, Bytes line) {
    json_error_t error;
    json_t *object = json_parse(line, JSON_ANY_TEXT, &error);
    const int result = json_is_object(object) ? read_item(reader, list, object)
                       : object               ? fail(EX_DATA, "not a JSON object")
                                              : fail(EX_DATA, "not valid JSON: %s", error.text);
    json_decref(object);
    return result;
}

// ---- names

const char *const item_rules[] = {"sum", "mean", "greedy", "exact"};

ItemRule item_rule(const GradedItem *item) {
    if (item->kind == ITEM_ANSWERS) return RULE_EXACT;
    if (item->kind == ITEM_GREEDY) return RULE_GREEDY;
    return item->span == SPAN_ENDING ? RULE_SUM : RULE_MEAN;
}

static SeenName *find_slot(const ItemsFile *file, uint64_t hash) {
    size_t at = hash & (file->seen_slots - 1);
    while (file->seen[at].line && file->seen[at].hash != hash) at = (at + 1) & (file->seen_slots - 1);
    return &file->seen[at];
}

static void double_slots(ItemsFile *file) {
    SeenName *const old = file->seen;
    const size_t slots = file->seen_slots;
    file->seen_slots = slots ? 2 * slots : 1024;
    file->seen = allocate_zeroed(file->seen_slots, sizeof *file->seen);
    for (size_t i = 0; i < slots; i++)
        if (old[i].line) *find_slot(file, old[i].hash) = old[i];
    free(old);
}

// The line and rule by which a task, or with `id` an item of it, was read first; those of `item` if it is this one.
static SeenName see(ItemsFile *file, const GradedItem *item, const char *id) {
    if (2 * file->seen_count >= file->seen_slots) double_slots(file);
    const uint64_t task = XXH3_64bits(item->task, strlen(item->task));
    const uint64_t hash = id ? XXH3_64bits_withSeed(id, strlen(id), task) : task;
    SeenName *slot = find_slot(file, hash);
    if (!slot->line) *slot = (SeenName){hash, file->line, item_rule(item)}, file->seen_count++;
    return *slot;
}

// Items that are twice in a file would make its intervals too narrow; a task of two rules has no accuracy.
static int check_names(ItemsFile *file, const GradedItem *item) {
    const SeenName task = see(file, item, NULL), same = see(file, item, item->id);
    if (same.line != file->line)
        return fail(EX_DATA, "task '%s' has the id %s in line %llu, too: leave one out, or give it another id",
                    item->task, item->id, (unsigned long long)same.line);
    if (task.rule != item_rule(item))
        return fail(EX_DATA, "task '%s' is graded by the rule %s, and from line %llu on by %s: name two tasks",
                    item->task, item_rules[item_rule(item)], (unsigned long long)task.line, item_rules[task.rule]);
    return 0;
}

int items_read(ItemsFile *file, const ItemReader *reader, ItemList *list) {
    Bytes line;
    while (list->ids.size < (size_t)ITEM_IDS * vocab_id_bytes(reader->vocab) &&
           bytes_next_line_or_rest(&file->rest, &line)) {
        file->line++;
        if (!bytes_trimmed(line).size) continue;
        if (read_line(reader, list, line) < 0 || check_names(file, &list->items[list->item_count - 1]) < 0)
            return fail_in("'%s' line %llu", file->path, (unsigned long long)file->line);
    }
    return list->item_count > 0;
}

void items_free(ItemList *list) {
    for (size_t i = 0; i < list->item_count; i++) {
        GradedItem *item = &list->items[i];
        free(item->task), free(item->id);
        buffer_close(&item->answer);
    }
    free(list->items), free(list->texts);
    buffer_close(&list->ids);
    *list = (ItemList){0};
}
