// The kept documents, on disk.
#include "shardtool/similar/kept_sets.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PENDING_LEAST = 1 << 20 };

#define NUMBERS_DIFFER (1ull << 63) // in `removed`

// Of a kept document, before its hashes in the file.
typedef struct {
    uint64_t number, removed; // removed: documents that it stands for
    ShingleHead set;
} KeptHead;

struct KeptSets {
    double least;
    int file;         // of sets
    uint64_t written; // bytes of it; `pending` follows
    uint64_t pending_most;
    Buffer pending, found, candidates;
    HashSet set; // of the document that is compared
    int slot_file;
    uint64_t *slots; // place of a set in the file / 8 + 1, 0: free
    uint64_t slot_bytes;
    KeptStatistics statistics;
};

static int map_slots(KeptSets *kept, const char *folder) {
    if (!kept->slot_bytes) return 0;
    if ((kept->slot_file = spool_create(folder, "the groups of documents")) < 0) return -1;
    // a page that a full disk cannot take would end the program
    if ((errno = posix_fallocate(kept->slot_file, 0, (off_t)kept->slot_bytes)))
        return fail_errno("cannot write a temporary file");
    void *map = mmap(NULL, kept->slot_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, kept->slot_file, 0);
    if (map == MAP_FAILED) return fail_errno("cannot map a temporary file");
    kept->slots = map;
    return 0;
}

KeptSets *kept_sets_open(const char *folder, uint64_t slots, double least, uint64_t memory) {
    KeptSets *kept = allocate_zeroed(1, sizeof *kept);
    kept->pending_most = memory / 2 > PENDING_LEAST ? memory / 2 : PENDING_LEAST; // a Buffer doubles
    kept->least = least, kept->slot_bytes = slots * sizeof *kept->slots, kept->slot_file = -1;
    kept->file = spool_create(folder, "sets of hashes");
    if (kept->file >= 0 && map_slots(kept, folder) == 0) return kept;
    kept_sets_close(kept);
    return NULL;
}

void kept_sets_close(KeptSets *kept) {
    if (!kept) return;
    if (kept->slots) munmap(kept->slots, kept->slot_bytes);
    if (kept->slot_file >= 0) close(kept->slot_file);
    if (kept->file >= 0) close(kept->file);
    buffer_close(&kept->pending);
    buffer_close(&kept->found);
    buffer_close(&kept->candidates);
    hash_set_close(&kept->set);
    free(kept);
}

static int read_at(const KeptSets *kept, uint64_t place, void *data, size_t size) {
    if (place >= kept->written) return memcpy(data, kept->pending.data + (place - kept->written), size), 0;
    return fd_read_at(kept->file, place, data, size, "a temporary file") < 0 ? -1 : 0;
}

static int write_head(KeptSets *kept, uint64_t place, const KeptHead *head) {
    if (place >= kept->written) return memcpy(kept->pending.data + (place - kept->written), head, sizeof *head), 0;
    if (pwrite(kept->file, head, sizeof *head, (off_t)place) == sizeof *head) return 0;
    return fail_errno("cannot write a temporary file");
}

static int by_place(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// The places of the kept documents in the groups, in the order of the documents. Some may come several times.
static size_t find_candidates(KeptSets *kept, const uint64_t *memberships, size_t count) {
    kept->candidates.size = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *slots = kept->slots + membership_slot(memberships[i]),
                       before = membership_before(memberships[i]);
        for (uint64_t k = 0; k < before && slots[k]; k++) buffer_add(&kept->candidates, &slots[k], sizeof *slots);
    }
    const size_t found = kept->candidates.size / sizeof(uint64_t);
    if (found > 1) qsort(kept->candidates.data, found, sizeof(uint64_t), by_place);
    return found;
}

// The similarity with the set at a place whose hashes are in `found`; 0 when it is too small.
static double compare(const KeptSets *kept, uint64_t own, uint64_t other) {
    // shared / (own + other - shared) >= least, with one in favour of rounding
    const double needed = kept->least / (1 + kept->least) * (double)(own + other) - 1;
    uint64_t shared = 0;
    for (uint64_t i = 0; i < other; i++) {
        shared += hash_set_has(&kept->set, get_u64(kept->found.data + i * sizeof i));
        if ((double)(shared + (other - i - 1)) < needed) return 0;
    }
    return (double)shared / (double)(own + other - shared);
}

static int count_removed(KeptSets *kept, uint64_t place, KeptHead *head, const ShingleHead *set) {
    KeptStatistics *statistics = &kept->statistics;
    head->removed++;
    if (head->set.text == set->text && head->set.digits != set->digits) {
        statistics->number_documents++, statistics->number_families += !(head->removed & NUMBERS_DIFFER);
        head->removed |= NUMBERS_DIFFER;
    }
    const uint64_t removed = head->removed & ~NUMBERS_DIFFER;
    if (removed > statistics->largest) statistics->largest = removed;
    return write_head(kept, place, head);
}

int kept_sets_find(KeptSets *kept, const uint64_t *memberships, size_t count, Bytes set, uint64_t *number,
                   double *similarity) {
    const size_t candidates = find_candidates(kept, memberships, count);
    ShingleHead own;
    memcpy(&own, set.data, sizeof own);
    bool is_ready = false;
    uint64_t last = 0;
    for (size_t i = 0; i < candidates; i++) {
        const uint64_t candidate = get_u64(kept->candidates.data + i * sizeof candidate);
        const uint64_t place = (candidate - 1) * 8;
        KeptHead head;
        if (candidate == last) continue;
        last = candidate;
        if (read_at(kept, place, &head, sizeof head) < 0) return -1;
        const uint64_t least = own.count < head.set.count ? own.count : head.set.count;
        const uint64_t most = own.count + head.set.count - least;
        if ((double)least / (double)most < kept->least) continue;
        if (!is_ready) {
            hash_set_clear(&kept->set, own.count);
            for (uint64_t k = 0; k < own.count; k++) hash_set_add(&kept->set, get_u64(set.data + sizeof own + k * 8));
            is_ready = true;
        }
        kept->found.size = 0, kept->statistics.comparisons++;
        buffer_reserve(&kept->found, head.set.count * 8);
        if (read_at(kept, place + sizeof head, kept->found.data, head.set.count * 8) < 0) return -1;
        *similarity = compare(kept, own.count, head.set.count), *number = head.number;
        if (*similarity >= kept->least) return count_removed(kept, place, &head, &own) < 0 ? -1 : 1;
    }
    return 0;
}

int kept_sets_keep(KeptSets *kept, const uint64_t *memberships, size_t count, Bytes set, uint64_t number) {
    const uint64_t place = kept->written + kept->pending.size;
    bool is_needed = false, is_crowded = false;
    for (size_t i = 0; i < count; i++) {
        uint64_t *slots = kept->slots + membership_slot(memberships[i]), before = membership_before(memberships[i]),
                 k = 0;
        if (memberships[i] & 1) continue;
        while (k < before && slots[k]) k++;
        is_crowded |= k == GROUP_KEPT_MAX;
        if (k == GROUP_KEPT_MAX) continue;
        slots[k] = place / 8 + 1, is_needed = true;
    }
    kept->statistics.crowded += is_crowded;
    if (!is_needed) return 0;
    KeptHead head = {.number = number};
    memcpy(&head.set, set.data, sizeof head.set);
    buffer_add(&kept->pending, &head, sizeof head);
    buffer_add(&kept->pending, set.data + sizeof head.set, set.size - sizeof head.set);
    if (kept->pending.size < kept->pending_most) return 0;
    if (lseek(kept->file, (off_t)kept->written, SEEK_SET) < 0) return fail_errno("cannot write a temporary file");
    if (fd_write(kept->file, kept->pending.data, kept->pending.size, "a temporary file") < 0) return -1;
    kept->written += kept->pending.size, kept->pending.size = 0;
    return 0;
}

KeptStatistics kept_sets_statistics(const KeptSets *kept) { return kept->statistics; }
