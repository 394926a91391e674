// Reservoir sampling (Vitter 1985, algorithm R): whole document i replaces a chosen one with probability
// count / (i + 1).
#include "shardtool/print/random_documents.h"
#include "common/rng.h"
#include <stdlib.h>

typedef struct {
    RandomDocuments *chosen;
    uint64_t wanted, seed;
} Choice;

static int take_document(void *context, const Document *document) {
    const Choice *choice = context;
    RandomDocuments *chosen = choice->chosen;
    chosen->total++;
    if (document->is_cut) return chosen->cut++, 0;
    const uint64_t seen = chosen->total - chosen->cut;
    // The high half of the product is uniform to within 2^-64 of their number.
    const uint64_t place = (uint64_t)((unsigned __int128)rng_u64(choice->seed, 0, seen - 1) * seen >> 64);
    if (chosen->count < choice->wanted) {
        chosen->documents = array_grow(chosen->documents, chosen->count, sizeof *chosen->documents);
        chosen->documents[chosen->count++] = *document;
    } else if (place < chosen->count)
        chosen->documents[place] = *document;
    return 0;
}

static int by_number(const void *a, const void *b) {
    const Document *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

int random_documents_choose(RandomDocuments *chosen, TokenReader *tokens, uint64_t count, uint64_t seed) {
    *chosen = (RandomDocuments){0};
    const int status = document_reader_visit(tokens, take_document, &(Choice){chosen, count, seed});
    if (chosen->count) qsort(chosen->documents, chosen->count, sizeof *chosen->documents, by_number);
    return status;
}
