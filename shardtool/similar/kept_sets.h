// The kept documents that later documents are compared with: the bitmap of each, and its hashes or words, from which
// the hashes are computed again. The slots hold the places of the first kept documents of each group (documents that
// share a band). What does not fit in the memory is in two temporary files. One thread, the owner, adds
// documents in their order, while workers search the documents that it has added.
#pragma once

#include "shardtool/similar/old_datasets.h"
#include "shardtool/similar/shingles.h"

enum { GROUP_KEPT_MAX = 32 }; // later kept documents of a group are not compared with its others

// A document in a group, as one number:
//
//     bit 63                               7 6                      1 0
//         | first slot of the group          | earlier members, <= 32 | is the last member |
//
// An earlier member has taken a slot if it was kept. So the slots to look at are the first ones, as many as earlier
// members, up to one that is free.
static inline uint64_t membership(uint64_t slot, uint64_t before, bool is_last) {
    return slot << 7 | (before < GROUP_KEPT_MAX ? before : GROUP_KEPT_MAX) << 1 | is_last;
}
static inline uint64_t membership_slot(uint64_t membership) { return membership >> 7; }
static inline uint64_t membership_before(uint64_t membership) { return membership >> 1 & 63; }
// The slots of a group of so many documents.
static inline uint64_t group_slots(uint64_t documents) {
    return documents - 1 < GROUP_KEPT_MAX ? documents - 1 : GROUP_KEPT_MAX;
}

typedef struct KeptSets KeptSets;

// A kept document whose words are read again from a dataset when they are needed, by kept_sets_read_old.
typedef struct {
    ShingleHead set;       // `bytes` is not used
    const uint8_t *bitmap; // of the set
    OldPlace place;
} KeptOld;
typedef int KeptText(void *context, const OldPlace *place, Buffer *text); // appends it; -1 after fail()

// A document that is looked for: its memberships and its set (shingler_set).
typedef struct {
    const uint64_t *memberships;
    size_t count;
    Bytes set;
} KeptQuery;

// What the kept documents before a place were found to be.
typedef struct {
    uint64_t next;   // the first place that was not looked at, + 1
    uint64_t place;  // of the first near-duplicate, + 1; 0: none
    uint64_t number; // its document
    double similarity;
    uint64_t comparisons, texts; // as in KeptStatistics
} KeptFound;

// For groups with `slots` slots in all. Sets with a Jaccard similarity of at least `least` are near-duplicates. What is
// beyond `memory` goes to files; these are in `folder`, NULL: $TMPDIR or /tmp. NULL after fail().
KeptSets *kept_sets_open(const char *folder, uint64_t slots, double least, uint64_t memory, unsigned workers);
void kept_sets_close(KeptSets *kept); // accepts NULL

// Prefetches the slots of a document that is looked for soon. In any thread.
void kept_sets_prefetch(const KeptSets *kept, const uint64_t *memberships, size_t count);
// In a worker, also while the owner adds documents: looks for the first near-duplicate in the groups, among the
// documents that were added before the call. Ends before one of kept_sets_keep_old. -1 after fail().
int kept_sets_search(KeptSets *kept, unsigned worker, const KeptQuery *query, KeptFound *found);
// Looks on from `found`, which is zero or of kept_sets_search: 1 if there is one, 0, or -1 after fail(). It then counts
// one removed document more.
int kept_sets_find(KeptSets *kept, const KeptQuery *query, KeptFound *found);
// Keeps a document, unless no later one is in its groups.
int kept_sets_keep(KeptSets *kept, const KeptQuery *query, uint64_t number);
void kept_sets_read_old(KeptSets *kept, KeptText *read, void *context);
int kept_sets_keep_old(KeptSets *kept, const KeptQuery *query, const KeptOld *old, uint64_t number);

typedef struct {
    uint64_t comparisons; // of pairs whose sizes are near
    uint64_t texts;       // comparisons that needed the words: the others were refused by the bitmaps
    uint64_t largest;     // removed documents of one kept document, at most
    // Removed documents that are equal to the kept one but for their numbers, and the kept documents of these.
    uint64_t number_documents, number_families;
    // Kept documents that share a band with GROUP_KEPT_MAX earlier ones that stay: copies of them may be missed.
    uint64_t crowded;
} KeptStatistics;
KeptStatistics kept_sets_statistics(const KeptSets *kept);
