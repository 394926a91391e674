// Three passes: the bands of all documents, sorted into groups of documents that share one; the memberships of
// documents in groups, sorted by document; the documents in order, those in groups with their sets of shingles.
#include "shardtool/similar/near_dedup.h"
#include "common/err.h"
#include "common/log.h"
#include "shardtool/similar/kept_sets.h"
#include "shardtool/support/record_sort.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_BITS = 8 * PART_KEY_BYTES }; // of a band's key. Bands that differ in the other bits alone cost comparisons
enum { FIXED_BYTES = 64 << 20, THREAD_BYTES = 16 << 20 }; // beside the sorting: buffers, the vocabulary, the output

// A document that stays and has more than TEXT_TOKENS_MAX tokens. There are few, so that each is compared with all.
typedef struct {
    DocumentHash hash;
    uint64_t number, removed; // removed: equal documents
} LongDocument;

// Pass 1: the bands of all documents.
typedef struct {
    const NearDedup *dedup;
    Shingler *shinglers; // one for each worker
    RecordSort *sort;    // the number of a document by the key of its band
    uint64_t signed_documents;
} BandPass;

// Instead, for a part: the entries of its file.
typedef struct {
    PartWriter *writer;
    Shingler *shinglers;
} SignPass;

// Pass 2: documents that share a band are a group.
typedef struct {
    uint64_t old_documents;
    RecordSort *bands; // of pass 1
    RecordSort *sort;  // a membership by the number of its document
    uint64_t slots;
    SortRecord held[GROUP_KEPT_MAX + 1]; // the first old members of a group, then its first other one
    unsigned held_count, held_next;      // held_next: the next to be returned, after held_count none yet
    bool is_returning;
} GroupPass;

// Pass 3: the documents in order.
typedef struct {
    const NearDedup *dedup;
    Shingler *shinglers; // of pass 1
    RecordSort *members; // of pass 2
    SortRecord next;     // the first membership that was not read
    int has_next;        // as record_sort_next
    Buffer old_members;  // of a document of keep_old
    KeptSets *kept;
    Buffer longs;       // LongDocument
    DocumentCursor old; // of keep_old
    unsigned old_dataset;
    uint64_t documents, too_long;
} ComparePass;

static uint64_t band_count(const NearDedup *dedup) {
    const uint64_t *documents = dedup->inputs->documents;
    return (dedup->old->documents + documents[SPLIT_TRAIN] + documents[SPLIT_VAL]) * MINHASH_BANDS;
}

static TextMap text_map(const NearDedup *dedup) {
    return (TextMap){
        .inputs = dedup->inputs, .output = dedup->output, .vocab = dedup->vocab, .threads = dedup->threads};
}

static uint64_t fixed_memory(const TextMap *map) {
    return FIXED_BYTES + text_map_threads(map) * (uint64_t)THREAD_BYTES;
}

const char *near_dedup_rules(void) {
    static char rules[32];
    snprintf(rules, sizeof rules, "words=%d;minhash=%d", WORDS_VERSION, MINHASH_VERSION);
    return rules;
}

int near_dedup_check(const NearDedup *dedup) {
    const TextMap map = text_map(dedup);
    const uint64_t need = fixed_memory(&map) + record_sort_least_memory(band_count(dedup));
    if (dedup->memory >= need) return 0;
    char memory[16];
    return fail(EX_USAGE, "--memory of %s is too small for %" PRIu64 " documents: give it %" PRIu64 "M or more",
                human_bytes(memory, (double)dedup->memory), band_count(dedup) / MINHASH_BANDS, ((need - 1) >> 20) + 1);
}

// Appends the upper bytes of the keys of a text that has words.
static bool add_keys(Shingler *shingler, Bytes text, Buffer *out) {
    MinhashBand bands[MINHASH_BANDS];
    if (!shingler_bands(shingler, text, bands)) return false;
    for (unsigned i = 0; i < MINHASH_BANDS; i++)
        buffer_add(out, (const uint8_t *)&bands[i].key + sizeof bands[i].key - PART_KEY_BYTES, PART_KEY_BYTES);
    return true;
}

static int sign_text(void *context, unsigned worker, Bytes notes, Bytes text, Buffer *out) {
    (void)notes;
    const BandPass *pass = context;
    return add_keys(&pass->shinglers[worker], text, out), 0;
}

static int add_bands(BandPass *pass, uint64_t number, const uint8_t *keys) {
    for (unsigned i = 0; keys && i < MINHASH_BANDS; i++, keys += PART_KEY_BYTES) {
        const uint64_t key = get_u32(keys) | (uint64_t)get_u16(keys + sizeof(uint32_t)) << 32;
        if (record_sort_add(pass->sort, (SortRecord){key, number}) < 0) return -1;
    }
    return 0;
}

static int take_bands(void *context, const TextDocument *document, Bytes result, Bytes ids) {
    (void)ids;
    BandPass *pass = context;
    pass->signed_documents += result.size != 0;
    return add_bands(pass, pass->dedup->old->documents + document->number, result.size ? result.data : NULL);
}

static int read_old_bands(void *context, PartFile *file, uint64_t number) {
    PartBands bands;
    return part_file_bands(file, &bands) < 0 ? -1 : add_bands(context, number, bands.keys);
}

static int read_bands(void *context, PartFile *file, uint64_t number) {
    BandPass *pass = context;
    PartBands bands;
    if (part_file_bands(file, &bands) < 0) return -1;
    pass->signed_documents += bands.count != 0;
    return add_bands(pass, pass->dedup->old->documents + number, bands.keys);
}

static int sign_documents(BandPass *pass, TextMap *map) {
    const PartSet *parts = pass->dedup->parts;
    if (old_datasets_visit(pass->dedup->old, read_old_bands, pass) < 0) return -1;
    if (parts->count) return part_set_visit(parts, read_bands, pass);
    map->context = pass, map->work = sign_text, map->take = take_bands;
    return text_map_run(map);
}

// The next band in a group with a document that is not old. Old documents stay, so that the first ones of a group take
// its slots, and the others are not seen.
static int next_band(GroupPass *pass, SortRecord *record) {
    int status;
    if (pass->is_returning && pass->held_next < pass->held_count) return *record = pass->held[pass->held_next++], 1;
    if (pass->is_returning) pass->is_returning = false, pass->held_count = 0;
    while ((status = record_sort_next(pass->bands, record)) > 0) {
        SortRecord *const held = pass->held;
        if (pass->held_count && held[0].key != record->key) pass->held_count = 0;
        const unsigned count = pass->held_count;
        const bool is_old = record->value < pass->old_documents;
        if (!is_old && !count) return 1;
        if (!is_old || (count < GROUP_KEPT_MAX && !(count && held[count - 1].value == record->value)))
            held[pass->held_count++] = *record;
        if (is_old) continue;
        pass->is_returning = true, pass->held_next = 1;
        return *record = held[0], 1;
    }
    return status;
}

// Records with one key are a group. A document has its place in `sort` when the next record shows whether it is the
// last of its group.
static int find_groups(GroupPass *pass) {
    SortRecord last = {0}, record;
    uint64_t before = 0; // members of the group before `last`
    bool is_first = true;
    int status;
    do {
        status = next_band(pass, &record);
        const bool is_same = status > 0 && !is_first && record.key == last.key;
        if (is_same && record.value == last.value) continue;
        if (!is_first && (is_same || before)) {
            const uint64_t member = membership(pass->slots, before, !is_same);
            if (record_sort_add(pass->sort, (SortRecord){last.value, member}) < 0) return -1;
        }
        if (!is_same && before) pass->slots += group_slots(before + 1);
        before = is_same ? before + 1 : 0;
        last = record, is_first = false;
    } while (status > 0);
    return status;
}

// Appends the memberships of a document, if it has any.
static bool read_memberships(ComparePass *pass, uint64_t number, Buffer *out) {
    if (pass->has_next <= 0 || pass->next.key != number) return false;
    for (; pass->has_next > 0 && pass->next.key == number;
         pass->has_next = record_sort_next(pass->members, &pass->next))
        buffer_add(out, &pass->next.value, sizeof pass->next.value);
    return true;
}

static bool wants_set(void *context, const TextDocument *document, Buffer *notes) {
    ComparePass *pass = context;
    return read_memberships(pass, pass->dedup->old->documents + document->number, notes);
}

static KeptQuery query_of(Bytes memberships, Bytes set) {
    return (KeptQuery){(const uint64_t *)(const void *)memberships.data, memberships.size / sizeof(uint64_t), set};
}

// A KeptFound, then the set.
static int make_set(void *context, unsigned worker, Bytes notes, Bytes text, Buffer *out) {
    const ComparePass *pass = context;
    const size_t start = out->size;
    KeptFound found = {0};
    buffer_add(out, &found, sizeof found);
    kept_sets_prefetch(pass->kept, (const uint64_t *)(const void *)notes.data, notes.size / sizeof(uint64_t));
    shingler_set(&pass->shinglers[worker], text, out);
    const KeptQuery query =
        query_of(notes, (Bytes){out->data + start + sizeof found, out->size - start - sizeof found});
    const int status = kept_sets_search(pass->kept, worker, &query, &found);
    memcpy(out->data + start, &found, sizeof found);
    return status;
}

static int report_removed(const ComparePass *pass, const TextDocument *document, uint64_t kept, double similarity) {
    removal_report_begin(pass->dedup->report, document);
    if (removal_report_add_kept(pass->dedup->report, kept, similarity) < 0) return -1;
    return removal_report_end(pass->dedup->report) < 0 ? -1 : 1;
}

// Whether a document that is too long goes: one before has its ids.
static int decide_long(ComparePass *pass, const TextDocument *document) {
    LongDocument own = {.number = pass->dedup->old->documents + document->number},
                 *other = (LongDocument *)(void *)pass->longs.data;
    if (documents_hash(document->cursor, &own.hash) < 0) return -1;
    for (size_t i = 0; i < pass->longs.size / sizeof own; i++, other++) {
        if (other->hash.low != own.hash.low || other->hash.high != own.hash.high) continue;
        other->removed++;
        return report_removed(pass, document, other->number, 1);
    }
    return buffer_add(&pass->longs, &own, sizeof own), 0;
}

// Moves `old` to the next document of the old datasets.
static int next_old(ComparePass *pass) {
    for (;;) {
        DocumentCursor *cursor = &pass->old;
        cursor->inputs = &pass->dedup->old->datasets[pass->old_dataset].inputs;
        const int status = documents_next(cursor), split = cursor->split;
        if (status) return status;
        documents_end(cursor);
        pass->old_dataset += split == SPLIT_COUNT - 1;
        if (pass->old_dataset == pass->dedup->old->count) return fail(EX_BUG, "an old document is missing");
        *cursor = (DocumentCursor){.split = (split + 1) % SPLIT_COUNT};
    }
}

// Keeps an old document, with its place in place of its words.
static int keep_old(void *context, PartFile *file, uint64_t number) {
    ComparePass *pass = context;
    const Document *document = &pass->old.document;
    PartBands bands;
    if (part_file_bands(file, &bands) < 0 || next_old(pass) < 0) return -1;
    if (document->tokens > TEXT_TOKENS_MAX) {
        LongDocument own = {.number = number};
        if (documents_hash(&pass->old, &own.hash) < 0) return -1;
        return buffer_add(&pass->longs, &own, sizeof own), 0;
    }
    pass->old_members.size = 0;
    if (!bands.count || !read_memberships(pass, number, &pass->old_members)) return pass->has_next < 0 ? -1 : 0;
    const KeptQuery query = query_of((Bytes){pass->old_members.data, pass->old_members.size}, (Bytes){0});
    const KeptOld old = {{.count = bands.count, .text = bands.text, .digits = bands.digits},
                         bands.bitmap,
                         {document->first, document->tokens - document->has_end, pass->old_dataset, pass->old.split}};
    return kept_sets_keep_old(pass->kept, &query, &old, number);
}

static int read_old_text(void *context, const OldPlace *place, Buffer *text) {
    const NearDedup *dedup = context;
    return old_datasets_text(dedup->old, place, dedup->vocab, text);
}

// Whether a document with memberships goes.
static int decide(ComparePass *pass, const TextDocument *document, Bytes result) {
    KeptFound found;
    memcpy(&found, result.data, sizeof found);
    const KeptQuery query = query_of(document->notes, (Bytes){result.data + sizeof found, result.size - sizeof found});
    const int status = kept_sets_find(pass->kept, &query, &found);
    if (status > 0) return report_removed(pass, document, found.number, found.similarity);
    return status < 0 ? -1 : kept_sets_keep(pass->kept, &query, pass->dedup->old->documents + document->number);
}

static int take_set(void *context, const TextDocument *document, Bytes result, Bytes ids) {
    ComparePass *pass = context;
    removal_report_count(pass->dedup->report, document);
    pass->documents++;
    pass->too_long += document->cursor != NULL;
    if (pass->has_next < 0) return -1;
    const int removed = document->is_wanted ? decide(pass, document, result)
                        : document->cursor  ? decide_long(pass, document)
                                            : 0;
    if (removed) return removed < 0 ? -1 : 0;
    return text_document_copy(document, pass->dedup->inputs, ids, pass->dedup->output);
}

static void log_statistics(const BandPass *bands, const ComparePass *compare) {
    KeptStatistics statistics = kept_sets_statistics(compare->kept);
    const LongDocument *longs = (const LongDocument *)(const void *)compare->longs.data;
    for (size_t i = 0; i < compare->longs.size / sizeof *longs; i++)
        if (longs[i].removed > statistics.largest) statistics.largest = longs[i].removed;
    if (statistics.crowded)
        log_warn("%" PRIu64
                 " documents that stay share a band with %d others that stay, as texts with much common text do: "
                 "later copies of them are compared with those others, and may stay",
                 statistics.crowded, GROUP_KEPT_MAX);
    log_line("%" PRIu64 " comparisons, %" PRIu64 " of them by text; at most %" PRIu64
             " document%s removed for one that stays",
             statistics.comparisons, statistics.texts, statistics.largest, PLURAL(statistics.largest));
    if (statistics.number_documents)
        log_line("%" PRIu64 " removed document%s equal to the one that stays but for the numbers in them, for %" PRIu64
                 " document%s",
                 statistics.number_documents, statistics.number_documents == 1 ? " is" : "s are",
                 statistics.number_families, PLURAL(statistics.number_families));
    const uint64_t without_words = compare->documents - compare->too_long - bands->signed_documents;
    if (without_words)
        log_line("%" PRIu64 " document%s no words and stay", without_words, without_words == 1 ? " has" : "s have");
    if (compare->too_long)
        log_warn("%" PRIu64 " document%s of more than %d tokens: only equal ones of these are found", compare->too_long,
                 PLURAL(compare->too_long), TEXT_TOKENS_MAX);
}

static int run_passes(BandPass *bands, GroupPass *groups, ComparePass *compare, TextMap *map) {
    const NearDedup *dedup = bands->dedup;
    const char *folder = dedup->output && !dedup->output->to_stdout ? dedup->output->build.target : NULL;
    const uint64_t count = band_count(dedup), documents = count / MINHASH_BANDS;
    const uint64_t memory = dedup->memory - fixed_memory(map), rest = memory - record_sort_least_memory(count);
    const uint64_t set_memory = rest < memory / 2 ? rest : memory / 2; // beside the members
    const RecordLimits band_limits = {count, 1ull << KEY_BITS, documents};
    const RecordLimits member_limits = {count, documents, membership(count + 1, 0, false)};
    if (!(bands->sort = record_sort_open(folder, &band_limits, memory, dedup->threads))) return -1;
    if (sign_documents(bands, map) < 0) return -1;
    groups->bands = bands->sort, groups->old_documents = dedup->old->documents;
    if (!(groups->sort = record_sort_open(folder, &member_limits, memory - set_memory, dedup->threads))) return -1;
    if (find_groups(groups) < 0) return -1;
    record_sort_close(bands->sort);
    bands->sort = NULL;
    compare->members = groups->sort;
    if (!(compare->kept = kept_sets_open(folder, groups->slots, dedup->least, set_memory, text_map_threads(map))))
        return -1;
    if ((compare->has_next = record_sort_next(compare->members, &compare->next)) < 0) return -1;
    kept_sets_read_old(compare->kept, read_old_text, (void *)(uintptr_t)dedup);
    if (old_datasets_visit(dedup->old, keep_old, compare) < 0) return -1;
    map->context = compare, map->wants = wants_set, map->work = make_set, map->take = take_set;
    return text_map_run(map);
}

// One for each worker.
static Shingler *shinglers_open(unsigned threads) {
    Shingler *shinglers = allocate_zeroed(threads, sizeof *shinglers);
    for (unsigned i = 0; i < threads; i++) shingler_open(&shinglers[i]);
    return shinglers;
}

static void shinglers_close(Shingler *shinglers, unsigned threads) {
    for (unsigned i = 0; i < threads; i++) shingler_close(&shinglers[i]);
    free(shinglers);
}

int near_dedup_run(const NearDedup *dedup) {
    TextMap map = text_map(dedup);
    const unsigned threads = text_map_threads(&map);
    Shingler *shinglers = shinglers_open(threads);
    BandPass bands = {.dedup = dedup, .shinglers = shinglers};
    GroupPass groups = {0};
    ComparePass compare = {.dedup = dedup, .shinglers = shinglers};
    const int status = run_passes(&bands, &groups, &compare, &map);
    if (status == 0) log_statistics(&bands, &compare);
    shinglers_close(shinglers, threads);
    record_sort_close(bands.sort);
    record_sort_close(groups.sort);
    kept_sets_close(compare.kept);
    buffer_close(&compare.old_members);
    buffer_close(&compare.longs);
    documents_end(&compare.old);
    return status;
}

// One worker's entry: the places of `count`, `text` and `digits`, the keys and the bitmap of the set that follows.
static int make_entry(void *context, unsigned worker, Bytes notes, Bytes text, Buffer *out) {
    (void)notes;
    enum { HEAD_BYTES = 3 * sizeof(uint64_t), KEYS_BYTES = MINHASH_BANDS * PART_KEY_BYTES };
    Shingler *const shingler = &((const SignPass *)context)->shinglers[worker];
    const size_t start = out->size, set = start + HEAD_BYTES + KEYS_BYTES;
    ShingleHead head;
    buffer_reserve(out, HEAD_BYTES);
    out->size += HEAD_BYTES;
    if (!add_keys(shingler, text, out)) return out->size = start, 0;
    shingler_set_again(shingler, out);
    memcpy(&head, out->data + set, sizeof head);
    const uint64_t values[] = {head.count, head.text, head.digits};
    const size_t bitmap = bitmap_filter_bytes(head.count);
    memcpy(out->data + start, values, sizeof values);
    memmove(out->data + set, out->data + set + sizeof head + head.count * sizeof(uint64_t), bitmap);
    out->size = set + bitmap;
    return 0;
}

static int take_entry(void *context, const TextDocument *document, Bytes result, Bytes ids) {
    static const uint8_t none[sizeof(uint64_t)];
    (void)document, (void)ids;
    if (!result.size) result = (Bytes){none, sizeof none};
    return part_writer_add(((SignPass *)context)->writer, result.data, result.size);
}

int near_dedup_sign(const NearDedup *dedup, PartWriter *writer) {
    SignPass pass = {.writer = writer};
    TextMap map = text_map(dedup);
    map.first = writer->first, map.end = writer->first + writer->documents;
    map.context = &pass, map.work = make_entry, map.take = take_entry;
    if (!writer->documents) return 0;
    const unsigned threads = text_map_threads(&map);
    pass.shinglers = shinglers_open(threads);
    const int status = text_map_run(&map);
    shinglers_close(pass.shinglers, threads);
    return status;
}
