// The kept documents, on disk.
#include "shardtool/similar/kept_sets.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

enum { PENDING_LEAST = 1 << 20, PACK_LEVEL = 1 };

#define PACKED_OLD     UINT64_MAX
#define NUMBERS_DIFFER (1ull << 63) // in `removed`

// Of a kept document, before its bitmap, and its hashes or words, in the file.
typedef struct {
    uint64_t number;
    uint64_t packed; // bytes of the words, compressed; 0: hashes follow; PACKED_OLD: an OldPlace follows
    ShingleHead set;
    uint64_t removed; // documents that it stands for. Only the owner reads it
} KeptHead;

// Of a thread that searches.
typedef struct {
    pthread_mutex_t lock; // held while it reads what the owner may move
    Buffer stored, candidates;
    Buffer bitmap;       // of the other
    HashSet found;       // candidates, each multiplied: their lower bits are alike
    HashSet set, shared; // of the document that is compared; what the other has of it
    Shingler shingler;   // of the other
    ZSTD_DCtx *decompress;
} KeptSearch;

struct KeptSets {
    double least;
    int file;         // of KeptHead and what follows it
    uint64_t written; // bytes of it; `pending` follows
    uint64_t pending_most;
    Buffer pending;
    uint64_t end;         // of what workers may read: atomic
    KeptSearch *searches; // one for each worker, then that of the owner
    unsigned workers;
    KeptText *read_old;
    void *read_context;
    ZSTD_CCtx *compress;
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
    for (*taken = 0; *taken < before && __atomic_load_n(&(*slots)[*taken], __ATOMIC_RELAXED);) ++*taken;
    return 0;
}

static int write_slot(const KeptSets *kept, uint64_t membership, uint64_t index, uint64_t place) {
    const uint64_t slot = membership_slot(membership) + index;
    if (kept->slots) return __atomic_store_n(&kept->slots[slot], place, __ATOMIC_RELAXED), 0;
    if (pwrite(kept->slot_file, &place, sizeof place, (off_t)(slot * sizeof place)) == sizeof place) return 0;
    return fail_errno("cannot write a temporary file");
}

KeptSets *kept_sets_open(const char *folder, uint64_t slots, double least, uint64_t memory, unsigned workers) {
    KeptSets *kept = allocate_zeroed(1, sizeof *kept);
    const uint64_t bytes = slots * sizeof *kept->slots;
    if (bytes <= memory / 4) kept->slots = allocate_zeroed(slots + 1, sizeof *kept->slots), memory -= bytes;
    kept->pending_most = memory / 2 > PENDING_LEAST ? memory / 2 : PENDING_LEAST; // a Buffer doubles
    kept->least = least, kept->slot_file = -1;
    kept->workers = workers, kept->searches = allocate_zeroed(workers + 1, sizeof *kept->searches);
    kept->compress = ZSTD_createCCtx();
    bool is_ready = kept->compress != NULL;
    for (unsigned i = 0; i <= workers; i++) {
        KeptSearch *search = &kept->searches[i];
        pthread_mutex_init(&search->lock, NULL);
        shingler_open(&search->shingler);
        is_ready &= (search->decompress = ZSTD_createDCtx()) != NULL;
    }
    if (!is_ready) die(EX_MEMORY, "no memory for a compressor");
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
    for (unsigned i = 0; i <= kept->workers; i++) {
        KeptSearch *search = &kept->searches[i];
        pthread_mutex_destroy(&search->lock);
        buffer_close(&search->stored);
        buffer_close(&search->bitmap);
        buffer_close(&search->candidates);
        hash_set_close(&search->found);
        hash_set_close(&search->set);
        hash_set_close(&search->shared);
        shingler_close(&search->shingler);
        ZSTD_freeDCtx(search->decompress);
    }
    free(kept->searches);
    ZSTD_freeCCtx(kept->compress);
    free(kept);
}

// No worker reads while the owner allocates or writes `pending`: the owner has the locks of all workers then.
static void lock_workers(KeptSets *kept) {
    for (unsigned i = 0; i < kept->workers; i++) pthread_mutex_lock(&kept->searches[i].lock);
}

static void unlock_workers(KeptSets *kept) {
    for (unsigned i = 0; i < kept->workers; i++) pthread_mutex_unlock(&kept->searches[i].lock);
}

static int read_at(const KeptSets *kept, uint64_t place, void *data, size_t size) {
    if (place >= kept->written) return memcpy(data, kept->pending.data + (place - kept->written), size), 0;
    return fd_read_at(kept->file, place, data, size, "a temporary file") < 0 ? -1 : 0;
}

static int read_old_hashes(const KeptSets *kept, KeptSearch *search, uint64_t place) {
    OldPlace old;
    search->stored.size = 0;
    if (read_at(kept, place, &old, sizeof old) < 0) return -1;
    if (kept->read_old(kept->read_context, &old, &search->stored) < 0) return -1;
    words_set(&search->shingler.words, (Bytes){search->stored.data, search->stored.size});
    words_hash(&search->shingler.words, SHINGLE_WORDS, &search->shingler.hashes);
    return 0;
}

static int read_packed_hashes(KeptSearch *search, const KeptHead *head) {
    Buffer *const words = &search->shingler.words.text;
    words->size = 0;
    buffer_reserve(words, head->set.bytes);
    words->size = head->set.bytes;
    if (ZSTD_decompressDCtx(search->decompress, words->data, words->size, search->stored.data, head->packed) !=
        words->size)
        return fail(EX_IO, "a temporary file has other bytes than were written");
    shingler_hash_again(&search->shingler);
    return 0;
}

// Sets `hashes` to those of a kept document, equal ones too. They are valid until the next call.
static int read_hashes(const KeptSets *kept, KeptSearch *search, uint64_t place, const KeptHead *head, Bytes *hashes) {
    const bool is_old = head->packed == PACKED_OLD;
    const size_t bytes = head->packed ? head->packed : head->set.count * sizeof(uint64_t);
    if (!is_old) {
        search->stored.size = 0;
        buffer_reserve(&search->stored, bytes);
        *hashes = (Bytes){search->stored.data, bytes};
        if (read_at(kept, place, search->stored.data, bytes) < 0) return -1;
        if (!head->packed) return 0;
    }
    if ((is_old ? read_old_hashes(kept, search, place) : read_packed_hashes(search, head)) < 0) return -1;
    *hashes = (Bytes){search->shingler.hashes.data, search->shingler.hashes.size};
    return 0;
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

// The places + 1, from `from` on and below `to`, of the kept documents in the groups, each once, in the order of the
// documents. Most are in several groups.
static int find_candidates(KeptSets *kept, KeptSearch *search, const KeptQuery *query, uint64_t from, uint64_t to) {
    Buffer *const candidates = &search->candidates;
    const uint64_t *slots;
    uint64_t taken, last = 0;
    size_t distinct = 0;
    bool is_sorted = true;
    candidates->size = 0;
    for (size_t i = 0; i < query->count; i++) {
        if (read_slots(kept, query->memberships[i], &slots, &taken) < 0) return -1;
        for (uint64_t k = 0; k < taken; k++) {
            const uint64_t place = __atomic_load_n(&slots[k], __ATOMIC_RELAXED);
            if (place >= from && place < to) buffer_add(candidates, &place, sizeof place);
        }
    }
    uint64_t *const places = (uint64_t *)(void *)candidates->data;
    const size_t count = candidates->size / sizeof *places;
    hash_set_clear(&search->found, count);
    for (size_t i = 0; i < count; i++) {
        if (!hash_set_add(&search->found, __builtin_bswap64(places[i] * 0x9E3779B97F4A7C15))) continue; // 2^64 / phi
        prefetch(kept, places[i] - 1);
        is_sorted &= places[i] > last, last = places[i];
        places[distinct++] = last;
    }
    candidates->size = distinct * sizeof *places;
    if (!is_sorted) qsort(places, distinct, sizeof *places, by_place);
    return 0;
}

// The similarity with the set of `hashes`, of which `other` are distinct; 0 when it is too small.
static double compare(KeptSearch *search, double least, uint64_t own, uint64_t other, Bytes hashes) {
    // shared / (own + other - shared) >= least, with one in favour of rounding
    const double needed = least / (1 + least) * (double)(own + other) - 1;
    uint64_t shared = 0;
    hash_set_clear(&search->shared, own < other ? own : other);
    for (size_t at = 0; at < hashes.size; at += sizeof(uint64_t)) {
        const uint64_t hash = get_u64(hashes.data + at), rest = hashes.size / sizeof hash - at / sizeof hash - 1;
        shared += hash_set_has(&search->set, hash) && hash_set_add(&search->shared, hash);
        if ((double)(shared + rest) < needed) return 0;
    }
    return (double)shared / (double)(own + other - shared);
}

static int count_removed(KeptSets *kept, uint64_t place, const ShingleHead *set) {
    KeptStatistics *statistics = &kept->statistics;
    const uint64_t removed_at = place + offsetof(KeptHead, removed);
    KeptHead head;
    if (read_at(kept, place, &head, sizeof head) < 0) return -1;
    head.removed++;
    if (head.set.text == set->text && head.set.digits != set->digits) {
        statistics->number_documents++, statistics->number_families += !(head.removed & NUMBERS_DIFFER);
        head.removed |= NUMBERS_DIFFER;
    }
    const uint64_t removed = head.removed & ~NUMBERS_DIFFER;
    if (removed > statistics->largest) statistics->largest = removed;
    if (place >= kept->written)
        return memcpy(kept->pending.data + (removed_at - kept->written), &head.removed, sizeof head.removed), 0;
    if (pwrite(kept->file, &head.removed, sizeof head.removed, (off_t)removed_at) == sizeof head.removed) return 0;
    return fail_errno("cannot write a temporary file");
}

// Whether the sets may be near-duplicates, by their sizes and bitmaps: 1, 0, or -1 after fail().
static int may_be_near(const KeptSets *kept, KeptSearch *search, uint64_t place, const ShingleHead *own,
                       const uint8_t *bitmap, const ShingleHead *other, uint64_t *comparisons) {
    const uint64_t least = own->count < other->count ? own->count : other->count, sum = own->count + other->count;
    const size_t bytes = bitmap_filter_bytes(other->count);
    if ((double)least / (double)(sum - least) < kept->least) return 0;
    ++*comparisons;
    search->bitmap.size = 0;
    buffer_reserve(&search->bitmap, bytes);
    if (read_at(kept, place, search->bitmap.data, bytes) < 0) return -1;
    const uint64_t shared = bitmap_filter_shared_most(bitmap, own->count, search->bitmap.data, other->count);
    return (double)shared / (double)(sum - shared) >= kept->least;
}

// Looks at the kept documents below the place `to`, + 1, from `found` on.
static int search_below(KeptSets *kept, KeptSearch *search, const KeptQuery *query, uint64_t to, KeptFound *found) {
    const bool is_owner = search == &kept->searches[kept->workers];
    ShingleHead own;
    if (find_candidates(kept, search, query, found->next, to) < 0) return -1;
    memcpy(&own, query->set.data, sizeof own);
    const uint8_t *const hashes = query->set.data + sizeof own, *const bitmap = hashes + own.count * sizeof(uint64_t);
    bool is_ready = false;
    for (size_t i = 0; i < search->candidates.size / sizeof(uint64_t); i++) {
        const uint64_t place = get_u64(search->candidates.data + i * sizeof place) - 1;
        KeptHead head;
        Bytes other;
        found->next = place + 1;
        if (read_at(kept, place, &head, offsetof(KeptHead, removed)) < 0) return -1;
        const int is_near =
            may_be_near(kept, search, place + sizeof head, &own, bitmap, &head.set, &found->comparisons);
        if (is_near < 0) return -1;
        if (!is_near) continue;
        if (head.packed == PACKED_OLD && !is_owner) return found->comparisons--, 0; // datasets are for one thread
        if (!is_ready) {
            hash_set_clear(&search->set, own.count);
            for (uint64_t k = 0; k < own.count; k++) hash_set_add(&search->set, get_u64(hashes + k * sizeof(uint64_t)));
            is_ready = true;
        }
        found->texts++;
        const uint64_t hashes_at = place + sizeof head + bitmap_filter_bytes(head.set.count);
        if (read_hashes(kept, search, hashes_at, &head, &other) < 0) return -1;
        found->similarity = compare(search, kept->least, own.count, head.set.count, other);
        if (found->similarity >= kept->least) return found->place = place + 1, found->number = head.number, 0;
    }
    found->next = to;
    return 0;
}

int kept_sets_search(KeptSets *kept, unsigned worker, const KeptQuery *query, KeptFound *found) {
    KeptSearch *const search = &kept->searches[worker];
    *found = (KeptFound){0};
    if (!kept->slots) return 0;
    pthread_mutex_lock(&search->lock);
    const uint64_t end = __atomic_load_n(&kept->end, __ATOMIC_ACQUIRE);
    const int status = search_below(kept, search, query, end + 1, found);
    pthread_mutex_unlock(&search->lock);
    return status;
}

int kept_sets_find(KeptSets *kept, const KeptQuery *query, KeptFound *found) {
    ShingleHead own;
    if (!found->place && search_below(kept, &kept->searches[kept->workers], query, UINT64_MAX, found) < 0) return -1;
    kept->statistics.comparisons += found->comparisons, kept->statistics.texts += found->texts;
    if (!found->place) return 0;
    memcpy(&own, query->set.data, sizeof own);
    return count_removed(kept, found->place - 1, &own) < 0 ? -1 : 1;
}

static void reserve(KeptSets *kept, size_t more) {
    if (more <= kept->pending.capacity - kept->pending.size) return;
    lock_workers(kept);
    buffer_reserve(&kept->pending, more);
    unlock_workers(kept);
}

// Adds a head, the bitmap and the hashes. When the memory begins to fill, compressed words take the place of the
// hashes: they need less room and more time.
static void add_set(KeptSets *kept, KeptHead *head, Bytes set) {
    const size_t hash_bytes = head->set.count * sizeof(uint64_t), bitmap_bytes = bitmap_filter_bytes(head->set.count);
    const uint8_t *const hashes = set.data + sizeof head->set, *const words = hashes + hash_bytes + bitmap_bytes;
    Buffer *const pending = &kept->pending;
    const size_t most = ZSTD_compressBound(head->set.bytes), start = pending->size;
    const bool is_packed = kept->written + start + hash_bytes > kept->pending_most / 4;
    reserve(kept, sizeof *head + bitmap_bytes + (is_packed ? most : hash_bytes));
    buffer_add(pending, head, sizeof *head);
    buffer_add(pending, hashes + hash_bytes, bitmap_bytes);
    if (!is_packed) {
        buffer_add(pending, hashes, hash_bytes);
        return;
    }
    head->packed =
        ZSTD_compressCCtx(kept->compress, pending->data + pending->size, most, words, head->set.bytes, PACK_LEVEL);
    if (ZSTD_isError(head->packed)) die(EX_MEMORY, "cannot compress: %s", ZSTD_getErrorName(head->packed));
    memcpy(pending->data + start, head, sizeof *head);
    pending->size += head->packed;
}

// Takes a slot in each group that has a free one and a later member: 1 if there is such a group, 0, or -1.
static int take_slots(KeptSets *kept, const KeptQuery *query) {
    const uint64_t place = kept->written + kept->pending.size;
    bool is_needed = false, is_crowded = false;
    for (size_t i = 0; i < query->count; i++) {
        const uint64_t member = query->memberships[i], *slots;
        uint64_t taken;
        if (member & 1) continue;
        if (read_slots(kept, member, &slots, &taken) < 0) return -1;
        is_crowded |= taken == GROUP_KEPT_MAX;
        if (taken == GROUP_KEPT_MAX) continue;
        if (write_slot(kept, member, taken, place + 1) < 0) return -1;
        is_needed = true;
    }
    kept->statistics.crowded += is_crowded;
    return is_needed;
}

static int flush_full(KeptSets *kept) {
    int status = 0;
    if (kept->pending.size >= kept->pending_most) {
        lock_workers(kept);
        status = lseek(kept->file, (off_t)kept->written, SEEK_SET) < 0
                     ? fail_errno("cannot write a temporary file")
                     : fd_write(kept->file, kept->pending.data, kept->pending.size, "a temporary file");
        if (status == 0) kept->written += kept->pending.size, kept->pending.size = 0;
        unlock_workers(kept);
    }
    __atomic_store_n(&kept->end, kept->written + kept->pending.size, __ATOMIC_RELEASE);
    return status;
}

int kept_sets_keep(KeptSets *kept, const KeptQuery *query, uint64_t number) {
    const int is_needed = take_slots(kept, query);
    if (is_needed <= 0) return is_needed;
    KeptHead head = {.number = number};
    memcpy(&head.set, query->set.data, sizeof head.set);
    add_set(kept, &head, query->set);
    return flush_full(kept);
}

void kept_sets_read_old(KeptSets *kept, KeptText *read, void *context) {
    kept->read_old = read, kept->read_context = context;
}

int kept_sets_keep_old(KeptSets *kept, const KeptQuery *query, const KeptOld *old, uint64_t number) {
    const int is_needed = take_slots(kept, query);
    if (is_needed <= 0) return is_needed;
    const KeptHead head = {.number = number, .packed = PACKED_OLD, .set = old->set};
    const size_t bitmap_bytes = bitmap_filter_bytes(old->set.count);
    reserve(kept, sizeof head + bitmap_bytes + sizeof old->place);
    buffer_add(&kept->pending, &head, sizeof head);
    buffer_add(&kept->pending, old->bitmap, bitmap_bytes);
    buffer_add(&kept->pending, &old->place, sizeof old->place);
    return flush_full(kept);
}

KeptStatistics kept_sets_statistics(const KeptSets *kept) { return kept->statistics; }
