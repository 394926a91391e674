// From a step of a run to the tokens that it was trained on.
#include "trainer/audit/origin.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/search.h"
#include "dataset/listed.h"
#include "loader/protocol/sampling.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the datasets

static int refuse(unsigned count, const uint8_t fingerprint[32]) {
    char hex[65];
    hex_encode(hex, fingerprint, 32);
    return fail(EX_NOINPUT,
                "%s the fingerprint %.16s: name the dataset of this step, or all datasets of its mixture as "
                "DIR:WEIGHT, and the changes of their weights with --schedule=FILE",
                count > 1 ? "none of these datasets, and no mixture of them, has" : "the dataset does not have", hex);
}

int origins_open(Origins *origins, unsigned count, const char *const *paths, const char *schedule,
                 const uint8_t fingerprint[32]) {
    uint8_t all[ORIGINS_MAX][32];
    uint32_t weights[ORIGINS_MAX];
    *origins = (Origins){0};
    if (count > ORIGINS_MAX) return fail(EX_USAGE, "more than %d datasets", ORIGINS_MAX);
    for (unsigned i = 0; i < count; i++) {
        char path[PATH_MAX_BYTES];
        snprintf(path, sizeof path, "%s", paths[i]);
        if (weight_cut(path, &weights[i]) < 0) return -1;
        Dataset *dataset = &origins->datasets[i];
        origins->count++;
        if (dataset_open(dataset, path) < 0) return -1;
        memcpy(all[i], dataset->fingerprint, 32);
        if (memcmp(all[i], fingerprint, 32)) continue;
        const Dataset found = *dataset;
        *dataset = (Dataset){0};
        origins_close(origins);
        origins->datasets[0] = found, origins->count = 1;
        return 0;
    }
    if (count < 2) return refuse(count, fingerprint);
    Mixture *mixture = &origins->mixture;
    if (mixture_init(mixture, count, (const uint8_t(*)[32])all, weights) < 0 ||
        (schedule && mixture_read_schedule(mixture, schedule) < 0))
        return -1;
    for (const MixtureEntry *entry = mixture->entries; entry < mixture->entries + mixture->entry_count; entry++) {
        origins->shared_streams = !memcmp(entry->shared, fingerprint, 32);
        if (!origins->shared_streams && memcmp(entry->fingerprint, fingerprint, 32)) continue;
        mixture->entry_count = (unsigned)(entry - mixture->entries) + 1;
        return 0;
    }
    return refuse(count, fingerprint);
}

void origins_close(Origins *origins) {
    for (unsigned i = 0; i < origins->count; i++) {
        provenance_reader_close(&origins->rows[i]);
        buffer_close(&origins->marks[i]);
        dataset_close(&origins->datasets[i]);
    }
    mixture_close(&origins->mixture);
    *origins = (Origins){0};
}

// ---- documents

// The documents of a training split, read through the index of one shard at a time.
typedef struct {
    const Dataset *dataset;
    uint64_t shard; // the open one
    bool is_open;
    uint64_t *ends; // of its documents: the index in the split of the first token after each
    size_t count;
    uint64_t number; // of the first of them
} Documents;

static void add_end(Documents *documents, uint64_t end) {
    documents->ends = array_grow(documents->ends, documents->count, sizeof *documents->ends);
    documents->ends[documents->count++] = end;
}

// Adds the documents of one of the shards of a file. The last one may continue in the next.
static int add_member(Documents *documents, const ShardFile *shard, const Shard *member, uint64_t first) {
    Buffer lengths = {0};
    const bool continues = member->index.size && member->index.data[0] & SHARD_CONTINUES_BEFORE;
    int result = shard_lengths(shard, member, &lengths);
    if (continues && documents->count) documents->count--; // one document in two shards of the file
    uint64_t end = first;
    for (Cursor rest = cursor_init((Bytes){lengths.data, lengths.size}); rest.at < rest.end && result == 0;) {
        const uint64_t length = cursor_leb128(&rest);
        if (!length || length > first + member->tokens - end) result = -1;
        if (result == 0) add_end(documents, end += length);
    }
    if (result == 0 && end != first + member->tokens) result = -1;
    buffer_close(&lengths);
    return result == 0 ? 0
                       : fail(EX_DATA, "'%s': the document index does not match the shard: run verify", shard->path);
}

static int open_shard(Documents *documents, uint64_t number) {
    const Dataset *dataset = documents->dataset;
    const DatasetShard *entry = &dataset->shards[SPLIT_TRAIN][number];
    ShardFile shard;
    if (shard_file_open(&shard, entry->path) < 0) return -1;
    uint64_t first = entry->first;
    int result = shard.tokens == entry->tokens
                     ? 0
                     : fail(EX_DATA, "'%s' has another number of tokens than the manifest says", entry->path);
    documents->number = documents->count = 0;
    for (uint64_t i = 0; i < number; i++) documents->number += dataset->shards[SPLIT_TRAIN][i].documents;
    if (result == 0 && shard.members[0].index.size && shard.members[0].index.data[0] & SHARD_CONTINUES_BEFORE)
        documents->number--;
    for (uint64_t i = 0; i < shard.member_count && result == 0; i++) {
        result = add_member(documents, &shard, &shard.members[i], first);
        first += shard.members[i].tokens;
    }
    documents->shard = number, documents->is_open = result == 0;
    shard_file_close(&shard);
    return result;
}

static uint64_t shard_of(const Dataset *dataset, uint64_t token) {
    const DatasetShard *shards = dataset->shards[SPLIT_TRAIN];
    return floor_index(&shards->first, sizeof *shards, dataset->shard_count[SPLIT_TRAIN], token);
}

// The document that has the token, and the token after the document (after its part in this shard).
static int find_document(Documents *documents, uint64_t token, uint64_t *number, uint64_t *end) {
    const uint64_t shard = shard_of(documents->dataset, token);
    if (!(documents->is_open && documents->shard == shard) && open_shard(documents, shard) < 0) return -1;
    const uint64_t *ends = documents->ends;
    uint64_t at = floor_index(ends, sizeof *ends, documents->count, token);
    if (at < documents->count && ends[at] <= token) at++; // the first end after the token
    if (at == documents->count) return fail(EX_DATA, "no document has token %llu", (unsigned long long)token);
    *number = documents->number + at, *end = ends[at];
    return 0;
}

// Whether the last document of the open shard ends in it with an end-of-text id. Only the
// last end of a shard may lie within a document.
static bool ends_open(const Documents *documents, uint64_t end) {
    const DatasetShard *entry = &documents->dataset->shards[SPLIT_TRAIN][documents->shard];
    return end == entry->first + entry->tokens;
}

// Moves the first token to the first end-of-text id of the next `starts` ids, if one of them is.
static int find_start(Documents *documents, uint64_t starts, uint64_t *first) {
    uint64_t number, end = *first, next;
    for (uint64_t token = *first; token < *first + starts; token = end) {
        if (find_document(documents, token, &number, &end) < 0) return -1;
        if (ends_open(documents, end) && end < documents->dataset->tokens[SPLIT_TRAIN]) {
            uint64_t behind;
            const uint64_t last = end;
            if (find_document(documents, last, &behind, &next) < 0) return -1;
            if (behind == number) continue; // the same document in the next shard
        }
        if (end - 1 < *first + starts) *first = end - 1;
        return 0;
    }
    return 0;
}

// ---- samples

static int by_place(const void *a, const void *b) {
    const SampleOrigin *x = a, *y = b;
    if (x->dataset != y->dataset) return x->dataset < y->dataset ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static int by_sample(const void *a, const void *b) {
    const SampleOrigin *x = a, *y = b;
    return x->sample != y->sample ? (x->sample > y->sample) - (x->sample < y->sample) : by_place(a, b);
}

// Where the tokens of a sample are. If a mixture is read as one split, they may be in several datasets.
typedef struct {
    SampleOrigin *items;
    size_t count;
} Places;

static void add_place(Places *places, SampleOrigin place) {
    places->items = array_grow(places->items, places->count, sizeof *places->items);
    places->items[places->count++] = place;
}

// As the loader reads a mixture in an order that ends: all sources joined.
static void add_joined(Places *places, const Origins *sources, SampleOrigin joined) {
    uint64_t first = joined.first, left = joined.tokens;
    for (unsigned i = 0; i < sources->count && left; i++) {
        const uint64_t tokens = sources->datasets[i].tokens[SPLIT_TRAIN];
        SampleOrigin part = {.sample = joined.sample, .dataset = i, .first = first};
        if (first >= tokens) {
            first -= tokens;
            continue;
        }
        part.tokens = left < tokens - first ? left : tokens - first;
        add_place(places, part);
        first = 0, left -= part.tokens;
    }
}

// The first token of the block of each sample.
static int find_tokens(const Origins *sources, const SampleRange *range, const SampleOrder *orders, Places *places) {
    const bool joined = sampling_ends(range->mode);
    for (uint64_t sample = range->first; sample < range->first + range->count; sample++) {
        MixtureSample at = {0, sample};
        if (sources->count > 1 && !joined) at = mixture_at(&sources->mixture, sample);
        const SampleOrder *order = &orders[at.source];
        if (!sample_order_left(order, at.sample))
            return fail(EX_DATA, "the dataset has no sample %llu", (unsigned long long)at.sample);
        ShuffleGroup group;
        sample_order_group(order, at.sample, &group);
        const SampleOrigin place = {.sample = sample,
                                    .dataset = at.source,
                                    .first = sample_order_token(order, &group, at.sample),
                                    .tokens = (uint64_t)range->sequence_tokens + 1};
        if (joined)
            add_joined(places, sources, place);
        else
            add_place(places, place);
    }
    return 0;
}

// The order of each dataset, or of all joined.
static int open_orders(const Origins *sources, const SampleRange *range, SampleOrder orders[ORIGINS_MAX]) {
    const bool joined = sampling_ends(range->mode);
    uint64_t all = 0;
    for (unsigned i = 0; i < sources->count; i++) {
        const uint64_t tokens = sources->datasets[i].tokens[SPLIT_TRAIN];
        all += tokens;
        if (!joined && sample_order_init(&orders[i], range->mode, SPLIT_TRAIN, range->seed,
                                         sources->shared_streams ? 0 : i, tokens, range->sequence_tokens) < 0)
            return fail_in("'%s'", sources->datasets[i].path);
    }
    return joined ? sample_order_init(&orders[0], range->mode, SPLIT_TRAIN, range->seed, 0, all, range->sequence_tokens)
                  : 0;
}

static int find_documents(const Origins *sources, const SampleOrder *orders, bool joined, Places *places) {
    Documents documents = {0};
    int result = 0;
    qsort(places->items, places->count, sizeof *places->items, by_place); // each index is read once
    for (size_t i = 0; i < places->count && result == 0; i++) {
        SampleOrigin *origin = &places->items[i];
        uint64_t end;
        if (documents.dataset != &sources->datasets[origin->dataset]) documents.is_open = false;
        documents.dataset = &sources->datasets[origin->dataset];
        const uint32_t starts = joined ? 1 : sample_order_starts(&orders[origin->dataset], origin->first);
        if (starts > 1) result = find_start(&documents, starts, &origin->first);
        if (result == 0) result = find_document(&documents, origin->first, &origin->first_document, &end);
        origin->shard = &documents.dataset->shards[SPLIT_TRAIN][documents.shard];
        if (result == 0)
            result = find_document(&documents, origin->first + origin->tokens - 1, &origin->last_document, &end);
    }
    free(documents.ends);
    qsort(places->items, places->count, sizeof *places->items, by_sample);
    return result;
}

int origins_find(const Origins *sources, const SampleRange *range, SampleOrigin **origins, size_t *count) {
    SampleOrder orders[ORIGINS_MAX];
    Places places = {0};
    int result = open_orders(sources, range, orders);
    if (result == 0) result = find_tokens(sources, range, orders, &places);
    if (result == 0) result = find_documents(sources, orders, sampling_ends(range->mode), &places);
    *origins = places.items, *count = places.count;
    return result;
}

static ProvenanceReader *rows_of(Origins *sources, unsigned dataset) {
    ProvenanceReader *rows = &sources->rows[dataset];
    rows->dataset = &sources->datasets[dataset], rows->split = SPLIT_TRAIN;
    return rows;
}

int origin_add_documents(Origins *sources, const SampleOrigin *at, bool json, Buffer *out) {
    ProvenanceReader *rows = rows_of(sources, at->dataset);
    const size_t before = out->size;
    bool known = json;
    for (uint64_t i = at->first_document; i <= at->last_document; i++) {
        Bytes row;
        if (provenance_at(rows, i, &row) < 0) return -1;
        known |= row.size;
        if (json) {
            buffer_print(out, i > at->first_document ? "," : "[");
            json_add_number(out, "document", i);
            provenance_add_json(out, "", row);
            buffer_print(out, "}");
        } else {
            buffer_print(out, "  document %" PRIu64 ": ", i);
            provenance_add_text(out, row);
            buffer_print(out, row.size ? "\n" : "not known\n");
        }
    }
    if (json) buffer_print(out, "]");
    if (!known) out->size = before;
    return 0;
}

// ---- documents of a list

int origins_mark(Origins *sources, ListedSet *listed, const char *rest) {
    Bytes row;
    int status = 0;
    for (unsigned i = 0; i < sources->count; i++) {
        const uint64_t documents = sources->datasets[i].documents[SPLIT_TRAIN];
        Buffer *marks = &sources->marks[i];
        buffer_reserve(marks, documents / 8 + 1);
        memset(marks->data, 0, marks->size = documents / 8 + 1);
        for (uint64_t k = 0; status == 0 && k < documents; k++) {
            status = provenance_at(rows_of(sources, i), k, &row);
            if (status == 0 && listed_has(listed, row)) marks->data[k / 8] |= (uint8_t)(1 << k % 8);
        }
    }
    return status < 0 ? -1 : listed_finish(listed, rest);
}

int origin_add_marked(Origins *sources, const SampleOrigin *at, bool json, uint64_t step, Buffer *out) {
    const uint8_t *marks = sources->marks[at->dataset].data;
    const char *name = sources->datasets[at->dataset].name;
    Bytes row;
    for (uint64_t i = at->first_document; i <= at->last_document; i++) {
        if (!(marks[i / 8] >> i % 8 & 1)) continue;
        if (provenance_at(rows_of(sources, at->dataset), i, &row) < 0) return -1;
        if (!json) {
            buffer_print(out, "step %" PRIu64 " sample %" PRIu64 ": %s document %" PRIu64 ": ", step, at->sample, name,
                         i);
            provenance_add_text(out, row);
            buffer_print(out, "\n");
            continue;
        }
        buffer_print(out, "{");
        json_add_number(out, "step", step);
        json_add_number(out, "sample", at->sample);
        json_add_field(out, "dataset", name);
        json_add_number(out, "document", i);
        provenance_add_json(out, "", row);
        buffer_print(out, "}\n");
    }
    return 0;
}
