// Adds the ids of other tools' files to a dataset: checks the vocabulary, and moves end-of-text ids after the
// documents.
#include "shardtool/interchange/importer.h"
#include "common/err.h"
#include "remote/url_map.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STEP_TOKENS = 1 << 16 };

int importer_add_end(Importer *importer) {
    importer->has_end[importer->split] = true;
    uint32_t end = 0;
    id_put(&end, 0, id_bytes(importer->vocab_size), importer->end_of_text);
    return output_add(&importer->output, importer->split, &end, 1, importer->position);
}

// Adds at most STEP_TOKENS ids.
static int add_step(Importer *importer, const uint8_t *data, uint64_t first, size_t count) {
    static uint32_t ids[STEP_TOKENS], own[STEP_TOKENS]; // own: of the dataset's width
    const int split = importer->split;
    const unsigned width = id_bytes(importer->vocab_size);
    size_t skip = 0;
    for (size_t i = 0; i < count; i++) {
        ids[i] = importer->id_bytes == 2 ? get_u16(data + 2 * i) : get_u32(data + 4 * i);
        if (ids[i] >= importer->vocab_size)
            return fail(EX_DATA, "id %u at index %" PRIu64 " is not in the vocabulary of %u", ids[i], first + i,
                        importer->vocab_size);
        id_put(own, i, width, ids[i]);
    }
    if (!importer->begun[split]) {
        importer->begun[split] = true;
        importer->begins_with_end[split] = ids[0] == importer->end_of_text;
        skip = importer->eot_before; // importer_finish adds it after the last document
        if (importer->eot_before && !importer->begins_with_end[split])
            return fail(EX_DATA, "does not begin with the end-of-text id %u: use --eot after", importer->end_of_text);
    }
    const uint8_t *from = (const uint8_t *)own + skip * width;
    if (output_add(&importer->output, split, from, count - skip, importer->position) < 0) return -1;
    importer->has_end[split] = ids[count - 1] == importer->end_of_text;
    for (size_t i = 0; i < count; i++) importer->position.document += ids[i] == importer->end_of_text;
    return 0;
}

int importer_add(Importer *importer, const uint8_t *data, uint64_t first, uint64_t count) {
    for (uint64_t at = 0; at < count; at += STEP_TOKENS) {
        size_t step = count - at < STEP_TOKENS ? (size_t)(count - at) : STEP_TOKENS;
        if (add_step(importer, data + at * importer->id_bytes, first + at, step) < 0) return -1;
    }
    return 0;
}

// Whether the bytes look like ids of `width` bytes: nothing but zeros above the bytes of an id. Narrower ids do not,
// because no text has the id 0, an exclamation mark, at every second place.
static bool have_width(const Importer *importer, Bytes ids, size_t width) {
    enum { IDS_LEAST = 4 };
    if (ids.size % width || ids.size / width < IDS_LEAST) return false;
    for (size_t i = 0; i < ids.size; i += 2)
        if (i % width >= importer->id_bytes && get_u16(ids.data + i)) return false;
    return true;
}

int importer_check_width(const Importer *importer, Bytes ids) {
    const unsigned own = importer->id_bytes;
    if (ids.size % own)
        return fail(EX_DATA, "its size is not a multiple of %u bytes: it cannot hold u%u ids only", own, own * 8);
    const unsigned width = have_width(importer, ids, 8) ? 8 : own == 2 && have_width(importer, ids, 4) ? 4 : own;
    if (width == own) return 0;
    return fail(EX_DATA,
                "it looks like ids of %u bytes, this program reads u%u: convert it first, as by "
                "numpy.fromfile(FILE, 'u%u').astype('u%u').tofile(NEW)",
                width, own * 8, width, own);
}

int importer_add_counted(Importer *importer, Bytes ids, uint64_t count) {
    if (ids.size % importer->id_bytes || ids.size / importer->id_bytes != count)
        return fail(EX_DATA, "the header promises %" PRIu64 " ids, %zu bytes follow it: truncated or extended", count,
                    ids.size);
    return importer_add(importer, ids.data, 0, count);
}

int importer_map_index(const Importer *importer, Bytes *index, size_t cut, const char *end) {
    const char *path = importer->path;
    char name[PATH_MAX_BYTES];
    if (snprintf(name, sizeof name, "%.*s%s", (int)(strlen(path) - cut), path, end) >= (int)sizeof name)
        return fail(EX_NOINPUT, "path too long: '%.60s...'", path);
    return url_map_file(index, name);
}

int importer_finish(Importer *importer) {
    for (int split = 0; split < SPLIT_COUNT; split++) {
        importer->split = split;
        if (!importer->begun[split]) continue;
        if (importer->eot_before && importer_add_end(importer) < 0) return -1;
        if (importer->begins_with_end[split] && !importer->has_end[split])
            log_warn("%s begins with the end-of-text id %u and does not end with it: if the id stands before each "
                     "document, use --eot before",
                     split_names[split], importer->end_of_text);
    }
    return 0;
}
