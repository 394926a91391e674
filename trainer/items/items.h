// Items: questions by which a model is graded. A file of them has a JSON object in each line:
//
//   task     name of the set that the item belongs to, in one line; one rule decides for all its items (grade.h)
//   id       a number or a string, once in the set, which the results repeat
//   kind     choice: which of several texts is the likeliest; greedy: whether each token of a text is the likeliest;
//            answers: whether the model, trained with --turns, answers a conversation with this text
//   texts    of choice and greedy: the texts, 2 to 64 or one, as [context, ending]. They are finished: nothing is put
//            between the two
//   shots    the text that stands before every context; may be left out
//   label    of choice: the number of the right text, from 0 on
//   span     of choice: which tokens of a text are scored, up to its end
//     ending     those after as many as its shots and context have, without the white space at their end (also of
//                greedy): lm-evaluation-harness
//     differing  from the first place on at which the texts differ, counted from the beginning: nanochat
//     common     those before which the texts differ for the last time, counted from the end: nanochat's schemas
//   begin    true (default): the token that ends a document stands before every text, and of a text that is longer than
//            a sequence of T tokens the last T are read, as in nanochat. false: it stands only where nothing else would
//            stand before the first scored token, and the last T + 1 are read, as in lm-evaluation-harness
//   chance   expected accuracy of a guess; only compared with 1 / texts
//   messages, answer   of answers: the conversation up to the last message of the user, and the text that is right
//
// Of a key that may be left out null is no value; any other type than these is refused. Other keys are not read. The
// ids are those of the whole text, shots, context and ending in one.
#pragma once

#include "common/bytes.h"
#include "tokenizer/tokenizer.h"

enum { ITEM_TEXTS_MAX = 64, SAID_BYTES = 256 };

typedef enum { ITEM_CHOICE, ITEM_GREEDY, ITEM_ANSWERS } ItemKind;
typedef enum { SPAN_ENDING, SPAN_DIFFERING, SPAN_COMMON } ItemSpan;
typedef enum { RULE_SUM, RULE_MEAN, RULE_GREEDY, RULE_EXACT } ItemRule;
extern const char *const item_rules[]; // their names

// The loss of a text's scored tokens, in nats, and whether each is the likeliest. Doubles, because ranks share them.
typedef struct {
    double loss, greedy;
} TextScore;

// Ids that a model reads, of which the last ones are scored; at least one stands before these.
typedef struct {
    size_t first; // place in the ids of the list
    int count, scored;
    int cut;          // ids that were left out at the head
    int chars, bytes; // of the ending, without a space that joins it to its context
    unsigned owner;   // the rank that computes the score
    TextScore score;
} ItemText;

// What a model answered, up to the length of the answer that is right.
typedef struct {
    uint32_t right, tokens;
    char text[SAID_BYTES];
} Said;

typedef struct {
    ItemKind kind;
    ItemSpan span;
    char *task, *id; // id: as JSON
    int label, texts;
    size_t first;    // of its texts in the list
    bool is_overlap; // the ids of one text begin another's, or are its own: the last id of the shorter one counts, too
    double chance;   // NAN: not given
    Buffer answer;   // without white space around it
    Said said;
} GradedItem;

// What `right` is: one rule for all items of a task.
ItemRule item_rule(const GradedItem *item);

// Items that are read, graded and freed together.
typedef struct {
    Buffer ids;
    GradedItem *items;
    ItemText *texts;
    size_t item_count, text_count;
} ItemList;

// The first line of an item, or of a task.
typedef struct {
    uint64_t hash, line; // of its name; line 0: none
    ItemRule rule;
} SeenName;

typedef struct {
    const char *path;
    Bytes map, rest; // rest: the lines that are not read yet
    uint64_t line;
    SeenName *seen; // open addressing
    size_t seen_count, seen_slots;
    uint8_t sha256[32];
} ItemsFile;

// Maps a file of items, "-" for standard input, and takes its digest. -1 after fail().
int items_open(ItemsFile *file, const char *path);
void items_rewind(ItemsFile *file);
void items_close(ItemsFile *file); // accepts a zeroed struct

typedef struct {
    const Vocab *vocab; // the model's
    Encoder *encoder;
    int block; // tokens of a sequence
} ItemReader;

// Appends the next items, about ITEM_IDS ids of them, to an empty list. 1, 0 at the end of the file, -1 after fail()
// (65) with the line.
enum { ITEM_IDS = 1 << 20 };
int items_read(ItemsFile *file, const ItemReader *reader, ItemList *list);
void items_free(ItemList *list);
