// The kept documents, on disk.
#include "shardtool/similar/kept_sets.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

enum { PENDING_LEAST = 1 << 20, PACK_LEVEL = 1 };

#define PACKED_OLD     UINT64_MAX
#define NUMBERS_DIFFER (1ull << 63) // in `removed`

// Of a kept document, before its bitmap, and its hashes or words, in the file.
typedef struct {
    uint64_t number, removed; // removed: documents that it stands for
    uint64_t packed;          // bytes of the words, compressed; 0: hashes follow; PACKED_OLD: an OldPlace follows
    ShingleHead set;
} KeptHead;

struct KeptSets {
    double least;
    int file;         // of KeptHead and what follows it
    uint64_t written; // bytes of it; `pending` follows
    uint64_t pending_most;
    Buffer pending, stored, candidates;
    Buffer bitmap;       // of the other
    HashSet found;       // candidates, each multiplied: their lower bits are alike
    HashSet set, shared; // of the document that is compared; what the other has of it
    Shingler shingler;   // of the other
    KeptText *read_old;
    void *read_context;
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    uint64_t *slots;                // places of heads in the file + 1, 0: free. NULL: in the slot file
    uint64_t group[GROUP_KEPT_MAX]; // of the slot file
    int slot_file;
    KeptStatistics statistics;
};

// Not mapped: there are file systems without shared maps.
static int open_slots(KeptSets *kept, const char *folder, uint64_t bytes) {
    if ((kept->slot_file = spool_create(folder, "the groups of documents")) < 0) return -1;
    // a full disk is noticed now
    if ((errno = posix_fallocate(kept->slot_file, 0, (off_t)bytes))) return fail_errno("cannot write a temporary file");
    return 0;
}

// The places of the group of a membership that earlier members have taken: 0 with their number, or -1. They are valid
// until the next call.
static int read_slots(KeptSets *kept, uint64_t membership, const uint64_t **slots, uint64_t *taken) {
    const uint64_t before = membership_before(membership), first = membership_slot(membership);
    const size_t bytes = before * sizeof **slots;
    *slots = kept->slots ? kept->slots + first : kept->group;
    if (!kept->slots && before &&
        fd_read_at(kept->slot_file, first * sizeof **slots, kept->group, bytes, "a temporary file") < 0)
        return -1;
    for (*taken = 0; *taken < before && (*slots)[*taken];) ++*taken;
    return 0;
}

static int write_slot(const KeptSets *kept, uint64_t membership, uint64_t index, uint64_t place) {
    const uint64_t slot = membership_slot(membership) + index;
    if (kept->slots) return kept->slots[slot] = place, 0;
    if (pwrite(kept->slot_file, &place, sizeof place, (off_t)(slot * sizeof place)) == sizeof place) return 0;
    return fail_errno("cannot write a temporary file");
}

KeptSets *kept_sets_open(const char *folder, uint64_t slots, double least, uint64_t memory) {
    KeptSets *kept = allocate_zeroed(1, sizeof *kept);
    const uint64_t bytes = slots * sizeof *kept->slots;
    if (bytes <= memory / 4) kept->slots = allocate_zeroed(slots + 1, sizeof *kept->slots), memory -= bytes;
    kept->pending_most = memory / 2 > PENDING_LEAST ? memory / 2 : PENDING_LEAST; // a Buffer doubles
    kept->least = least, kept->slot_file = -1;
    shingler_open(&kept->shingler);
    kept->compress = ZSTD_createCCtx(), kept->decompress = ZSTD_createDCtx();
    if (!kept->compress || !kept->decompress) die(EX_MEMORY, "no memory for a compressor");
    kept->file = spool_create(folder, "the words of documents");
    if (kept->file >= 0 && (kept->slots || open_slots(kept, folder, bytes) == 0)) return kept;
    kept_sets_close(kept);
    return NULL;
}

void kept_sets_close(KeptSets *kept) {
    if (!kept) return;
    if (kept->slot_file >= 0) close(kept->slot_file);
    if (kept->file >= 0) close(kept->file);
    free(kept->slots);
    buffer_close(&kept->pending);
    buffer_close(&kept->stored);
    buffer_close(&kept->bitmap);
    buffer_close(&kept->candidates);
    hash_set_close(&kept->found);
    hash_set_close(&kept->set);
    hash_set_close(&kept->shared);
    shingler_close(&kept->shingler);
    ZSTD_freeCCtx(kept->compress);
    ZSTD_freeDCtx(kept->decompress);
    free(kept);
}

static int read_at(const KeptSets *kept, uint64_t place, void *data, size_t size) {
    if (place >= kept->written) return memcpy(data, kept->pending.data + (place - kept->written), size), 0;
    return fd_read_at(kept->file, place, data, size, "a temporary file") < 0 ? -1 : 0;
}

static int read_old_hashes(KeptSets *kept, uint64_t place) {
    OldPlace old;
    kept->stored.size = 0;
    if (read_at(kept, place, &old, sizeof old) < 0) return -1;
    if (kept->read_old(kept->read_context, &old, &kept->stored) < 0) return -1;
    words_set(&kept->shingler.words, (Bytes){kept->stored.data, kept->stored.size});
    words_hash(&kept->shingler.words, SHINGLE_WORDS, &kept->shingler.hashes);
    return 0;
}

static int read_packed_hashes(KeptSets *kept, const KeptHead *head) {
    Buffer *const words = &kept->shingler.words.text;
    words->size = 0;
    buffer_reserve(words, head->set.bytes);
    words->size = head->set.bytes;
    if (ZSTD_decompressDCtx(kept->decompress, words->data, words->size, kept->stored.data, head->packed) != words->size)
        return fail(EX_IO, "a temporary file has other bytes than were written");
    shingler_hash_again(&kept->shingler);
    return 0;
}

// Sets `hashes` to those of a kept document, equal ones too. They are valid until the next call.
static int read_hashes(KeptSets *kept, uint64_t place, const KeptHead *head, Bytes *hashes) {
    const bool is_old = head->packed == PACKED_OLD;
    const size_t bytes = head->packed ? head->packed : head->set.count * sizeof(uint64_t);
    if (!is_old) {
        kept->stored.size = 0;
        buffer_reserve(&kept->stored, bytes);
        *hashes = (Bytes){kept->stored.data, bytes};
        if (read_at(kept, place, kept->stored.data, bytes) < 0) return -1;
        if (!head->packed) return 0;
    }
    if ((is_old ? read_old_hashes(kept, place) : read_packed_hashes(kept, head)) < 0) return -1;
    *hashes = (Bytes){kept->shingler.hashes.data, kept->shingler.hashes.size};
    return 0;
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

// Prefetches a head and the beginning of its bitmap, so that the cache misses of all candidates overlap.
static void prefetch(const KeptSets *kept, uint64_t place) {
    if (place < kept->written) return;
    const uint8_t *const head = kept->pending.data + (place - kept->written);
    __builtin_prefetch(head);
    __builtin_prefetch(head + 64);
}

void kept_sets_prefetch(const KeptSets *kept, const uint64_t *memberships, size_t count) {
    for (size_t i = 0; kept->slots && i < count; i++) {
        const uint64_t *const slots = kept->slots + membership_slot(memberships[i]);
        for (uint64_t k = 0; k < membership_before(memberships[i]); k += 64 / sizeof *slots)
            __builtin_prefetch(slots + k);
    }
}

// The places of the kept documents in the groups, each once, in the order of the documents. Most are in several groups.
static int find_candidates(KeptSets *kept, const uint64_t *memberships, size_t count, size_t *found) {
    uint64_t taken, most = 0, last = 0;
    const uint64_t *slots;
    bool is_sorted = true;
    for (size_t i = 0; i < count; i++) most += membership_before(memberships[i]);
    hash_set_clear(&kept->found, most);
    kept->candidates.size = 0;
    for (size_t i = 0; i < count; i++) {
        if (read_slots(kept, memberships[i], &slots, &taken) < 0) return -1;
        for (uint64_t k = 0; k < taken; k++) {
            if (!hash_set_add(&kept->found, __builtin_bswap64(slots[k] * 0x9E3779B97F4A7C15))) continue; // 2^64 / phi
            prefetch(kept, slots[k] - 1);
            buffer_add(&kept->candidates, &slots[k], sizeof slots[k]);
            is_sorted &= slots[k] > last, last = slots[k];
        }
    }
    *found = kept->candidates.size / sizeof(uint64_t);
    if (!is_sorted) qsort(kept->candidates.data, *found, sizeof(uint64_t), by_place);
    return 0;
}

// The similarity with the set of `hashes`, of which `other` are distinct; 0 when it is too small.
static double compare(KeptSets *kept, uint64_t own, uint64_t other, Bytes hashes) {
    // shared / (own + other - shared) >= least, with one in favour of rounding
    const double needed = kept->least / (1 + kept->least) * (double)(own + other) - 1;
    uint64_t shared = 0;
    hash_set_clear(&kept->shared, own < other ? own : other);
    for (size_t at = 0; at < hashes.size; at += sizeof(uint64_t)) {
        const uint64_t hash = get_u64(hashes.data + at), rest = hashes.size / sizeof hash - at / sizeof hash - 1;
        shared += hash_set_has(&kept->set, hash) && hash_set_add(&kept->shared, hash);
        if ((double)(shared + rest) < needed) return 0;
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

// Whether the sets may be near-duplicates, by their sizes and bitmaps: 1, 0, or -1 after fail().
static int may_be_near(KeptSets *kept, uint64_t place, const ShingleHead *own, const uint8_t *bitmap,
                       const ShingleHead *other) {
    const uint64_t least = own->count < other->count ? own->count : other->count, sum = own->count + other->count;
    const size_t bytes = bitmap_filter_bytes(other->count);
    if ((double)least / (double)(sum - least) < kept->least) return 0;
    kept->statistics.comparisons++;
    kept->bitmap.size = 0;
    buffer_reserve(&kept->bitmap, bytes);
    if (read_at(kept, place, kept->bitmap.data, bytes) < 0) return -1;
    const uint64_t shared = bitmap_filter_shared_most(bitmap, own->count, kept->bitmap.data, other->count);
    return (double)shared / (double)(sum - shared) >= kept->least;
}

int kept_sets_find(KeptSets *kept, const uint64_t *memberships, size_t count, Bytes set, uint64_t *number,
                   double *similarity) {
    size_t candidates;
    ShingleHead own;
    if (find_candidates(kept, memberships, count, &candidates) < 0) return -1;
    memcpy(&own, set.data, sizeof own);
    const uint8_t *const hashes = set.data + sizeof own, *const bitmap = hashes + own.count * sizeof(uint64_t);
    bool is_ready = false;
    for (size_t i = 0; i < candidates; i++) {
        const uint64_t place = get_u64(kept->candidates.data + i * sizeof place) - 1;
        KeptHead head;
        Bytes other;
        if (read_at(kept, place, &head, sizeof head) < 0) return -1;
        const int is_near = may_be_near(kept, place + sizeof head, &own, bitmap, &head.set);
        if (is_near < 0) return -1;
        if (!is_near) continue;
        if (!is_ready) {
            hash_set_clear(&kept->set, own.count);
            for (uint64_t k = 0; k < own.count; k++) hash_set_add(&kept->set, get_u64(hashes + k * sizeof(uint64_t)));
            is_ready = true;
        }
        kept->statistics.texts++;
        if (read_hashes(kept, place + sizeof head + bitmap_filter_bytes(head.set.count), &head, &other) < 0) return -1;
        *similarity = compare(kept, own.count, head.set.count, other), *number = head.number;
        if (*similarity >= kept->least) return count_removed(kept, place, &head, &own) < 0 ? -1 : 1;
    }
    return 0;
}

// Adds a head, the bitmap and the hashes. When the memory begins to fill, compressed words take the place of the
// hashes: they need less room and more time.
static void add_set(KeptSets *kept, KeptHead *head, Bytes set) {
    const size_t hash_bytes = head->set.count * sizeof(uint64_t), bitmap_bytes = bitmap_filter_bytes(head->set.count);
    const uint8_t *const hashes = set.data + sizeof head->set, *const words = hashes + hash_bytes + bitmap_bytes;
    Buffer *const pending = &kept->pending;
    const size_t most = ZSTD_compressBound(head->set.bytes), start = pending->size;
    const bool is_packed = kept->written + start + hash_bytes > kept->pending_most / 4;
    buffer_add(pending, head, sizeof *head);
    buffer_add(pending, hashes + hash_bytes, bitmap_bytes);
    if (!is_packed) {
        buffer_add(pending, hashes, hash_bytes);
        return;
    }
    buffer_reserve(pending, most);
    head->packed =
        ZSTD_compressCCtx(kept->compress, pending->data + pending->size, most, words, head->set.bytes, PACK_LEVEL);
    if (ZSTD_isError(head->packed)) die(EX_MEMORY, "cannot compress: %s", ZSTD_getErrorName(head->packed));
    memcpy(pending->data + start, head, sizeof *head);
    pending->size += head->packed;
}

// Takes a slot in each group that has a free one and a later member: 1 if there is such a group, 0, or -1.
static int take_slots(KeptSets *kept, const uint64_t *memberships, size_t count) {
    const uint64_t place = kept->written + kept->pending.size;
    bool is_needed = false, is_crowded = false;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *slots;
        uint64_t taken;
        if (memberships[i] & 1) continue;
        if (read_slots(kept, memberships[i], &slots, &taken) < 0) return -1;
        is_crowded |= taken == GROUP_KEPT_MAX;
        if (taken == GROUP_KEPT_MAX) continue;
        if (write_slot(kept, memberships[i], taken, place + 1) < 0) return -1;
        is_needed = true;
    }
    kept->statistics.crowded += is_crowded;
    return is_needed;
}

static int flush_full(KeptSets *kept) {
    if (kept->pending.size < kept->pending_most) return 0;
    if (lseek(kept->file, (off_t)kept->written, SEEK_SET) < 0) return fail_errno("cannot write a temporary file");
    if (fd_write(kept->file, kept->pending.data, kept->pending.size, "a temporary file") < 0) return -1;
    kept->written += kept->pending.size, kept->pending.size = 0;
    return 0;
}

int kept_sets_keep(KeptSets *kept, const uint64_t *memberships, size_t count, Bytes set, uint64_t number) {
    const int is_needed = take_slots(kept, memberships, count);
    if (is_needed <= 0) return is_needed;
    KeptHead head = {.number = number};
    memcpy(&head.set, set.data, sizeof head.set);
    add_set(kept, &head, set);
    return flush_full(kept);
}

void kept_sets_read_old(KeptSets *kept, KeptText *read, void *context) {
    kept->read_old = read, kept->read_context = context;
}

int kept_sets_keep_old(KeptSets *kept, const uint64_t *memberships, size_t count, const KeptOld *old, uint64_t number) {
    const int is_needed = take_slots(kept, memberships, count);
    if (is_needed <= 0) return is_needed;
    const KeptHead head = {.number = number, .packed = PACKED_OLD, .set = old->set};
    buffer_add(&kept->pending, &head, sizeof head);
    buffer_add(&kept->pending, old->bitmap, bitmap_filter_bytes(old->set.count));
    buffer_add(&kept->pending, &old->place, sizeof old->place);
    return flush_full(kept);
}

KeptStatistics kept_sets_statistics(const KeptSets *kept) { return kept->statistics; }
