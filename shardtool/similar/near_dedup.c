// Three passes: the bands of all documents, sorted into groups of documents that share one; the memberships of
// documents in groups, sorted by document; the documents in order, those in groups with their sets of shingles.
#include "shardtool/similar/near_dedup.h"
#include "common/err.h"
#include "common/log.h"
#include "shardtool/similar/kept_sets.h"
#include "shardtool/support/record_sort.h"
#include <inttypes.h>
#include <stdlib.h>

enum { QUEUE_BYTES = 1 << 20 }; // of the queue that are read before the rest moves to its front
enum { KEY_UNUSED = 16 };       // bits of a band's key. Bands that differ in these alone cost comparisons
enum { FIXED_BYTES = 64 << 20, THREAD_BYTES = 16 << 20 }; // beside the sorting: buffers, the vocabulary, the output

// A document that stays and has more than TEXT_TOKENS_MAX tokens. There are few, so that each is compared with all.
typedef struct {
    DocumentHash hash;
    uint64_t number, removed; // removed: equal documents
} LongDocument;

typedef struct {
    const NearDedup *dedup;
    const char *folder; // of temporary files
    TextMap map;
    Shingler *shinglers; // one for each worker
    RecordSort *bands, *members;
    uint64_t slots;
    uint64_t without_words, too_long;
    KeptSets *kept;
    Buffer longs; // LongDocument
    // The memberships of documents that were handed to workers, a count before those of each; `queue_at` is read next.
    Buffer queue;
    size_t queue_at;
    SortRecord next; // the first membership that is not in the queue
    int has_next;    // as record_sort_next
} NearWork;

static uint64_t band_count(const NearDedup *dedup) {
    return (dedup->inputs->documents[SPLIT_TRAIN] + dedup->inputs->documents[SPLIT_VAL]) * MINHASH_BANDS;
}

static uint64_t fixed_memory(const NearWork *work) {
    return FIXED_BYTES + text_map_threads(&work->map) * (uint64_t)THREAD_BYTES;
}

int near_dedup_check(const NearDedup *dedup) {
    const NearWork work = {.map.threads = dedup->threads};
    const uint64_t need = fixed_memory(&work) + record_sort_least_memory(band_count(dedup));
    if (dedup->memory >= need) return 0;
    char memory[16];
    return fail(EX_USAGE, "--memory of %s is too small for %" PRIu64 " documents: give it %" PRIu64 "M or more",
                human_bytes(memory, (double)dedup->memory), band_count(dedup) / MINHASH_BANDS, ((need - 1) >> 20) + 1);
}

static int sign_text(void *context, unsigned worker, Bytes text, Buffer *out) {
    const NearWork *work = context;
    MinhashBand bands[MINHASH_BANDS];
    if (shingler_bands(&work->shinglers[worker], text, bands))
        for (unsigned i = 0; i < MINHASH_BANDS; i++) buffer_add(out, &bands[i].key, sizeof bands[i].key);
    return 0;
}

static int take_bands(void *context, const TextDocument *document, Bytes result, Bytes ids) {
    (void)ids;
    NearWork *work = context;
    removal_report_count(work->dedup->report, document);
    work->too_long += document->cursor != NULL, work->without_words += !document->cursor && !result.size;
    for (size_t at = 0; at < result.size; at += sizeof(uint64_t))
        if (record_sort_add(work->bands, (SortRecord){get_u64(result.data + at) >> KEY_UNUSED, document->number}) < 0)
            return -1;
    return 0;
}

// Records with one key are a group. A document has its place in `members` when the next record shows whether it is the
// last of its group.
static int find_groups(NearWork *work) {
    SortRecord last = {0}, record;
    uint64_t before = 0; // members of the group before `last`
    bool is_first = true;
    int status;
    do {
        status = record_sort_next(work->bands, &record);
        const bool is_same = status > 0 && !is_first && record.key == last.key;
        if (is_same && record.value == last.value) continue;
        if (!is_first && (is_same || before)) {
            const uint64_t member = membership(work->slots, before, !is_same);
            if (record_sort_add(work->members, (SortRecord){last.value, member}) < 0) return -1;
        }
        if (!is_same && before) work->slots += group_slots(before + 1);
        before = is_same ? before + 1 : 0;
        last = record, is_first = false;
    } while (status > 0);
    return status;
}

static bool wants_set(void *context, const TextDocument *document) {
    NearWork *work = context;
    const size_t start = work->queue.size;
    uint64_t count = 0;
    if (work->has_next <= 0 || work->next.key != document->number) return false;
    buffer_add(&work->queue, &count, sizeof count);
    for (; work->has_next > 0 && work->next.key == document->number; count++) {
        buffer_add(&work->queue, &work->next.value, sizeof work->next.value);
        work->has_next = record_sort_next(work->members, &work->next);
    }
    put_u64(work->queue.data + start, count);
    return true;
}

static int make_set(void *context, unsigned worker, Bytes text, Buffer *out) {
    const NearWork *work = context;
    return shingler_set(&work->shinglers[worker], text, out), 0;
}

static int report_removed(const NearWork *work, const TextDocument *document, uint64_t kept, double similarity) {
    removal_report_begin(work->dedup->report, document);
    removal_report_add_kept(work->dedup->report, kept, similarity);
    return removal_report_end(work->dedup->report) < 0 ? -1 : 1;
}

// Whether a document that is too long goes: one before has its ids.
static int decide_long(NearWork *work, const TextDocument *document) {
    LongDocument own = {.number = document->number}, *other = (LongDocument *)(void *)work->longs.data;
    if (documents_hash(document->cursor, &own.hash) < 0) return -1;
    for (size_t i = 0; i < work->longs.size / sizeof own; i++, other++) {
        if (other->hash.low != own.hash.low || other->hash.high != own.hash.high) continue;
        other->removed++;
        return report_removed(work, document, other->number, 1);
    }
    return buffer_add(&work->longs, &own, sizeof own), 0;
}

// Whether a document with the next memberships of the queue goes.
static int decide(NearWork *work, const TextDocument *document, Bytes set) {
    const uint64_t *memberships = (const uint64_t *)(const void *)(work->queue.data + work->queue_at) + 1;
    const size_t count = memberships[-1];
    uint64_t kept;
    double similarity;
    int status = kept_sets_find(work->kept, memberships, count, set, &kept, &similarity);
    if (status == 0) status = kept_sets_keep(work->kept, memberships, count, set, document->number);
    if (status > 0) status = report_removed(work, document, kept, similarity);
    work->queue_at += (1 + count) * sizeof *memberships;
    if (work->queue_at > QUEUE_BYTES || work->queue_at == work->queue.size) {
        memmove(work->queue.data, work->queue.data + work->queue_at, work->queue.size - work->queue_at);
        work->queue.size -= work->queue_at, work->queue_at = 0;
    }
    return status;
}

static int take_set(void *context, const TextDocument *document, Bytes result, Bytes ids) {
    NearWork *work = context;
    if (work->has_next < 0) return -1;
    const int removed = document->is_wanted ? decide(work, document, result)
                        : document->cursor  ? decide_long(work, document)
                                            : 0;
    if (removed) return removed < 0 ? -1 : 0;
    return text_document_copy(document, work->dedup->inputs, ids, work->dedup->output);
}

static void log_statistics(const NearWork *work) {
    KeptStatistics statistics = kept_sets_statistics(work->kept);
    const LongDocument *longs = (const LongDocument *)(const void *)work->longs.data;
    for (size_t i = 0; i < work->longs.size / sizeof *longs; i++)
        if (longs[i].removed > statistics.largest) statistics.largest = longs[i].removed;
    if (statistics.crowded)
        log_warn("%" PRIu64
                 " documents that stay share a band with %d others that stay, as texts with much common text do: "
                 "later copies of them are compared with those others, and may stay",
                 statistics.crowded, GROUP_KEPT_MAX);
    log_line("%" PRIu64 " comparisons; at most %" PRIu64 " document%s removed for one that stays",
             statistics.comparisons, statistics.largest, PLURAL(statistics.largest));
    if (statistics.number_documents)
        log_line("%" PRIu64 " removed document%s equal to the one that stays but for the numbers in them, for %" PRIu64
                 " document%s",
                 statistics.number_documents, statistics.number_documents == 1 ? " is" : "s are",
                 statistics.number_families, PLURAL(statistics.number_families));
    if (work->without_words)
        log_line("%" PRIu64 " document%s no words and stay", work->without_words,
                 work->without_words == 1 ? " has" : "s have");
    if (work->too_long)
        log_warn("%" PRIu64 " document%s of more than %d tokens: only equal ones of these are found", work->too_long,
                 PLURAL(work->too_long), TEXT_TOKENS_MAX);
}

static int run_passes(NearWork *work) {
    const NearDedup *dedup = work->dedup;
    const uint64_t bands = band_count(dedup), documents = bands / MINHASH_BANDS;
    const uint64_t memory = dedup->memory - fixed_memory(work), rest = memory - record_sort_least_memory(bands);
    const uint64_t set_memory = rest < memory / 2 ? rest : memory / 2; // beside the members
    const RecordLimits band_limits = {bands, 1ull << (64 - KEY_UNUSED), documents};
    const RecordLimits member_limits = {bands, documents, membership(bands + 1, 0, false)};
    if (!(work->bands = record_sort_open(work->folder, &band_limits, memory))) return -1;
    work->map.work = sign_text, work->map.take = take_bands;
    if (text_map_run(&work->map) < 0) return -1;
    if (!(work->members = record_sort_open(work->folder, &member_limits, memory - set_memory))) return -1;
    if (find_groups(work) < 0) return -1;
    record_sort_close(work->bands);
    work->bands = NULL;
    if (!(work->kept = kept_sets_open(work->folder, work->slots, dedup->least, set_memory))) return -1;
    if ((work->has_next = record_sort_next(work->members, &work->next)) < 0) return -1;
    work->map.wants = wants_set, work->map.work = make_set, work->map.take = take_set;
    return text_map_run(&work->map);
}

int near_dedup_run(const NearDedup *dedup) {
    NearWork work = {.dedup = dedup};
    work.map = (TextMap){.inputs = dedup->inputs,
                         .output = dedup->output,
                         .vocab = dedup->vocab,
                         .threads = dedup->threads,
                         .context = &work};
    if (dedup->output && !dedup->output->to_stdout) work.folder = dedup->output->build.target;
    const unsigned threads = text_map_threads(&work.map);
    work.shinglers = allocate_zeroed(threads, sizeof *work.shinglers);
    for (unsigned i = 0; i < threads; i++) shingler_open(&work.shinglers[i]);
    const int status = run_passes(&work);
    if (status == 0) log_statistics(&work);
    for (unsigned i = 0; i < threads; i++) shingler_close(&work.shinglers[i]);
    free(work.shinglers);
    record_sort_close(work.bands);
    record_sort_close(work.members);
    kept_sets_close(work.kept);
    buffer_close(&work.queue);
    buffer_close(&work.longs);
    return status;
}
