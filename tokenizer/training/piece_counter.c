// Counting window by window: a window is pretokenized as a whole before its pieces are counted, because only then it is
// known to be UTF-8.
#include "tokenizer/training/piece_counter.h"
#include "common/err.h"
#include "common/utf8.h"
#include "tokenizer/merge/pretokenize.h"
#include <stdlib.h>

enum { WINDOW = 32 << 10, BUFFER_KEEP = 1 << 20 };

struct PieceCounter {
    const PieceCounterOptions *options;
    PieceCounts counts;
    Isa isa;
    Buffer starts; // u32: of the pieces of a window, and the end of the last
    Buffer text;   // a window with its invalid bytes replaced
    uint64_t pieces, replaced;
};

PieceCounter *piece_counter_open(const PieceCounterOptions *options) {
    PieceCounter *counter = allocate_zeroed(1, sizeof *counter);
    counter->options = options;
    counter->isa = cpu_isa();
    piece_counts_open(&counter->counts, options->memory - (PIECE_COUNTER_MEMORY - PIECE_COUNTS_MEMORY));
    return counter;
}

void piece_counter_close(PieceCounter *counter) {
    if (!counter) return;
    piece_counts_close(&counter->counts);
    buffer_close(&counter->starts);
    buffer_close(&counter->text);
    free(counter);
}

int piece_counter_flush(PieceCounter *counter) {
    return counter->counts.used ? counter->options->flush(counter->options->context, &counter->counts) : 0;
}

static int count_pieces(PieceCounter *counter, Bytes text, uint64_t offset) {
    const uint32_t *starts = (const uint32_t *)(const void *)counter->starts.data;
    const size_t count = counter->starts.size / sizeof *starts - 1;
    for (size_t i = 0; text.size > counter->options->max_word && i < count; i++)
        if (starts[i + 1] - starts[i] > counter->options->max_word)
            return fail(EX_DATA, "a word of more than %llu bytes at byte %llu (--max-word)",
                        (unsigned long long)counter->options->max_word, (unsigned long long)(offset + starts[i]));
    for (size_t done = 0; done < count;) {
        done += piece_counts_add(&counter->counts, text.data, starts + done, count - done);
        if (done < count && piece_counter_flush(counter) < 0) return -1;
    }
    counter->pieces += count;
    return 0;
}

// Fills `starts`. False when the text is not UTF-8, which only ISA_PORTABLE can still cut into pieces.
static bool pretokenize(PieceCounter *counter, Bytes text, Isa isa) {
    Buffer *starts = &counter->starts;
    Pretokenizer pretokenizer;
    pretokenizer_open(&pretokenizer, text, counter->options->pattern, isa);
    starts->size = 0;
    for (size_t count = 1; count;) {
        buffer_reserve(starts, PRETOKENIZE_STARTS * sizeof(uint32_t));
        count = pretokenizer_next(&pretokenizer, (uint32_t *)(void *)(starts->data + starts->size));
        starts->size += count * sizeof(uint32_t);
    }
    buffer_add(starts, &(uint32_t){(uint32_t)text.size}, sizeof(uint32_t));
    return !pretokenizer.invalid;
}

// The pieces of a text with bytes that are not UTF-8.
static int add_invalid(PieceCounter *counter, Bytes text, uint64_t offset) {
    if (counter->options->invalid == INVALID_FAIL)
        return fail(EX_DATA, "invalid UTF-8 at byte %llu", (unsigned long long)(offset + utf8_valid(text)));
    if (counter->options->invalid == INVALID_REPLACE) {
        counter->text.size = 0;
        counter->replaced += utf8_replace(text, &counter->text);
        buffer_reserve(&counter->text, PIECE_PADDING);
        text = (Bytes){counter->text.data, counter->text.size};
        if (text.size > UINT32_MAX) return fail(EX_DATA, "%zu bytes of invalid UTF-8 in a row", text.size);
    }
    pretokenize(counter, text, counter->options->invalid == INVALID_BYTES ? ISA_PORTABLE : counter->isa);
    return count_pieces(counter, text, offset);
}

static int add_window(PieceCounter *counter, Bytes text, uint64_t offset) {
    if (text.size > UINT32_MAX) // positions in a window are 32 bits
        return fail(EX_DATA, "a word of more than 4 GiB at byte %llu", (unsigned long long)offset);
    int status = pretokenize(counter, text, counter->isa) ? count_pieces(counter, text, offset)
                                                          : add_invalid(counter, text, offset);
    if (counter->text.capacity > BUFFER_KEEP) buffer_close(&counter->text);
    if (counter->starts.capacity > BUFFER_KEEP) buffer_close(&counter->starts);
    return status;
}

// The size of the text's first window: up to a cut, or all of the text if it cannot be cut.
static size_t window_size(Bytes text, Pattern pattern) {
    for (size_t size = WINDOW, from = 0; size < text.size; from = size - UTF8_BYTES_MAX, size *= 2) {
        const size_t cut = pretokenize_cut((Bytes){text.data, size}, from, pattern);
        if (cut) return cut;
    }
    return text.size;
}

int piece_counter_add(PieceCounter *counter, Bytes text, uint64_t offset) {
    while (text.size) {
        const Bytes window = {text.data, window_size(text, counter->options->pattern)};
        if (add_window(counter, window, offset) < 0) return -1;
        text.data += window.size, text.size -= window.size, offset += window.size;
    }
    return 0;
}

uint64_t piece_counter_pieces(const PieceCounter *counter) { return counter->pieces; }
uint64_t piece_counter_replaced(const PieceCounter *counter) { return counter->replaced; }
