// Grading: the losses of items' texts in batches over items, what follows from them, and lines of results.
//
// The results of a file are lines of JSON. The first one has
//
//   format        "millrace items 1"
//   items_sha256  of the file of items
//   model, step   directory of the weights; steps that they were trained, null if it is not known
//   ema           true: of the averaged weights; else left out
//   block         tokens of a sequence
//   rule          what `right` is, for each span and kind
//
// and every other one an item, in the order of the file:
//
//   task, id, kind, label   of the item; label 0 if it has none
//   rule    which of these decides: sum (span ending), mean (differing, common), greedy, exact (answers)
//   right   1: the right text has the smallest loss by `rule`, or the text is greedy, or the answer is exact; else 0
//   losses  of each text, the sum of its scored tokens, in nats; null: not finite
//   tokens, chars, bytes    of each text: scored tokens; of its ending without the space that joins it to its context
//   greedy  of each text: 1 if every scored token is the likeliest, of equal ones the one with the smallest id
//   cut     of each text: tokens that were left out at its head
//   pick    the first text with the smallest sum, mean over tokens, over characters, over bytes
//   text    of answers: what was generated, up to the length of the answer
#pragma once

#include "trainer/items/items.h"
#include "trainer/model/network.h"

// The results of the items of one task.
typedef struct {
    char *name;
    ItemRule rule; // of its items
    uint64_t items, right;
    uint64_t ties;     // several texts have the smallest loss
    uint64_t cut;      // a text was cut at its head
    uint64_t uneven;   // its texts were cut by different numbers of tokens
    uint64_t overlaps; // GradedItem.is_overlap
    double chance;     // sum of 1 / texts
    uint64_t given;    // items whose `chance` is another number
} TaskGrade;

typedef struct {
    TaskGrade *tasks; // in the order of their first items
    size_t task_count;
    uint64_t items, not_finite; // not_finite: items with a loss that is not
    uint64_t tokens, computed;  // of all texts; without the repetitions of what the texts of an item begin with
    uint64_t apart;             // items whose texts, or some, share too little to be computed together
} Grade;

typedef struct {
    Network *network;
    const Vocab *vocab;
    const char *model;
    int64_t step; // -1: not known
    bool ema;     // of the averaged weights
    // Receives a line with its line end; NULL in ranks that write none.
    void (*write)(void *self, Bytes line);
    void *self;
} Grading;

// Reads the whole file, so that a bad line is found before training. -1 after fail().
int grade_check(const Grading *grading, ItemsFile *file);

// Grades the items of a file from its first one on. Batches are formed from the file and the rows and tokens of the
// evaluation pass alone, and the ranks of the network take them in turn: the results do not depend on their number.
// What the texts of an item begin with is computed once, so that their losses are those of each alone but for rounding.
// Runs in the memory of that pass, and of the sampling pass for answers, and changes no other. All ranks call it and
// return the same: -1 after fail(), also (75) after a request to stop. Losses that are not finite are no failure here.
int grade_items(Grade *grade, const Grading *grading, ItemsFile *file);

// Appends a line for each task: items, rule, accuracy with its standard error and Wilson's interval of 95 %, chance
// from the items, ties and cuts. And sentences about items that a reader of it should know of.
void grade_print(Buffer *out, const Grade *grade);
void grade_warn(const Grade *grade);
int grade_check_finite(const Grade *grade); // -1 after fail() (81)
void grade_free(Grade *grade);              // accepts a zeroed struct
