// The merges, by a list of places for each pair.
//
// A merge of (a, b) to the new id X changes pairs only beside the places of (a, b): (x, a) becomes (x, X), (b, y)
// becomes (X, y), and between two merges in a row (b, a) becomes (X, X). These changes are summed for each neighbour x
// and y before the table of pairs is touched. All new pairs contain X, so a list of places is complete from its
// beginning.
#include "tokenizer/training/bpe_training.h"
#include "common/err.h"
#include "common/log.h"
#include "tokenizer/training/pair_heap.h"
#include <assert.h>
#include <stdlib.h>

enum {
    BYTE_IDS = 256,
    PREFETCH_PLACES = 16 // ahead
};

// A token before (or after) the places of the pair that is merged.
typedef struct {
    uint64_t count;
    uint32_t places, fill; // fill: where in the pool the next place goes
} Neighbour;

typedef struct {
    Neighbour *of;     // by id; all zero between merges
    uint32_t *touched; // the ids whose entry is not zero
    uint32_t touched_count;
} Neighbours;

struct BpeTraining {
    uint64_t memory;
    uint32_t count; // of merges to find
    TrainingText text;
    PairTable pairs;
    PairHeap heap;
    uint32_t *lengths; // of tokens, in bytes
    BpeMerge *merges;
    Neighbours before, behind;
};

// The pair that is being merged.
typedef struct {
    uint32_t left, right, id;
    uint64_t key;
    uint32_t places;   // that were not stale
    Neighbour between; // places whose next token is merged, too: (X, X)
} PairMerge;

static void open_neighbours(Neighbours *neighbours, size_t ids) {
    neighbours->of = allocate_zeroed(ids, sizeof *neighbours->of);
    neighbours->touched = allocate_zeroed(ids, sizeof *neighbours->touched);
}

static void close_neighbours(Neighbours *neighbours) {
    free(neighbours->of);
    free(neighbours->touched);
}

// The bytes of the arrays that have an element for each id.
static uint64_t id_memory(uint32_t count) {
    return (uint64_t)(BYTE_IDS + count) *
           (2 * (sizeof(Neighbour) + sizeof(uint32_t)) + sizeof(uint32_t) + sizeof(BpeMerge));
}

BpeTraining *bpe_training_open(uint64_t memory, uint32_t count) {
    BpeTraining *training = allocate_zeroed(1, sizeof *training);
    const size_t ids = BYTE_IDS + (size_t)count;
    training->memory = memory, training->count = count;
    training->heap.least = UINT64_MAX;
    training->merges = allocate_zeroed(count + 1, sizeof *training->merges);
    training->lengths = allocate_zeroed(ids, sizeof *training->lengths);
    for (int byte = 0; byte < BYTE_IDS; byte++) training->lengths[byte] = 1;
    open_neighbours(&training->before, ids);
    open_neighbours(&training->behind, ids);
    return training;
}

void bpe_training_close(BpeTraining *training) {
    if (!training) return;
    training_text_close(&training->text);
    pair_table_close(&training->pairs);
    pair_heap_close(&training->heap);
    close_neighbours(&training->before);
    close_neighbours(&training->behind);
    free(training->lengths);
    free(training->merges);
    free(training);
}

int bpe_training_announce(BpeTraining *training, size_t piece_bytes, uint64_t count) {
    if (training_text_announce(&training->text, piece_bytes, count)) return 0;
    return fail(EX_DATA, "the pieces have more than 2^62 bytes: the counts are damaged");
}

// The lists of the pairs of bytes take nearly a word a symbol, and their heads; a half more leaves stale places in
// peace for a while.
static uint64_t pool_words(uint64_t symbols) { return symbols + symbols / 2 + BYTE_IDS * BYTE_IDS * LIST_HEAD; }

// A symbol and its share of the pool; and a table of pairs for a small text.
enum { SYMBOL_BYTES = 10, PAIRS_BYTES = 8 << 20 };

int bpe_training_begin(BpeTraining *training) {
    TrainingText *text = &training->text;
    const uint64_t fixed = id_memory(training->count) + PAIRS_BYTES, need = fixed + text->symbol_count * SYMBOL_BYTES;
    if (need <= training->memory && text->symbol_count < SYMBOLS_MAX) return training_text_begin(text), 0;
    char need_text[16], memory_text[16];
    if (fixed >= training->memory)
        return fail(EX_MEMORY, "%u merges need %s of memory, and --memory allows %s", training->count,
                    human_bytes(need_text, (double)need), human_bytes(memory_text, (double)training->memory));
    uint64_t room = (training->memory - fixed) / SYMBOL_BYTES;
    if (room >= SYMBOLS_MAX) room = SYMBOLS_MAX - 1;
    return fail(EX_MEMORY,
                "merging %llu different pieces needs at least %s of memory, and --memory allows %s: raise it, or leave "
                "out rare pieces with --min-count %llu",
                (unsigned long long)text->piece_count, human_bytes(need_text, (double)need),
                human_bytes(memory_text, (double)training->memory),
                (unsigned long long)training_text_min_count(text, room));
}

int bpe_training_add(BpeTraining *training, Bytes piece, uint64_t count) {
    if (training_text_add(&training->text, piece, count)) return 0;
    return fail(EX_DATA, "a piece was not announced: the counts have changed");
}

static void add_neighbour(Neighbours *neighbours, uint32_t id, uint64_t count) {
    Neighbour *neighbour = &neighbours->of[id];
    if (!neighbour->places) neighbours->touched[neighbours->touched_count++] = id;
    neighbour->places++, neighbour->count += count;
}

static void clear_neighbours(Neighbours *neighbours) {
    for (uint32_t i = 0; i < neighbours->touched_count; i++) neighbours->of[neighbours->touched[i]] = (Neighbour){0};
    neighbours->touched_count = 0;
}

// The words of the pool that the lists of their pairs take.
static uint64_t list_words(const Neighbours *neighbours) {
    uint64_t words = 0;
    for (uint32_t i = 0; i < neighbours->touched_count; i++) {
        const uint32_t places = neighbours->of[neighbours->touched[i]].places;
        words += places > 1 ? LIST_HEAD + (uint64_t)places : 0;
    }
    return words;
}

static void begin_list(BpeTraining *training, Neighbour *neighbour, uint64_t key) {
    const TokenPair *pair = pair_add(&training->pairs, key, neighbour->count, neighbour->places);
    neighbour->fill = pair->list;
    pair_heap_add(&training->heap, pair->count, key);
}

static void add_place(BpeTraining *training, Neighbour *neighbour, uint64_t key, uint32_t place) {
    if (neighbour->places > 1)
        training->pairs.pool[neighbour->fill++] = place;
    else
        pair_find(&training->pairs, key)->list = place;
}

// The pairs of bytes: all that the text has before the first merge.
static int index_bytes(BpeTraining *training) {
    enum { BYTE_PAIRS = BYTE_IDS * BYTE_IDS };
    const TrainingText *text = &training->text;
    const uint32_t *symbols = text->symbols;
    Neighbours pairs = {0}; // by left << 8 | right
    open_neighbours(&pairs, BYTE_PAIRS);
    const TrainingRegion *region = text->regions;
    for (uint64_t i = 1; i + 1 < text->symbol_count; i++) {
        region = training_region(text, region, i);
        if (symbols[i] == SYMBOL_END || symbols[i + 1] == SYMBOL_END) continue;
        add_neighbour(&pairs, symbols[i] << 8 | symbols[i + 1], region->count);
    }
    int status = pair_lists_reserve(&training->pairs, text, training->lengths, list_words(&pairs), 0);
    if (status == 0) status = pair_table_reserve(&training->pairs, pairs.touched_count);
    for (uint32_t i = 0; status == 0 && i < pairs.touched_count; i++) {
        const uint32_t pair = pairs.touched[i];
        begin_list(training, &pairs.of[pair], pair_key(pair >> 8, pair & 255));
    }
    for (uint64_t i = 1; status == 0 && i + 1 < text->symbol_count; i++)
        if (symbols[i] != SYMBOL_END && symbols[i + 1] != SYMBOL_END)
            add_place(training, &pairs.of[symbols[i] << 8 | symbols[i + 1]], pair_key(symbols[i], symbols[i + 1]),
                      (uint32_t)i);
    close_neighbours(&pairs);
    return status;
}

// Merges the pair at its places, sums the tokens before, between and after them, and drops the stale places.
static void merge_places(BpeTraining *training, PairMerge *merge, uint32_t *places, uint32_t count) {
    const TrainingText *text = &training->text;
    const uint32_t a = merge->left, b = merge->right, id = merge->id;
    const uint32_t left_bytes = training->lengths[a], right_bytes = training->lengths[b];
    const TrainingRegion *region = text->regions;
    for (uint32_t i = 0; i < count; i++) {
        if (i + PREFETCH_PLACES < count) __builtin_prefetch(&text->symbols[places[i + PREFETCH_PLACES]], 1);
        const uint32_t place = places[i];
        uint32_t *left = text->symbols + place, *right = left + left_bytes;
        if (*left != a || *right != b) continue;
        uint32_t *next = right + right_bytes;
        const uint32_t x = left[-1], y = *next;
        region = training_region(text, region, place);
        left[left_bytes - 1] = *right = SYMBOL_HOLE;
        *left = next[-1] = id;
        if (x != SYMBOL_END && x != id) add_neighbour(&training->before, x, region->count);
        if (y == a && next[left_bytes] == b)
            merge->between.places++, merge->between.count += region->count; // the next place is merged, too
        else if (y != SYMBOL_END)
            add_neighbour(&training->behind, y, region->count);
        places[merge->places++] = place;
    }
}

// A pair that the merge has replaced by another at some places.
static void reduce_pair(BpeTraining *training, const PairMerge *merge, uint64_t key, uint64_t count) {
    if (key == merge->key) return; // "aaa": no (a, a) is left after its merge
    TokenPair *pair = pair_find(&training->pairs, key);
    assert(pair && pair->count >= count);
    pair->count -= count;
}

static void reduce_pairs(BpeTraining *training, const PairMerge *merge) {
    const Neighbours *before = &training->before, *behind = &training->behind;
    for (uint32_t i = 0; i < before->touched_count; i++) {
        const uint32_t x = before->touched[i];
        reduce_pair(training, merge, pair_key(x, merge->left), before->of[x].count);
    }
    for (uint32_t i = 0; i < behind->touched_count; i++) {
        const uint32_t y = behind->touched[i];
        reduce_pair(training, merge, pair_key(merge->right, y), behind->of[y].count);
    }
    if (merge->between.places) reduce_pair(training, merge, pair_key(merge->right, merge->left), merge->between.count);
}

static int begin_lists(BpeTraining *training, PairMerge *merge) {
    Neighbours *before = &training->before, *behind = &training->behind;
    const uint64_t words = list_words(before) + list_words(behind) + LIST_HEAD + merge->between.places;
    if (pair_lists_reserve(&training->pairs, &training->text, training->lengths, words, merge->key) < 0 ||
        pair_table_reserve(&training->pairs, (uint64_t)before->touched_count + behind->touched_count + 1) < 0)
        return -1;
    for (uint32_t i = 0; i < before->touched_count; i++) {
        const uint32_t x = before->touched[i];
        begin_list(training, &before->of[x], pair_key(x, merge->id));
    }
    for (uint32_t i = 0; i < behind->touched_count; i++) {
        const uint32_t y = behind->touched[i];
        begin_list(training, &behind->of[y], pair_key(merge->id, y));
    }
    if (merge->between.places) begin_list(training, &merge->between, pair_key(merge->id, merge->id));
    return 0;
}

static void add_places(BpeTraining *training, PairMerge *merge, const uint32_t *places) {
    const uint32_t *symbols = training->text.symbols, id = merge->id;
    for (uint32_t i = 0; i < merge->places; i++) {
        if (i + PREFETCH_PLACES < merge->places) __builtin_prefetch(&symbols[places[i + PREFETCH_PLACES]]);
        const uint32_t place = places[i], x = symbols[place - 1], y = symbols[place + training->lengths[id]];
        if (x != SYMBOL_END && x != id)
            add_place(training, &training->before.of[x], pair_key(x, id), place - training->lengths[x]);
        if (y == id)
            add_place(training, &merge->between, pair_key(id, id), place);
        else if (y != SYMBOL_END)
            add_place(training, &training->behind.of[y], pair_key(id, y), place);
    }
}

static int merge_pair(BpeTraining *training, TokenPair *pair, uint32_t id) {
    PairTable *pairs = &training->pairs;
    PairMerge merge = {.left = pair_left(pair->key), .right = pair_right(pair->key), .id = id, .key = pair->key};
    training->lengths[id] = training->lengths[merge.left] + training->lengths[merge.right];
    merge_places(training, &merge, pair_places(pairs, pair), pair->places);
    reduce_pairs(training, &merge);
    if (begin_lists(training, &merge) < 0) return -1;
    pair = pair_find(pairs, merge.key);
    add_places(training, &merge, pair_places(pairs, pair));
    pair->count = 0;
    clear_neighbours(&training->before);
    clear_neighbours(&training->behind);
    return 0;
}

int64_t bpe_training_run(BpeTraining *training, const BpeMerge **merges, void (*show)(void *context, uint32_t count),
                         void *context) {
    const uint64_t symbols = training->text.symbol_count,
                   memory = training->memory - id_memory(training->count) - symbols * sizeof(uint32_t);
    *merges = training->merges;
    if (symbols <= 1) return 0;
    pair_table_open(&training->pairs, memory, pool_words(symbols));
    if (index_bytes(training) < 0) return -1;
    uint32_t count = 0;
    for (TokenPair *pair; count < training->count && (pair = pair_heap_take(&training->heap, &training->pairs));) {
        const uint32_t left = pair_left(pair->key), right = pair_right(pair->key);
        if (training->lengths[left] + training->lengths[right] > BPE_TOKEN_BYTES_MAX) continue;
        training->merges[count] = (BpeMerge){left, right};
        if (merge_pair(training, pair, BYTE_IDS + count) < 0) return -1;
        show(context, ++count);
    }
    return count;
}
