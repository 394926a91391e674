// The array of symbols, filled in the order of the counts of the pieces.
#include "tokenizer/training/training_text.h"
#include "common/machine/hugepages.h"
#include <stdlib.h>

enum { FIRST_SLOTS = 1 << 10 };

static TrainingCount *find_count(const TrainingText *text, uint64_t count) {
    uint64_t mask = text->slot_count - 1, slot = (count * 0x9E3779B97F4A7C15) >> 32 & mask;
    while (text->counts[slot].count && text->counts[slot].count != count) slot = (slot + 1) & mask;
    return &text->counts[slot];
}

static void grow_counts(TrainingText *text) {
    TrainingText old = *text;
    text->slot_count = old.slot_count ? 2 * old.slot_count : FIRST_SLOTS;
    text->counts = allocate_zeroed(text->slot_count, sizeof *text->counts);
    for (uint64_t i = 0; i < old.slot_count; i++)
        if (old.counts[i].count) *find_count(text, old.counts[i].count) = old.counts[i];
    free(old.counts);
}

bool training_text_announce(TrainingText *text, size_t piece_bytes, uint64_t count) {
    if (piece_bytes < 2) return true; // nothing to merge
    if (count >= (TEXT_BYTES_MAX - text->text_bytes) / piece_bytes) return false;
    text->text_bytes += count * piece_bytes;
    if (text->region_count >= text->slot_count / 2) grow_counts(text);
    TrainingCount *found = find_count(text, count);
    text->region_count += !found->count;
    found->count = count, found->symbols += piece_bytes + 1;
    text->symbol_count += piece_bytes + 1, text->piece_count++;
    return true;
}

static int by_falling_count(const void *a, const void *b) {
    const TrainingRegion *x = a, *y = b;
    return x->count < y->count ? 1 : x->count > y->count ? -1 : 0;
}

static TrainingRegion *sort_regions(const TrainingText *text) {
    TrainingRegion *regions = allocate_zeroed(text->region_count + 1, sizeof *regions);
    uint64_t regions_found = 0;
    for (uint64_t i = 0; i < text->slot_count; i++)
        if (text->counts[i].count)
            regions[regions_found++] = (TrainingRegion){text->counts[i].count, text->counts[i].symbols};
    qsort(regions, regions_found, sizeof *regions, by_falling_count);
    return regions;
}

uint64_t training_text_min_count(const TrainingText *text, uint64_t symbols) {
    TrainingRegion *regions = sort_regions(text);
    uint64_t i = 0, used = 1;
    while (i < text->region_count && (used += regions[i].end) <= symbols) i++;
    uint64_t count = i ? regions[i - 1].count : regions[0].count + 1;
    free(regions);
    return count;
}

void training_text_begin(TrainingText *text) {
    text->regions = sort_regions(text);
    uint64_t end = 1; // after the first END
    for (uint64_t i = 0; i < text->region_count; i++) {
        TrainingCount *region = find_count(text, text->regions[i].count);
        region->symbols = end;
        end = region->end = text->regions[i].end += end;
    }
    text->symbol_count = end;
    text->symbols = hugepages_alloc_or_die(end * sizeof *text->symbols);
    text->symbols[0] = SYMBOL_END;
}

bool training_text_add(TrainingText *text, Bytes piece, uint64_t count) {
    if (piece.size < 2) return true;
    TrainingCount *region = find_count(text, count);
    if (!region->count || region->end - region->symbols <= piece.size) return false;
    uint32_t *symbols = text->symbols + region->symbols;
    for (size_t i = 0; i < piece.size; i++) symbols[i] = piece.data[i];
    symbols[piece.size] = SYMBOL_END;
    region->symbols += piece.size + 1;
    return true;
}

const TrainingRegion *training_region(const TrainingText *text, const TrainingRegion *from, uint64_t place) {
    const TrainingRegion *last = text->regions + text->region_count - 1;
    if (place < from->end) return from;
    // The region searched for is in (from, from + step].
    uint64_t step = 1;
    while (step < (uint64_t)(last - from) && place >= from[step].end) from += step, step *= 2;
    if (step > (uint64_t)(last - from)) step = (uint64_t)(last - from);
    while (step > 1) {
        uint64_t middle = step / 2;
        if (place >= from[middle].end)
            from += middle, step -= middle;
        else
            step = middle;
    }
    return from + step;
}

void training_text_close(TrainingText *text) {
    hugepages_free(text->symbols);
    free(text->counts);
    free(text->regions);
    *text = (TrainingText){0};
}
