// Batches of about 128 Ki ids in a pool of workers.
#include "shardtool/similar/text_map.h"
#include "common/id_array.h"
#include "common/machine/pool.h"
#include <stdlib.h>

enum { BATCH_TOKENS = 1 << 17 };

typedef struct {
    TextDocument document;
    size_t ids, text_ids;      // with and without the end-of-text id
    size_t result, row, notes; // bytes
} BatchEntry;

typedef struct {
    const TextMap *map;
    Buffer entries, ids, rows, notes, text, results; // `entries` holds BatchEntry
} MapBatch;

typedef struct {
    const TextMap *map;
    Pool *pool;
    MapBatch *batches;
    unsigned batch_count;
    unsigned id_bytes;
    uint64_t number;
} Mapping;

// Appends the text of the ids.
static int decode(const TextMap *map, const uint8_t *ids, size_t count, Buffer *text) {
    const unsigned width = vocab_id_bytes(map->vocab);
    size_t begin = 0;
    for (size_t i = 0; map->without_markers && i < count; i++) {
        const uint32_t id = id_at(ids, i, width);
        if (id >= vocab_size(map->vocab) || !vocab_is_special(map->vocab, id)) continue;
        if (vocab_decode(map->vocab, ids + begin * width, i - begin, text) < 0) return -1;
        buffer_add(text, "\n", 1);
        begin = i + 1;
    }
    return vocab_decode(map->vocab, ids + begin * width, count - begin, text);
}

static int map_batch(void *job, unsigned worker) {
    MapBatch *batch = job;
    const TextMap *map = batch->map;
    const unsigned width = vocab_id_bytes(map->vocab);
    const uint8_t *ids = batch->ids.data;
    BatchEntry *entries = (BatchEntry *)(void *)batch->entries.data;
    Bytes notes = {batch->notes.data, 0};
    batch->results.size = 0;
    for (size_t i = 0; i < batch->entries.size / sizeof *entries; ids += entries[i++].ids * width) {
        const size_t before = batch->results.size;
        notes.data += notes.size, notes.size = entries[i].notes;
        if (!entries[i].document.is_wanted) continue;
        batch->text.size = 0;
        if (decode(map, ids, entries[i].text_ids, &batch->text) < 0) return -1;
        const Bytes text = {batch->text.data, batch->text.size};
        if (map->work(map->context, worker, notes, text, &batch->results) < 0) return -1;
        entries[i].result = batch->results.size - before;
    }
    return 0;
}

static int take_batch(Mapping *mapping, bool *some) {
    const TextMap *map = mapping->map;
    void *job;
    if (pool_collect(mapping->pool, &job) < 0) return -1;
    *some = job != NULL;
    if (!job) return 0;
    const MapBatch *batch = job;
    BatchEntry *entries = (BatchEntry *)(void *)batch->entries.data;
    Bytes ids = {batch->ids.data, 0}, result = {batch->results.data, 0}, row = {batch->rows.data, 0};
    Bytes notes = {batch->notes.data, 0};
    for (size_t i = 0; i < batch->entries.size / sizeof *entries; i++) {
        ids.size = entries[i].ids * mapping->id_bytes, result.size = entries[i].result, row.size = entries[i].row;
        notes.size = entries[i].notes;
        entries[i].document.row = row, entries[i].document.notes = notes;
        if (map->take(map->context, &entries[i].document, result, ids) < 0) return -1;
        ids.data += ids.size, result.data += result.size, row.data += row.size, notes.data += notes.size;
    }
    return 0;
}

static int take_all(Mapping *mapping) {
    for (bool some = true; some;)
        if (take_batch(mapping, &some) < 0) return -1;
    return 0;
}

static int acquire(Mapping *mapping, MapBatch **batch) {
    bool some;
    while (!(*batch = pool_acquire(mapping->pool)))
        if (take_batch(mapping, &some) < 0) return -1;
    return 0;
}

static int add_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    return buffer_add(context, ids, count * bytes), 0;
}

static void submit(Mapping *mapping, MapBatch **batch) {
    if (*batch && (*batch)->entries.size) pool_submit(mapping->pool);
    *batch = NULL;
}

static int add_document(Mapping *mapping, uint64_t number, DocumentCursor *cursor, MapBatch **batch) {
    const TextMap *map = mapping->map;
    TextDocument document = {
        .number = number, .tokens = cursor->document.tokens, .split = cursor->split, .position = cursor->position};
    Bytes row;
    if (documents_row(cursor, &row) < 0) return -1;
    if (document.tokens > TEXT_TOKENS_MAX) {
        document.cursor = cursor, document.row = row;
        submit(mapping, batch);
        if (take_all(mapping) < 0) return -1;
        return map->take(map->context, &document, (Bytes){0}, (Bytes){0});
    }
    if (!*batch) {
        if (acquire(mapping, batch) < 0) return -1;
        (*batch)->map = map, (*batch)->entries.size = (*batch)->ids.size = (*batch)->rows.size = 0;
        (*batch)->notes.size = 0;
        buffer_reserve(&(*batch)->rows, 1), buffer_reserve(&(*batch)->results, 1); // never NULL
        buffer_reserve(&(*batch)->notes, 1);
    }
    const size_t notes = (*batch)->notes.size;
    document.is_wanted = !map->wants || map->wants(map->context, &document, &(*batch)->notes);
    const BatchEntry entry = {.document = document,
                              .ids = document.tokens,
                              .text_ids = document.tokens - cursor->document.has_end,
                              .row = row.size,
                              .notes = (*batch)->notes.size - notes};
    buffer_add(&(*batch)->rows, row.data, row.size);
    buffer_add(&(*batch)->entries, &entry, sizeof entry);
    if (documents_read(cursor, add_ids, &(*batch)->ids) < 0) return -1;
    if ((*batch)->ids.size >= (size_t)BATCH_TOKENS * mapping->id_bytes) submit(mapping, batch);
    return 0;
}

static int map_split(Mapping *mapping, int split) {
    DocumentCursor cursor = {.inputs = mapping->map->inputs, .split = split};
    MapBatch *batch = NULL;
    int status;
    while ((status = documents_next(&cursor)) > 0) {
        const uint64_t number = mapping->number++;
        if (number < mapping->map->first) continue;
        if (mapping->map->end && number >= mapping->map->end) {
            status = 0;
            break;
        }
        if ((status = add_document(mapping, number, &cursor, &batch)) < 0) break;
    }
    if (status == 0) submit(mapping, &batch);
    if (status == 0) status = take_all(mapping);
    documents_end(&cursor);
    return status;
}

int text_document_copy(const TextDocument *document, const DocumentInputs *inputs, Bytes ids, Output *output) {
    if (!output) return 0;
    if (document->cursor) return documents_copy(document->cursor, output);
    if (documents_begin(output, inputs, document->split, document->position, document->row) < 0) return -1;
    return output_add(output, document->split, ids.data, document->tokens, document->position);
}

unsigned text_map_threads(const TextMap *map) { return map->threads ? map->threads : pool_cores(); }

int text_map_run(const TextMap *map) {
    const unsigned threads = text_map_threads(map);
    Mapping mapping = {.map = map, .batch_count = threads + threads / 2 + 2, .id_bytes = vocab_id_bytes(map->vocab)};
    mapping.batches = allocate_zeroed(mapping.batch_count, sizeof *mapping.batches);
    mapping.pool = pool_open(threads, map_batch, mapping.batches, sizeof *mapping.batches, mapping.batch_count);
    int status = mapping.pool ? 0 : -1;
    for (int split = 0; status == 0 && split < SPLIT_COUNT; split++)
        if (documents_has(map->output, split)) status = map_split(&mapping, split);
    pool_close(mapping.pool);
    for (unsigned i = 0; i < mapping.batch_count; i++) {
        Buffer *const buffers[] = {&mapping.batches[i].entries, &mapping.batches[i].ids,  &mapping.batches[i].rows,
                                   &mapping.batches[i].notes,   &mapping.batches[i].text, &mapping.batches[i].results};
        for (unsigned k = 0; k < sizeof buffers / sizeof *buffers; k++) buffer_close(buffers[k]);
    }
    free(mapping.batches);
    return status;
}
